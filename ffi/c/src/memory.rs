//! `vkgdr_memory_t`: memory, and regions of it.
#![expect(unsafe_code, reason = "exports C symbols")]
#![expect(non_camel_case_types, reason = "C's spelling")]

use std::ffi::c_void;
use std::io::Write as _;
use std::mem::ManuallyDrop;
use std::ops::{Deref, Range};
use std::ptr::{NonNull, null_mut};

use vkgdr_rs::{Error, Mapping, Memory, PoolMemory, Region};

use crate::boundary::{self, handle, put, remembered, required};
use crate::failure::{Failure, Outcome};
use crate::handle::{gpu, vkgdr_t};
use crate::kind::options;
use crate::lookup;
use crate::{CUdeviceptr, CUstream};

/// Memory that the CPU and the device share, or a region of it.
#[derive(Debug)]
pub struct vkgdr_memory {
    inner: Contents,
}

#[derive(Debug)]
enum Contents {
    Whole(Memory),
    /// Another reference to memory, which was found by its address.
    Found(Memory),
    Part(Region),
    Existing(Mapping),
}

/// The lowest bit of a handle of a pool's memory. Such a handle is no [`vkgdr_memory`] but a [`PoolMemory`] as a raw
/// pointer: a box around it would take as long as the pool does.
const POOLED: usize = 1;
const _: () = assert!(align_of::<vkgdr_memory>() > POOLED);

/// Memory, or a region of it.
pub type vkgdr_memory_t = *mut vkgdr_memory;

impl Contents {
    fn into_handle(self) -> vkgdr_memory_t {
        Box::into_raw(Box::new(vkgdr_memory { inner: self }))
    }
}

/// A handle of a pool's memory.
#[inline]
pub(crate) fn pooled(memory: PoolMemory) -> vkgdr_memory_t {
    memory.into_raw().cast::<vkgdr_memory>().map_addr(|address| address | POOLED)
}

/// The raw pointer in a handle of a pool's memory; none for others.
#[inline]
fn find_pooled(mem: vkgdr_memory_t) -> Option<*mut c_void> {
    if mem.addr() & POOLED == 0 { None } else { Some(mem.map_addr(|address| address & !POOLED).cast()) }
}

/// A handle of existing memory.
pub(crate) fn existing(mapping: Mapping) -> vkgdr_memory_t {
    Contents::Existing(mapping).into_handle()
}

/// The handle of a pool's memory that was allocated as such a handle; none for other memory.
pub(crate) fn handle_of_pooled(memory: &Memory) -> Option<vkgdr_memory_t> {
    let raw = PoolMemory::raw_of(memory)?;
    Some(raw.cast::<vkgdr_memory>().map_addr(|address| address | POOLED))
}

/// A handle of memory that is not of a pool.
pub(crate) fn whole(memory: Memory) -> vkgdr_memory_t {
    let device_ptr = memory.device_ptr();
    let handle = Contents::Whole(memory).into_handle();
    lookup::add(device_ptr, handle);
    handle
}

/// A handle of memory that was found by its address.
pub(crate) fn found(memory: Memory) -> vkgdr_memory_t {
    Contents::Found(memory).into_handle()
}

/// The memory of a handle, for the length of a call.
pub(crate) enum Borrowed<'a> {
    Whole(&'a Memory),
    Part(&'a Region),
    Existing(&'a Mapping),
    /// Never dropped: the caller keeps the handle.
    Pooled(ManuallyDrop<PoolMemory>),
}

impl Borrowed<'_> {
    /// All of an allocation or of a pool's chunk; an error for a region.
    pub(crate) fn memory(&self) -> Outcome<&Memory> {
        match self {
            Self::Whole(memory) => Ok(memory),
            Self::Part(_) | Self::Existing(_) => Err(Failure::Region),
            Self::Pooled(memory) => Ok(memory),
        }
    }
}

impl Deref for Borrowed<'_> {
    type Target = Region;

    #[inline]
    fn deref(&self) -> &Region {
        match self {
            Self::Whole(memory) => memory,
            Self::Part(region) => region,
            Self::Existing(mapping) => mapping,
            Self::Pooled(memory) => memory,
        }
    }
}

