//! [`OtherMemory`]: memory of other copies of this crate in the process.
//!
//! The C libraries, the Python module and a Rust program each contain a copy, with a table of addresses of its own.
//!
//! [`table`] finds the tables of the others. Cached memory and short copies are accessed directly. Everything else
//! calls the copy that owns the memory, so that a copy needs to know nothing of the others' handles and contexts.
#![expect(unsafe_code, reason = "calls functions of other copies of this crate")]

mod table;

use std::ffi::{c_int, c_void};
use std::fmt;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::AtomicU64;

use bytemuck::{NoUninit, Pod};
use cudarc::driver::sys::{CUdevice, CUdeviceptr};

use crate::access::cached_bytes::CachedBytes;
use crate::access::copy::{self, HostAccess};
use crate::access::range;
use crate::driver::{Handle, fork};
use crate::{Error, Memory, MemoryKind, Result, memory_of};
use table::{Found, Table};

/// The functions that other copies call.
static TABLE: Table = Table { ready: AtomicU64::new(0), find, release, flush, invalidate, write, read };

unsafe extern "C" fn find(address: u64, found: *mut Found) -> c_int {
    let Some((memory, offset)) = memory_of(address) else { return -1 };
    let found_here = Found {
        device_ptr: memory.device_ptr(),
        host_ptr: memory.host_ptr().map_or(0, |pointer| pointer.as_ptr().expose_provenance() as u64),
        len: memory.len() as u64,
        offset: offset as u64,
        atom: memory.non_coherent_atom_size() as u64,
        device: memory.owner().device(),
        kind: memory.kind() as u32,
        is_cached: memory.is_cached().into(),
        reserved: 0,
        reference: Box::into_raw(Box::new(memory)).cast(),
    };
    // SAFETY: good for writing, as the table says.
    unsafe { found.write(found_here) };
    0
}

unsafe extern "C" fn release(reference: *mut c_void) {
    // SAFETY: made by `find`, and not used again.
    drop(unsafe { Box::from_raw(reference.cast::<Memory>()) });
}

/// The memory of a reference.
///
/// # Safety
///
/// The reference must come from `find` and not have been released.
unsafe fn memory<'a>(reference: *mut c_void) -> &'a Memory {
    // SAFETY: by this function's contract.
    unsafe { &*reference.cast() }
}

fn status(result: &Result<()>) -> c_int {
    if result.is_ok() { 0 } else { -1 }
}

unsafe extern "C" fn flush(reference: *mut c_void, offset: usize, len: usize) -> c_int {
    // SAFETY: live, as the table says.
    let memory = unsafe { memory(reference) };
    status(&memory.flush(offset..offset.saturating_add(len)))
}

unsafe extern "C" fn invalidate(reference: *mut c_void, offset: usize, len: usize) -> c_int {
    // SAFETY: live, as the table says.
    let memory = unsafe { memory(reference) };
    status(&memory.invalidate(offset..offset.saturating_add(len)))
}

unsafe extern "C" fn write(reference: *mut c_void, offset: usize, source: *const u8, len: usize) -> c_int {
    // SAFETY: live, as the table says.
    let memory = unsafe { memory(reference) };
    // SAFETY: good for reading, as the table says.
    status(&memory.write(offset, unsafe { slice::from_raw_parts(source, len) }))
}

unsafe extern "C" fn read(reference: *mut c_void, offset: usize, target: *mut u8, len: usize) -> c_int {
    // SAFETY: live, as the table says.
    let memory = unsafe { memory(reference) };
    // SAFETY: good for writing, as the table says.
    status(&memory.read(offset, unsafe { slice::from_raw_parts_mut(target, len) }))
}

/// Memory that another copy of this crate in the same process allocated: the copy in a program, in `libvkgdr.so.1` or
/// in the Python module. This value keeps the memory alive. Cached memory and short copies are accessed directly;
/// everything else calls the copy that owns the memory.
pub struct OtherMemory {
    table: &'static Table,
    reference: Handle<*mut c_void>,
    found: FoundMemory,
}

/// The properties of [`OtherMemory`].
#[derive(Debug, Clone, Copy)]
struct FoundMemory {
    device_ptr: CUdeviceptr,
    /// Null without a host view.
    host_ptr: Handle<*mut u8>,
    len: usize,
    device: CUdevice,
    kind: MemoryKind,
    atom: usize,
    is_cached: bool,
    access: HostAccess,
}

/// Copies of uncached memory below this length are made here. Longer ones call the owner, which knows its copy engine's
/// thresholds.
const SHORT: usize = 4096;

/// Whether another copy of this crate is loaded in the process. Not in forked children.
#[doc(hidden)]
#[must_use]
pub fn other_copies_are_loaded() -> bool {
    !fork::is_forked() && !table::others().is_empty()
}

/// Finds the memory that contains a device or host address and belongs to another copy of this crate in this process,
/// and the offset of the address in it: for addresses that [`memory_of`] does not find. `None` in a forked child.
///
/// The copies may be of different versions: they agree on the layout of their tables.
#[must_use]
pub fn other_memory_of(address: u64) -> Option<(OtherMemory, usize)> {
    if fork::is_forked() {
        return None;
    }
    table::others().into_iter().find_map(|table| {
        let mut found = Found::NONE;
        // SAFETY: another copy's function, and a place for its result.
        if unsafe { (table.find)(address, &raw mut found) } != 0 {
            return None;
        }
        let kind = MemoryKind::ALL.into_iter().find(|&kind| kind as u32 == found.kind).unwrap_or(MemoryKind::Device);
        let size = |value: u64| usize::try_from(value).unwrap_or(0);
        let memory = FoundMemory {
            device_ptr: found.device_ptr,
            host_ptr: Handle(std::ptr::with_exposed_provenance_mut(size(found.host_ptr))),
            len: size(found.len),
            device: found.device,
            kind,
            atom: size(found.atom).max(1),
            is_cached: found.is_cached != 0,
            access: HostAccess::of(found.host_ptr != 0, found.is_cached != 0),
        };
        let other = OtherMemory { table, reference: Handle(found.reference), found: memory };
        Some((other, size(found.offset)))
    })
}

