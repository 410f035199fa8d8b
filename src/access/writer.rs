//! [`Writer`]: many small writes under one fence.
#![forbid(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;

use bytemuck::NoUninit;

use super::view::View;
use crate::Result;

/// Writes to memory that share one fence, made by [`Memory::writer`](crate::Memory::writer).
///
/// [`Memory::write`](crate::Memory::write) ends with a fence, which waits until the CPU's write-combining buffers are
/// drained. A writer has one fence for all of its writes, when it is finished or dropped: this thread's later stores
/// come after all of them, as the device sees it. The writes have no order among themselves, and the device may see each
/// of them before or after the end. Finish the writer before you write the flag that tells a running kernel that
/// the bytes are there.
///
/// Cached memory needs no fence: a writer does the same as `Memory::write`. Where memory is not coherent,
/// [`Memory::flush`](crate::Memory::flush) must follow, which includes a fence.
#[must_use = "the fence comes when the writer is dropped; dropped at once it orders nothing"]
pub struct Writer<'a> {
    view: View<'a>,
    unordered: bool,
    /// Not `Send`: a fence orders the stores of the thread that executes it.
    _same_thread: PhantomData<*const ()>,
}

impl<'a> Writer<'a> {
    pub(crate) const fn new(view: View<'a>) -> Self {
        Self { view, unordered: false, _same_thread: PhantomData }
    }

    /// Copies `source` to the bytes at `offset`, which need not be aligned. Does not flush.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`](crate::Error::OutOfRange), [`Error::NoHostView`](crate::Error::NoHostView).
    #[inline]
    pub fn write<T: NoUninit>(&mut self, offset: usize, source: &[T]) -> Result<()> {
        self.view.write_unordered(offset, source)?;
        self.unordered = true;
        Ok(())
    }

    /// Ends the writer: orders its writes before this thread's later stores. A drop does the same.
    pub fn finish(self) {}
}

impl fmt::Debug for Writer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("len", &self.view.len()).field("unordered", &self.unordered).finish()
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        if self.unordered {
            self.view.order_writes();
        }
    }
}