/// The memory of a handle.
///
/// # Safety
///
/// `mem` must be null or live.
#[inline]
pub(crate) unsafe fn region<'a>(mem: vkgdr_memory_t) -> Outcome<Borrowed<'a>> {
    if let Some(pooled) = find_pooled(mem) {
        // SAFETY: from `pooled`, and live by this function's contract.
        let memory = unsafe { PoolMemory::borrow_raw(pooled) };
        return memory.map(Borrowed::Pooled).ok_or_else(|| Error::Freed.into());
    }
    // SAFETY: by this function's contract.
    Ok(match &unsafe { handle(mem) }?.inner {
        Contents::Whole(memory) | Contents::Found(memory) => Borrowed::Whole(memory),
        Contents::Part(region) => Borrowed::Part(region),
        Contents::Existing(mapping) => Borrowed::Existing(mapping),
    })
}

/// The range of `size` bytes at `offset`, checked without overflow to be within the memory.
#[inline]
pub(crate) fn range(whole: &Region, offset: usize, size: usize) -> Outcome<Range<usize>> {
    match offset.checked_add(size) {
        Some(end) if end <= whole.len() => Ok(offset..end),
        _ => Err(Error::OutOfRange { offset, len: size, size: whole.len() }.into()),
    }
}

/// Frees the memory of a handle: immediately, as vkgdr 0.1 does, unless it is bound to a stream.
///
/// # Safety
///
/// `mem` must be live and not be used afterwards, and the device must have finished with it unless it is bound to a
/// stream.
#[inline]
pub(crate) unsafe fn free(mem: vkgdr_memory_t) -> Outcome {
    if let Some(pooled) = find_pooled(mem) {
        // SAFETY: from `pooled`, and not used again.
        let Some(memory) = (unsafe { PoolMemory::from_raw(pooled) }) else { return Err(Error::Freed.into()) };
        // SAFETY: the device has finished with memory that is not bound, by this function's contract.
        return Ok(if memory.bound_stream().is_some() { memory.free() } else { unsafe { memory.free_idle() } }?);
    }
    // SAFETY: by this function's contract.
    unsafe { free_boxed(mem) }
}

/// As [`free`], for memory that is not from a pool.
///
/// # Safety
///
/// As of [`free`].
unsafe fn free_boxed(mem: vkgdr_memory_t) -> Outcome {
    // SAFETY: from `into_handle`, and not used again.
    let mem = unsafe { Box::from_raw(mem) };
    match mem.inner {
        Contents::Part(region) => region.free()?,
        Contents::Existing(mapping) => mapping.unmap()?,
        // Of the owner's memory, for which the device need not have finished.
        Contents::Found(memory) => memory.free()?,
        Contents::Whole(memory) => {
            lookup::remove(memory.device_ptr());
            if memory.bound_stream().is_some() {
                memory.free()?;
            } else {
                // SAFETY: the device has finished with the memory, by this function's contract.
                unsafe { memory.free_idle() }?;
            }
        }
    }
    Ok(())
}

/// Reports a failed free: a double free on standard error, since it is a bug of the program that would otherwise go
/// unnoticed, and others to the log.
#[cold]
fn report(failure: &Failure) {
    match failure {
        Failure::Library(Error::Freed) => {
            // Nothing can be done where standard error is closed.
            let _ = writeln!(std::io::stderr(), "vkgdr: vkgdr_memory_free: this memory of a pool was freed before");
        }
        failure => log::warn!("freeing memory: {failure:?}"),
    }
}