impl OtherMemory {
    /// The device address of the first byte.
    #[must_use]
    pub const fn device_ptr(&self) -> CUdeviceptr {
        self.found.device_ptr
    }

    /// The host address of the first byte; `None` for device memory.
    #[must_use]
    pub fn host_ptr(&self) -> Option<NonNull<u8>> {
        NonNull::new(self.found.host_ptr.0)
    }

    /// As [`Region::cached_bytes`](crate::Region::cached_bytes).
    #[doc(hidden)]
    #[must_use]
    pub fn cached_bytes(&self) -> CachedBytes {
        CachedBytes::new(self.host_ptr(), self.found.len, self.found.access)
    }

    /// The number of bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.found.len
    }

    /// Whether there are no bytes: never.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.found.len == 0
    }

    /// The CUDA device number.
    #[must_use]
    pub const fn device(&self) -> CUdevice {
        self.found.device
    }

    /// The kind of memory.
    #[must_use]
    pub const fn kind(&self) -> MemoryKind {
        self.found.kind
    }

    /// Whether the host and the device see each other's writes without flush and invalidate.
    #[must_use]
    pub const fn is_coherent(&self) -> bool {
        self.found.atom == 1
    }

    /// The granularity of flushes in bytes: 1 for coherent memory.
    #[must_use]
    pub const fn non_coherent_atom_size(&self) -> usize {
        self.found.atom
    }

    /// Whether the CPU caches the memory. If not, its stores are write-combined.
    #[must_use]
    pub const fn is_cached(&self) -> bool {
        self.found.is_cached
    }

    /// As [`Region::flush`](crate::Region::flush).
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`], [`Error::OtherCopy`] for an error of the copy, and [`Error::Forked`].
    pub fn flush(&self, offset: usize, len: usize) -> Result<()> {
        self.check(offset, len)?;
        // SAFETY: live, and a range within it.
        result("flush", unsafe { (self.table.flush)(self.reference.0, offset, len) })
    }

    /// As [`Region::invalidate`](crate::Region::invalidate).
    ///
    /// # Errors
    ///
    /// The errors of [`flush`](Self::flush).
    pub fn invalidate(&self, offset: usize, len: usize) -> Result<()> {
        self.check(offset, len)?;
        // SAFETY: live, and a range within it.
        result("invalidate", unsafe { (self.table.invalidate)(self.reference.0, offset, len) })
    }

    /// As [`Region::write`](crate::Region::write).
    ///
    /// # Errors
    ///
    /// The errors of [`flush`](Self::flush).
    #[inline]
    pub fn write<T: NoUninit>(&self, offset: usize, source: &[T]) -> Result<()> {
        let source: &[u8] = bytemuck::cast_slice(source);
        if let Some(to) = self.host_range(offset, source.len()) {
            // SAFETY: within the memory, which this reference keeps mapped.
            unsafe { copy::write(self.found.access, to, source) };
            return Ok(());
        }
        self.write_by_owner(offset, source)
    }

    #[cold]
    fn write_by_owner(&self, offset: usize, source: &[u8]) -> Result<()> {
        self.check(offset, source.len())?;
        // SAFETY: live, a range within it, and bytes that are good for reading.
        result("write", unsafe { (self.table.write)(self.reference.0, offset, source.as_ptr(), source.len()) })
    }

    /// As [`Region::read`](crate::Region::read).
    ///
    /// # Errors
    ///
    /// The errors of [`flush`](Self::flush).
    #[inline]
    pub fn read<T: Pod>(&self, offset: usize, target: &mut [T]) -> Result<()> {
        let target: &mut [u8] = bytemuck::cast_slice_mut(target);
        if let Some(from) = self.host_range(offset, target.len()) {
            copy::order_reads(self.found.access);
            // SAFETY: within the memory, which this reference keeps mapped, and an allocation is whole lines.
            unsafe { copy::read_unordered(self.found.access, from, target) };
            return Ok(());
        }
        self.read_by_owner(offset, target)
    }

    #[cold]
    fn read_by_owner(&self, offset: usize, target: &mut [u8]) -> Result<()> {
        self.check(offset, target.len())?;
        // SAFETY: live, a range within it, and bytes that are good for writing.
        result("read", unsafe { (self.table.read)(self.reference.0, offset, target.as_mut_ptr(), target.len()) })
    }

    /// The host address of a range of the memory that the CPU copies.
    #[inline]
    fn host_range(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        let within = offset <= self.found.len && len <= self.found.len - offset;
        if !within || !(self.found.is_cached || len < SHORT) {
            return None;
        }
        NonNull::new(self.found.host_ptr.0.wrapping_add(offset)).filter(|_| !self.found.host_ptr.0.is_null())
    }

    fn check(&self, offset: usize, len: usize) -> Result<()> {
        fork::check()?;
        range::check(offset, len, self.len())
    }
}

fn result(operation: &'static str, status: c_int) -> Result<()> {
    if status == 0 { Ok(()) } else { Err(Error::OtherCopy { operation }) }
}

impl Drop for OtherMemory {
    fn drop(&mut self) {
        if !fork::is_forked() {
            // SAFETY: live until now.
            unsafe { (self.table.release)(self.reference.0) };
        }
    }
}

impl fmt::Debug for OtherMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OtherMemory").field(&self.found).finish()
    }
}
