//! The memory that a pool gives.
#![expect(unsafe_code, reason = "slices are the caller's responsibility")]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use std::slice;

use bytemuck::Pod;

use super::core::{Loan, take_back_far};
use crate::memory::piece::{FreePiece, Lease};
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
    /// Given up by a drop.
    loan: ManuallyDrop<Loan>,
}

impl PoolMemory {
    /// What was lent.
    #[inline]
    pub(super) const fn new(loan: Loan) -> Self {
        Self { loan: ManuallyDrop::new(loan) }
    }

    #[inline]
    fn into_loan(self) -> Loan {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: nothing uses the field afterwards.
        unsafe { ManuallyDrop::take(&mut this.loan) }
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
        let (pointer, count) = self.elements::<T>()?;
        // SAFETY: mapped and aligned, every bit pattern is a `T`, and nobody else uses the bytes by this method's
        // contract.
        Ok(unsafe { slice::from_raw_parts_mut(pointer.as_ptr(), count) })
    }

    /// Gives the memory back, as a drop does, and reports what goes wrong. If regions of it are alive, it goes back with
    /// the last of them.
    ///
    /// # Errors
    ///
    /// The drivers' first error, where one has to be asked. The memory has gone back all the same, and is not given out
    /// again before the device is known to have finished.
    #[inline]
    pub fn free(self) -> Result<()> {
        self.into_loan().give_back_near().map_or(Ok(()), take_back_far)
    }

    /// Gives memory back that the device has finished with, see [`Memory::free_idle`].
    ///
    /// # Errors
    ///
    /// As [`free`](Self::free).
    ///
    /// # Safety
    ///
    /// As [`Memory::free_idle`].
    #[inline]
    pub unsafe fn free_idle(self) -> Result<()> {
        self.loan.lease.know_idle();
        self.free()
    }

    /// Makes a pointer of it, for [`from_raw`](Self::from_raw). What it points at may be used until then, but not changed:
    /// it is where the pool looks.
    #[inline]
    #[must_use]
    pub fn into_raw(self) -> NonNull<Memory> {
        self.into_loan().lease.into_raw().cast()
    }

    /// The memory of a pointer.
    ///
    /// # Safety
    ///
    /// The pointer must come from [`into_raw`](Self::into_raw), and not have been given here before.
    #[inline]
    #[must_use]
    pub unsafe fn from_raw(memory: NonNull<Memory>) -> Self {
        // SAFETY: by this function's contract.
        Self::new(Loan::of(unsafe { Lease::from_raw(memory.cast()) }))
    }
}

impl Drop for PoolMemory {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: nothing uses what was dropped.
        let loan = unsafe { ManuallyDrop::take(&mut self.loan) };
        if let Some(piece) = loan.give_back_near() {
            drop_far(piece);
        }
    }
}

#[cold]
fn drop_far(piece: FreePiece) {
    if let Err(error) = take_back_far(piece) {
        log::warn!("giving a piece of memory back: {error}");
    }
}

impl Deref for PoolMemory {
    type Target = Memory;

    #[inline]
    fn deref(&self) -> &Memory {
        Memory::of(&self.loan.lease)
    }
}

impl From<PoolMemory> for Memory {
    /// For code that does not care where memory comes from: it goes back to its pool all the same.
    #[inline]
    fn from(memory: PoolMemory) -> Self {
        Self::lent(memory.into_loan().lease)
    }
}

impl fmt::Debug for PoolMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolMemory").field("memory", &**self).finish()
    }
}
