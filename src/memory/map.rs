//! [`MapGuard`], a scope in which the CPU uses memory, with an invalidate before and a flush after; [`Writer`], many writes under
//! one fence.
#![forbid(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use bytemuck::{NoUninit, Pod};

use super::Memory;
use crate::{Error, Result};
use crate::{copy, range};

/// How the CPU uses mapped memory. Each mode invalidates at the start, and all but `Read` flush at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MapMode {
    /// Reads only: not flushed.
    Read,
    /// Writes some of the bytes and reads none: the others keep their values.
    Write,
    /// Reads and writes.
    ReadWrite,
    /// Writes every byte and reads none: the bytes are undefined until they are written. Today as `Write`.
    Discard,
}

/// The CPU's use of a range of memory, begun by [`Memory::map`].
///
/// Dropping the guard flushes if the mode says so; [`MapGuard::finish`] does the same and reports errors. Both belong on the
/// thread that wrote. Offsets are in bytes from the start of the mapped range.
#[must_use = "the guard flushes when it is dropped; dropped at once it guards nothing"]
pub struct MapGuard<'a> {
    memory: &'a Memory,
    offset: usize,
    len: usize,
    mode: MapMode,
}

impl<'a> MapGuard<'a> {
    /// A guard of a range that the caller has checked, of memory with a host mapping.
    pub(super) fn new(memory: &'a Memory, (offset, len): (usize, usize), mode: MapMode) -> Result<Self> {
        // Also where every byte is to be written: the flush writes whole atoms, of which the rest must not be stale.
        memory.invalidate(offset..offset + len)?;
        Ok(Self { memory, offset, len, mode })
    }

    /// The number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The host address of the first byte. Always `Some`: a guard exists only for memory with a host mapping.
    ///
    /// Valid while the guard lives; the device may change the bytes at any time. Writes through it in mode
    /// [`MapMode::Read`] are not flushed.
    #[must_use]
    pub fn host_ptr(&self) -> Option<NonNull<u8>> {
        self.memory.expose_host();
        self.memory.host_range(self.offset, self.len).ok()
    }

    /// Copies `source` to `offset` by the CPU, see [`Memory::write`].
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`], and [`Error::ReadOnly`] for a guard of mode
    /// [`MapMode::Read`].
    #[inline]
    pub fn write<T: NoUninit>(&mut self, offset: usize, source: &[T]) -> Result<()> {
        if self.mode == MapMode::Read {
            return Err(Error::ReadOnly);
        }
        range::check(offset, size_of_val(source), self.len)?;
        self.memory.write(self.offset + offset, source)
    }

    /// Copies from `offset` to `target` by the CPU, see [`Memory::read`].
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`].
    #[inline]
    pub fn read<T: Pod>(&self, offset: usize, target: &mut [T]) -> Result<()> {
        range::check(offset, size_of_val(target), self.len)?;
        self.memory.read(self.offset + offset, target)
    }

    /// Ends the guard: flushes, if the mode says so.
    ///
    /// # Errors
    ///
    /// For non-coherent memory the errors of `vkFlushMappedMemoryRanges` and [`Error::Forked`].
    pub fn finish(self) -> Result<()> {
        ManuallyDrop::new(self).end()
    }

    fn end(&self) -> Result<()> {
        match self.mode {
            MapMode::Read => Ok(()),
            _ => self.memory.flush(self.offset..self.offset + self.len),
        }
    }
}

impl fmt::Debug for MapGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapGuard")
            .field("mode", &self.mode)
            .field("len", &self.len())
            .field("memory", self.memory)
            .finish_non_exhaustive()
    }
}

impl Drop for MapGuard<'_> {
    fn drop(&mut self) {
        match self.end() {
            // In a forked child the memory is the parent's.
            Ok(()) | Err(Error::Forked) => {}
            Err(error) => log::error!("the end of a map guard: {error}"),
        }
    }
}

/// Writes to memory that share one fence, made by [`Memory::writer`].
///
/// [`Memory::write`] ends with a fence, which waits until the CPU's write-combining buffers are drained. A writer has one fence
/// for all of its writes, when it is finished or dropped. This thread's later stores come after all of them, as the device
/// sees it. The writes have no order among themselves, and the device may see each of them before or after the end. Finish the
/// writer before you write the flag that tells a running kernel that the bytes are there.
///
/// Cached memory needs no fence: a writer does the same as `Memory::write`. Where memory is not coherent,
/// [`Memory::flush`] must follow, which includes a fence.
#[must_use = "the fence comes when the writer is dropped; dropped at once it orders nothing"]
pub struct Writer<'a> {
    memory: &'a Memory,
    /// Not `Send`: a fence orders the stores of the thread that executes it.
    _same_thread: PhantomData<*const ()>,
}

impl<'a> Writer<'a> {
    pub(super) const fn new(memory: &'a Memory) -> Self {
        Self { memory, _same_thread: PhantomData }
    }

    /// Copies `source` to the bytes at `offset`, which need not be aligned. Does not flush.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`], [`Error::NoHostView`].
    #[inline]
    pub fn write<T: NoUninit>(&mut self, offset: usize, source: &[T]) -> Result<()> {
        self.memory.write_unordered(offset, bytemuck::cast_slice(source))
    }

    /// Ends the writer: orders its writes before this thread's later stores. A drop does the same.
    pub fn finish(self) {}
}

impl fmt::Debug for Writer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("memory", self.memory).finish()
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        copy::order_writes(self.memory.routine);
    }
}
