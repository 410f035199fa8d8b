//! [`MapGuard`] and [`MapMode`]: a scope in which the CPU uses memory, with an invalidate before and a flush after.
#![forbid(unsafe_code)]

use std::fmt;
use std::ptr::NonNull;

use bytemuck::{NoUninit, Pod};

use super::view::View;
use crate::report::report;
use crate::{Error, Result};

/// How the CPU uses mapped memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MapMode {
    /// Reads only: invalidated on entry, not flushed.
    Read,
    /// Writes some of the bytes and reads none: flushed at the end. Invalidated on entry too, so that the bytes that are
    /// not written keep their values: a flush writes whole atoms.
    Write,
    /// Reads and writes: invalidated on entry, flushed at the end.
    ReadWrite,
    /// Writes every byte and reads none: flushed at the end. On non-coherent memory the bytes are undefined until they
    /// are written.
    Discard,
}

impl MapMode {
    const fn flushes(self) -> bool {
        !matches!(self, Self::Read)
    }
}

/// The CPU's use of a range of memory, begun by [`Memory::map`](crate::Memory::map).
///
/// Dropping the guard flushes if the mode says so; [`MapGuard::finish`] does the same and reports errors. Offsets are in
/// bytes from the start of the mapped range.
#[must_use = "the guard flushes when it is dropped; dropped at once it guards nothing"]
pub struct MapGuard<'a> {
    view: View<'a>,
    mode: MapMode,
    finished: bool,
}

impl<'a> MapGuard<'a> {
    pub(crate) fn new(view: View<'a>, mode: MapMode) -> Result<Self> {
        match mode {
            // The flush writes whole atoms: the bytes beyond the range must not be stale.
            MapMode::Discard => view.invalidate_edges()?,
            MapMode::Read | MapMode::Write | MapMode::ReadWrite => view.invalidate(0, view.len())?,
        }
        Ok(Self { view, mode, finished: false })
    }

    /// The number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.view.len()
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The mode that the guard was made with.
    #[must_use]
    pub fn mode(&self) -> MapMode {
        self.mode
    }

    /// The host address of the first byte. Always `Some`: a guard exists only for memory with a host mapping.
    ///
    /// Valid while the guard lives; the device may change the bytes at any time. Writes through it in mode
    /// [`MapMode::Read`] are not flushed.
    #[must_use]
    pub fn host_ptr(&self) -> Option<NonNull<u8>> {
        self.view.host_ptr()
    }

    /// Copies `source` to `offset`, see [`Memory::write`](crate::Memory::write).
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`], and [`Error::ReadOnly`] for a guard of mode
    /// [`MapMode::Read`].
    pub fn write<T: NoUninit>(&mut self, offset: usize, source: &[T]) -> Result<()> {
        if self.mode.flushes() { self.view.write(offset, source) } else { Err(Error::ReadOnly) }
    }

    /// Copies from `offset` to `target`, see [`Memory::read`](crate::Memory::read).
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`].
    pub fn read<T: Pod>(&self, offset: usize, target: &mut [T]) -> Result<()> {
        self.view.read(offset, target)
    }

    /// Ends the guard: flushes, if the mode says so.
    ///
    /// # Errors
    ///
    /// The errors of `vkFlushMappedMemoryRanges`.
    pub fn finish(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.finished, true) || !self.mode.flushes() {
            return Ok(());
        }
        self.view.flush(0, self.view.len())
    }
}

impl fmt::Debug for MapGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapGuard")
            .field("mode", &self.mode)
            .field("len", &self.len())
            .field("host_ptr", &self.host_ptr())
            .finish_non_exhaustive()
    }
}

impl Drop for MapGuard<'_> {
    fn drop(&mut self) {
        match self.end() {
            // In a forked child the memory is the parent's.
            Ok(()) | Err(Error::Forked) => {}
            Err(error) => report!(Error, "the end of a map guard: {error}"),
        }
    }
}
