//! The memory that a pool gives.
#![expect(unsafe_code, reason = "slices are the caller's responsibility")]

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bytemuck::Pod;

use crate::memory::piece::Piece;
use crate::{Memory, Result};

/// Memory from a [`Pool`](crate::Pool), which goes back there when it and its regions are gone.
///
/// Everything that [`Memory`] and [`Region`](crate::Region) do it does, too: it dereferences to them. Its addresses are
/// aligned as [`PoolOptions::alignment`](crate::PoolOptions::alignment) says. When it is given out again is said at
/// [`Pool`](crate::Pool). It may be used and dropped on any thread.
///
/// What differs: it cannot be exported as a descriptor ([`Error::Pooled`](crate::Error::Pooled)), since it shares an
/// allocation with other memory; [`free`](Self::free) and a drop give it back, in the order of ten nanoseconds.
pub struct PoolMemory {
    memory: Memory,
}

impl PoolMemory {
    /// A piece that is lent.
    #[inline]
    pub(super) fn new(piece: Arc<Piece>) -> Self {
        Self { memory: Memory::lent(piece) }
    }

    /// The bytes as a mutable slice, see [`Region::as_mut_slice`](crate::Region::as_mut_slice).
    ///
    /// # Errors
    ///
    /// As [`Region::as_mut_slice`](crate::Region::as_mut_slice).
    ///
    /// # Safety
    ///
    /// As [`Region::as_mut_slice`](crate::Region::as_mut_slice).
    pub unsafe fn as_mut_slice<T: Pod>(&mut self) -> Result<&mut [T]> {
        // SAFETY: by this method's contract, which is the same.
        unsafe { self.memory.as_mut_slice() }
    }

    /// Gives the memory back, as a drop does, and reports what goes wrong. If regions of it are alive, it goes back with
    /// the last of them.
    ///
    /// # Errors
    ///
    /// The drivers' first error, where one has to be asked. The memory has gone back all the same, and is not given out
    /// again before the device is known to have finished.
    pub fn free(self) -> Result<()> {
        self.memory.free()
    }
}

impl Deref for PoolMemory {
    type Target = Memory;

    fn deref(&self) -> &Memory {
        &self.memory
    }
}

impl From<PoolMemory> for Memory {
    /// For code that does not care where memory comes from: it goes back to its pool all the same.
    fn from(memory: PoolMemory) -> Self {
        memory.memory
    }
}

impl fmt::Debug for PoolMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolMemory").field("memory", &self.memory).finish()
    }
}