/// Allocates memory.
///
/// A CUDA context of the handle's device must be current, unless the handle was opened with
/// vkgdr_open_primary_context(). The contents are undefined. An allocation may wait until running kernels have ended: allocate
/// before starting a kernel that waits for the CPU.
///
/// @param g      The GPU.
/// @param size   Bytes, more than 0.
/// @param flags  Of `enum vkgdr_memory_flags`; 0 as in vkgdr 0.1. Unknown bits are an error.
/// @return Memory for vkgdr_memory_free(), or NULL: see vkgdr_last_error().
///
/// # Safety
///
/// `g` must be NULL or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_alloc(g: vkgdr_t, size: usize, flags: u32) -> vkgdr_memory_t {
    let allocated = remembered(|| {
        // SAFETY: by this function's contract.
        let gpu = unsafe { gpu(g) }?;
        Ok(whole(Memory::allocate_with(gpu, size, options(flags)?)?))
    });
    allocated.unwrap_or(null_mut())
}

/// Frees memory or a region. NULL is allowed. Memory is freed with its last region; memory of a pool returns to the
/// pool.
///
/// Any context may be current. Unless the memory is bound to a stream, the device must have finished with it: the
/// call does not wait, and a pool reuses the memory immediately.
///
/// Free memory before its context is destroyed: what the CUDA driver does with a destroyed context is undefined. Where there is
/// evidence that the context is gone, only Vulkan's side is freed; otherwise it counts as alive.
///
/// Freeing memory of a pool twice is undefined, as with free(3). It is noticed, reported on standard error and otherwise
/// ignored, as long as the pool has neither given the memory out again nor returned it to the drivers.
///
/// @param mem  The memory or region, which must not be used afterwards.
///
/// # Safety
///
/// `mem` must be NULL, or memory that neither the CPU nor the device uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_free(mem: vkgdr_memory_t) {
    boundary::value((), || {
        if mem.is_null() {
            return Ok(());
        }
        // The prototype of vkgdr 0.1 returns nothing.
        // SAFETY: by this function's contract.
        unsafe { free(mem) }.unwrap_or_else(|failure| report(&failure));
        Ok(())
    });
}

/// As vkgdr_memory_free(), and returns the drivers' first error. The memory is freed in any case.
///
/// @param mem  The memory or region, which must not be used afterwards.
/// @return A `vkgdr_status`; VKGDR_ERROR_INVALID_ARGUMENT for memory of a pool that was freed before, where that is
///         noticed.
///
/// # Safety
///
/// As for vkgdr_memory_free().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_free_checked(mem: vkgdr_memory_t) -> i32 {
    boundary::status(|| {
        required(mem)?;
        // SAFETY: by this function's contract.
        unsafe { free(mem) }
    })
}

/// Frees memory once a stream has finished the work that was submitted before this call. Does not wait, unless the
/// memory was bound to another stream before: then it waits for the whole context. Memory of a pool returns to the
/// pool, where vkgdr_pool_alloc_on() of the same stream reuses it immediately.
///
/// @param mem     The memory, not a region. On failure it is not freed, and stays the caller's.
/// @param stream  A stream of the memory's context; NULL is its legacy default stream.
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `mem` must be NULL, or memory that the CPU does not use any more and the device only on `stream`; the stream must
/// stay alive until this returns, and until the last region of the memory is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_free_on_stream(mem: vkgdr_memory_t, stream: CUstream) -> i32 {
    boundary::status(|| {
        // SAFETY: by this function's contract.
        unsafe { bind(mem, stream) }?;
        // From here on the memory is freed for the caller: later errors of the drivers are only logged.
        // SAFETY: as above.
        unsafe { free(mem) }.unwrap_or_else(|failure| report(&failure));
        Ok(())
    })
}

/// Binds memory to a stream: vkgdr_memory_free() then frees it once the stream has finished the work that was submitted
/// before.
///
/// @param mem     The memory, not a region.
/// @param stream  A stream of the memory's context; NULL is its legacy default stream.
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `mem` must be NULL or live; the stream must stay alive until the memory and all its regions are gone, or bound
/// to another stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_bind_stream(mem: vkgdr_memory_t, stream: CUstream) -> i32 {
    // SAFETY: by this function's contract.
    boundary::status(|| unsafe { bind(mem, stream) })
}

