//! [`View`]: a checked range of an allocation, with flush, invalidate and copies by the CPU.
#![expect(unsafe_code, reason = "copies through the host pointer")]

use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

use bytemuck::{NoUninit, Pod};
use cudarc::driver::sys::CUdeviceptr;

use super::copy::{self, CopyRoutine, HostAccess};
use super::range;
use crate::allocation::Allocation;
use crate::{Error, Result};

/// Bytes `offset..offset + len` of an allocation. Offsets of the methods count from the start of that range.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    allocation: &'a Allocation,
    offset: usize,
    len: usize,
    access: HostAccess,
}

impl<'a> View<'a> {
    pub(crate) fn whole(allocation: &'a Allocation) -> Self {
        let access = HostAccess::of(allocation.kind().has_host_view(), allocation.memory_type().cached);
        Self { allocation, offset: 0, len: allocation.len(), access }
    }

    /// A range that the caller has checked, of an allocation whose [`access`](Self::access) it knows.
    #[inline]
    pub(crate) fn checked(allocation: &'a Allocation, offset: usize, len: usize, access: HostAccess) -> Self {
        debug_assert!(range::check(offset, len, allocation.len()).is_ok());
        Self { allocation, offset, len, access }
    }

    /// A part of this view.
    #[inline]
    pub(crate) fn part(self, offset: usize, len: usize) -> Result<Self> {
        range::check(offset, len, self.len)?;
        Ok(Self { offset: self.offset + offset, len, ..self })
    }

    pub(crate) const fn len(self) -> usize {
        self.len
    }

    pub(crate) fn device_ptr(self) -> CUdeviceptr {
        self.allocation.device_ptr() + self.offset as u64
    }

    /// The host address of the first byte; `None` for device memory.
    #[inline]
    pub(crate) fn host_ptr(self) -> Option<NonNull<u8>> {
        // SAFETY: `offset` is at most the allocation's length.
        self.allocation.host_ptr().map(|base| unsafe { base.add(self.offset) })
    }

    /// Makes the CPU's writes visible to the device. Rounds outwards to whole atoms.
    #[inline]
    pub(crate) fn flush(self, offset: usize, len: usize) -> Result<()> {
        range::check(offset, len, self.len)?;
        let memory_type = self.allocation.memory_type();
        fence(Ordering::Release);
        copy::order_writes(self.access);
        if memory_type.coherent || len == 0 {
            return Ok(());
        }
        self.allocation.flush(self.offset + offset, len)
    }

    /// Makes the device's writes visible to the CPU. Rounds outwards to whole atoms.
    #[inline]
    pub(crate) fn invalidate(self, offset: usize, len: usize) -> Result<()> {
        range::check(offset, len, self.len)?;
        if !self.allocation.memory_type().coherent && len > 0 {
            self.allocation.invalidate(self.offset + offset, len)?;
        }
        copy::order_reads(self.access);
        fence(Ordering::Acquire);
        Ok(())
    }

    /// Invalidates the first and the last atom, if they are only partly within this view.
    pub(crate) fn invalidate_edges(self) -> Result<()> {
        let atom = self.allocation.memory_type().atom;
        let partial = |boundary: usize| !boundary.is_multiple_of(atom);
        if self.len > 0 && partial(self.offset) {
            self.invalidate(0, 1)?;
        }
        if self.len > 0 && partial(self.offset + self.len) {
            self.invalidate(self.len - 1, 1)?;
        }
        Ok(())
    }

    /// How the CPU copies this memory.
    #[inline]
    pub(crate) const fn access(self) -> HostAccess {
        self.access
    }

    /// The routine that copies this memory.
    pub(crate) fn copy_routine(self) -> CopyRoutine {
        HostAccess::of(true, self.allocation.memory_type().cached).routine()
    }

    /// Copies `source` to `offset`.
    #[inline]
    pub(crate) fn write<T: NoUninit>(self, offset: usize, source: &[T]) -> Result<()> {
        let source = bytemuck::cast_slice(source);
        let to = self.host_range(offset, source.len())?;
        // SAFETY: `to` has room for `source.len()` bytes, which this view keeps mapped.
        unsafe { copy::write(self.access, to, source) };
        Ok(())
    }

    /// As [`write`](Self::write), but [`order_writes`](Self::order_writes) must follow.
    #[inline]
    pub(crate) fn write_unordered<T: NoUninit>(self, offset: usize, source: &[T]) -> Result<()> {
        let source = bytemuck::cast_slice(source);
        let to = self.host_range(offset, source.len())?;
        // SAFETY: as in `write`.
        unsafe { copy::write_unordered(self.access, to, source) };
        Ok(())
    }

    /// Orders this thread's earlier writes before its later stores, as the device sees them.
    #[inline]
    pub(crate) fn order_writes(self) {
        copy::order_writes(self.access);
    }

    /// Copies from `offset` to `target`.
    #[inline]
    pub(crate) fn read<T: Pod>(self, offset: usize, target: &mut [T]) -> Result<()> {
        let target = bytemuck::cast_slice_mut(target);
        // First: the fence would wait for the loads below.
        copy::order_reads(self.access);
        let from = self.host_range(offset, target.len())?;
        // SAFETY: `from` has `target.len()` bytes, which this view keeps mapped, and an allocation is whole lines.
        unsafe { copy::read_unordered(self.access, from, target) };
        Ok(())
    }

    /// Repeats `pattern` over `len` bytes at `offset`. `len` must be a multiple of the pattern's size.
    pub(crate) fn fill<T: NoUninit>(self, offset: usize, len: usize, pattern: &[T]) -> Result<()> {
        let pattern: &[u8] = bytemuck::cast_slice(pattern);
        let unit = pattern.len().max(1);
        if !len.is_multiple_of(unit) {
            return Err(Error::Misaligned { what: "the length to fill", value: len, unit });
        }
        let to = self.host_range(offset, len)?;
        // SAFETY: `to` has room for `len` bytes, which this view keeps mapped.
        unsafe { copy::fill(self.access, to, len, pattern) };
        Ok(())
    }

    /// The host address of a range, which is checked.
    #[inline]
    fn host_range(self, offset: usize, len: usize) -> Result<NonNull<u8>> {
        let part = self.part(offset, len)?;
        part.host_ptr().ok_or_else(|| Error::NoHostView { kind: self.allocation.kind() })
    }

    /// The bytes as elements of `T`, as pointer and count.
    pub(crate) fn elements<T>(self) -> Result<(NonNull<T>, usize)> {
        let pointer = self.host_range(0, self.len)?;
        let (size, align) = (size_of::<T>().max(1), align_of::<T>());
        let address = pointer.addr().get();
        if !address.is_multiple_of(align) {
            return Err(Error::Misaligned { what: "the host address", value: address, unit: align });
        }
        if !self.len.is_multiple_of(size) {
            return Err(Error::Misaligned { what: "the length", value: self.len, unit: size });
        }
        Ok((pointer.cast(), self.len / size))
    }
}