/// # Safety
///
/// As for [`vkgdr_memory_bind_stream`].
unsafe fn bind(mem: vkgdr_memory_t, stream: CUstream) -> Outcome {
    // SAFETY: by this function's contract.
    let memory = unsafe { region(mem) }?;
    let memory = memory.memory()?;
    // SAFETY: as above.
    unsafe { memory.bind_raw_stream(stream.cast()) }?;
    Ok(())
}

/// Creates a region: a part of memory or of another region, with pointers of its own. It keeps the memory alive.
///
/// @param mem     The memory or region.
/// @param offset  The first byte, from the start of `mem`.
/// @param size    Bytes.
/// @param out     Where the region is written; for vkgdr_memory_free().
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `mem` must be NULL or live, `out` NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_create_region(
    mem: vkgdr_memory_t,
    offset: usize,
    size: usize,
    out: *mut vkgdr_memory_t,
) -> i32 {
    boundary::status(|| {
        required(out)?;
        // SAFETY: by this function's contract.
        let whole = unsafe { region(mem) }?;
        let range = range(&whole, offset, size)?;
        let part = Contents::Part(whole.region(range)?).into_handle();
        // SAFETY: by this function's contract.
        unsafe { put(out, part) }
    })
}

/// The host address, valid until the memory is freed. NULL for device memory.
///
/// @param mem  The memory, or a region of it.
/// @return A pointer to the first byte.
///
/// # Safety
///
/// `mem` must be NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_get_host_ptr(mem: vkgdr_memory_t) -> *mut c_void {
    boundary::value(null_mut(), || {
        // SAFETY: by this function's contract.
        let pointer = unsafe { region(mem) }?.host_ptr();
        Ok(pointer.map_or(null_mut(), NonNull::as_ptr).cast())
    })
}

/// The device address, valid until the memory is freed.
///
/// @param mem  The memory, or a region of it.
/// @return The address of the first byte.
///
/// # Safety
///
/// `mem` must be NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_get_device_ptr(mem: vkgdr_memory_t) -> CUdeviceptr {
    // SAFETY: by this function's contract.
    boundary::value(0, || Ok(unsafe { region(mem) }?.device_ptr()))
}

/// The requested size in bytes.
///
/// @param mem  The memory, or a region of it.
/// @return Bytes.
///
/// # Safety
///
/// `mem` must be NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_get_size(mem: vkgdr_memory_t) -> usize {
    // SAFETY: by this function's contract.
    boundary::value(0, || Ok(unsafe { region(mem) }?.len()))
}

/// The kind of memory.
///
/// @param mem  The memory, or a region of it.
/// @param out  Where one of `enum vkgdr_memory_flags` is written.
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `mem` must be NULL or live, `out` NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_get_kind(mem: vkgdr_memory_t, out: *mut u32) -> i32 {
    boundary::status(|| {
        // SAFETY: by this function's contract.
        let kind = unsafe { region(mem) }?.kind();
        // SAFETY: by this function's contract.
        unsafe { put(out, kind as u32) }
    })
}

/// Whether the CPU and the device see each other's writes without flushing and invalidating. Flushing then only orders
/// the CPU's stores, which a kernel that is already running needs.
///
/// @param mem  The memory, or a region of it.
/// @return Whether the memory is coherent.
///
/// # Safety
///
/// `mem` must be NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_is_coherent(mem: vkgdr_memory_t) -> bool {
    // SAFETY: by this function's contract.
    boundary::value(true, || Ok(unsafe { region(mem) }?.is_coherent()))
}

/// The granularity of flushes in bytes: 1 where the memory is coherent.
///
/// @param mem  The memory, or a region of it.
/// @return Bytes.
///
/// # Safety
///
/// `mem` must be NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_non_coherent_atom_size(mem: vkgdr_memory_t) -> usize {
    // SAFETY: by this function's contract.
    boundary::value(1, || Ok(unsafe { region(mem) }?.non_coherent_atom_size()))
}
