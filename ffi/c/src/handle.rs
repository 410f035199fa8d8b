//! `vkgdr_t`, the handle of a GPU: open, close, queries, collect.
#![expect(unsafe_code, reason = "exports C symbols")]

use std::ffi::c_char;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use vkgdr_rs::{MemoryInfoSource, MemoryKind, OpenFlags, Vkgdr};

use crate::CUdevice;
use crate::boundary::{self, handle};
use crate::errors::Failure;
use crate::kind::kind as memory_kind;

/// A GPU whose memory can be allocated.
#[derive(Debug)]
pub struct vkgdr {
    pub(crate) inner: Vkgdr,
}

/// A handle of a GPU.
pub type vkgdr_t = *mut vkgdr;

/// Flags for vkgdr_open(), combined by bitwise or.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub enum vkgdr_open_flags {
    /// Ignore the device number and use the device of the current CUDA context.
    VKGDR_OPEN_CURRENT_CONTEXT_BIT = 1,
    /// Treat memory as non-coherent even where it is coherent, for testing.
    VKGDR_OPEN_FORCE_NON_COHERENT_BIT = 2,
    /// Use only coherent memory. Opening fails where mapped memory is missing or not coherent. A flush then only orders the CPU's
    /// stores, which a kernel that is already running needs.
    VKGDR_OPEN_REQUIRE_COHERENT_BIT = 4,
    /// Let vkgdr_open() succeed on a GPU without mapped memory, or without Vulkan, where vkgdr 0.1 fails: for programs that
    /// ask vkgdr_device_supports(). Not in vkgdr 0.1, and far from the bits that its successors may use. No effect on
    /// vkgdr_open_primary_context(), which does so anyway. VKGDR_OPEN_REQUIRE_COHERENT_BIT requires mapped memory of both.
    VKGDR_OPEN_MAPPED_OPTIONAL_BIT = 0x0100_0000,
}

/// The flags of the crate, and whether a GPU without mapped memory may be opened.
pub(crate) fn open_flags(flags: u32) -> (OpenFlags, bool) {
    let optional = vkgdr_open_flags::VKGDR_OPEN_MAPPED_OPTIONAL_BIT as u32;
    (OpenFlags::from_bits_retain(flags & !optional), flags & optional != 0)
}

/// The amount of memory of a kind, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct vkgdr_memory_info {
    /// The size of the heap that the kind's memory comes from.
    pub total: u64,
    /// An estimate of what this process can still allocate.
    pub available: u64,
    /// Whether `available` is the driver's budget (`VK_EXT_memory_budget`). Otherwise it is the heap's size, or for memory
    /// that does not come from Vulkan what the system or cuMemGetInfo() reports.
    pub from_budget: bool,
}

/// Whether the program has ever opened a GPU by this library.
static OPENED: AtomicBool = AtomicBool::new(false);

/// Whether the program has ever opened a GPU by this library, and so may allocate memory by it.
pub(crate) fn was_opened() -> bool {
    OPENED.load(Ordering::Relaxed)
}

pub(crate) fn into_handle(inner: Vkgdr) -> vkgdr_t {
    OPENED.store(true, Ordering::Relaxed);
    Box::into_raw(Box::new(vkgdr { inner }))
}

/// Opens a GPU.
///
/// Initialises CUDA if necessary. Needs no current context, unless VKGDR_OPEN_CURRENT_CONTEXT_BIT is given.
///
/// Fails, as vkgdr 0.1 does, on a GPU without mapped memory (VKGDR_ERROR_NOT_SUPPORTED). It also fails where Vulkan is missing or
/// does not know the GPU (VKGDR_ERROR_DRIVER_MISSING, VKGDR_ERROR_NO_DEVICE, VKGDR_ERROR_VULKAN). Programs can then fall back on
/// other memory. It does not fail where vkgdr_device_supports_existing() is true: CUDA allocates mapped memory there. With
/// VKGDR_OPEN_MAPPED_OPTIONAL_BIT it succeeds, unless coherent memory is required, and the GPU's other kinds can be used.
///
/// @param device  The CUDA device number; ignored with VKGDR_OPEN_CURRENT_CONTEXT_BIT.
/// @param flags   Of `enum vkgdr_open_flags`. Unknown bits are an error.
/// @return A handle for vkgdr_close(), or NULL: see vkgdr_last_error().
#[unsafe(no_mangle)]
pub extern "C" fn vkgdr_open(device: CUdevice, flags: u32) -> vkgdr_t {
    boundary::pointer(|| {
        let (flags, mapped_is_optional) = open_flags(flags);
        let opened = Vkgdr::open(device, flags)?;
        if !mapped_is_optional {
            opened.memory_type_of(MemoryKind::Mapped)?;
        }
        Ok(into_handle(opened))
    })
}

/// Opens a GPU and retains its primary context, which the CUDA runtime uses. Memory of this handle is allocated in that
/// context, and no context needs to be current.
///
/// @param device  The CUDA device number; ignored with VKGDR_OPEN_CURRENT_CONTEXT_BIT.
/// @param flags   Of `enum vkgdr_open_flags`. Unknown bits are an error.
/// @param out     Where the handle is written.
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `out` must be NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_open_primary_context(device: CUdevice, flags: u32, out: *mut vkgdr_t) -> i32 {
    // SAFETY: by this function's contract.
    unsafe { boundary::making(out, || Ok(into_handle(Vkgdr::open_primary_context(device, open_flags(flags).0)?))) }
}

/// Closes a handle. NULL is allowed. Memory that is still allocated stays valid.
///
/// @param g  The handle, which must not be used afterwards.
///
/// # Safety
///
/// `g` must be NULL or a handle that is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_close(g: vkgdr_t) {
    // SAFETY: from `into_handle`, and not used again.
    unsafe { boundary::close(g) };
}

/// The CUDA device number of a handle.
///
/// @param g    The GPU.
/// @param out  Where the result is written.
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `g` must be NULL or a live handle, `out` NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_device_get_number(g: vkgdr_t, out: *mut CUdevice) -> i32 {
    // SAFETY: by this function's contract.
    unsafe { boundary::answer(g, out, |gpu| Ok(gpu.inner.device())) }
}

/// The name of the GPU.
///
/// @param g         The GPU.
/// @param buffer    Where the name is written, with a terminating zero byte, truncated if it does not fit.
/// @param capacity  Bytes in `buffer`, at least 1. 256 are enough for every name.
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `g` must be NULL or a live handle, `buffer` NULL or good for writing `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_device_get_name(g: vkgdr_t, buffer: *mut c_char, capacity: usize) -> i32 {
    boundary::status(|| {
        // SAFETY: by this function's contract.
        let name = unsafe { handle(g) }?.inner.name();
        if buffer.is_null() {
            return Err(Failure::Null("buffer"));
        }
        let room = capacity.checked_sub(1).ok_or(Failure::Empty("buffer"))?;
        let len = name.len().min(room);
        // SAFETY: `len` is less than the capacity.
        unsafe { buffer.cast::<u8>().copy_from_nonoverlapping(name.as_ptr(), len) };
        // SAFETY: as above.
        unsafe { buffer.wrapping_add(len).write(0) };
        Ok(())
    })
}

/// The UUID of the GPU, the same in CUDA and Vulkan.
///
/// @param g     The GPU.
/// @param uuid  Where its 16 bytes are written.
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `g` must be NULL or a live handle, `uuid` NULL or good for writing 16 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_device_get_uuid(g: vkgdr_t, uuid: *mut u8) -> i32 {
    // SAFETY: by this function's contract.
    unsafe { boundary::answer(g, uuid.cast(), |gpu| Ok(gpu.inner.uuid())) }
}

/// Whether memory of a kind can be allocated.
///
/// The first question for a kind allocates one byte and frees it, since the drivers may refuse to share memory that they
/// list. It does that in the handle's primary context if retained, in the current context if that is the device's, else in
/// the device's primary context. It may wait for a running kernel. Running out of memory does not count as a no.
///
/// @param g     The GPU.
/// @param kind  Of `enum vkgdr_memory_flags`.
/// @param out   Where the answer is written.
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `g` must be NULL or a live handle, `out` NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_device_supports(g: vkgdr_t, kind: u32, out: *mut bool) -> i32 {
    // SAFETY: by this function's contract.
    unsafe { boundary::answer(g, out, |gpu| Ok(gpu.inner.supports(memory_kind(kind)?))) }
}

/// How much memory of a kind there is. The first call for a kind tries to allocate some, as vkgdr_device_supports() does.
///
/// @param g     The GPU.
/// @param kind  Of `enum vkgdr_memory_flags`.
/// @param out   Where the numbers are written, in bytes.
/// @return A `vkgdr_status`; VKGDR_ERROR_NOT_SUPPORTED if the GPU has no such memory, and for mapped memory without Vulkan the
///         status of vkgdr_open().
///
/// # Safety
///
/// `g` must be NULL or a live handle, `out` NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_device_get_memory_info(g: vkgdr_t, kind: u32, out: *mut vkgdr_memory_info) -> i32 {
    let ask = |gpu: &vkgdr| {
        let info = gpu.inner.memory_info(memory_kind(kind)?)?;
        let from_budget = info.source == MemoryInfoSource::Budget;
        Ok(vkgdr_memory_info { total: info.total, available: info.available, from_budget })
    };
    // SAFETY: by this function's contract.
    unsafe { boundary::answer(g, out, ask) }
}

/// Frees memory whose free was deferred behind work of a stream that has finished since. Every free of memory that is not
/// a pool's does the same for a few allocations. The driver frees memory only after running kernels have ended: do not call
/// this beside a kernel that waits for the calling thread. Memory whose free could not wait for its context, as during a
/// stream capture, is freed here, after a wait for that context.
///
/// @param g      The GPU.
/// @param count  Where the number of freed allocations is written; may be NULL.
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `g` must be NULL or a live handle, `count` NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_device_collect(g: vkgdr_t, count: *mut usize) -> i32 {
    boundary::status(|| {
        // SAFETY: by this function's contract.
        let freed = unsafe { handle(g) }?.inner.collect();
        // SAFETY: by this function's contract.
        if count.is_null() { Ok(()) } else { unsafe { boundary::put(count, freed) } }
    })
}

/// Waits for the device work that frees of this GPU's memory wait for (vkgdr_memory_free_on_stream()), and frees it. Call
/// it before destroying a context of cuCtxCreate(), or a Vulkan device that the program made. Three kinds of memory
/// remain. The first is memory whose free a stream capture has deferred, until vkgdr_device_collect() finds that it has
/// ended. The second is memory that another thread is waiting for. The third is that of freed rings, until the last ring
/// of their context is freed.
///
/// @param g  The GPU.
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `g` must be NULL or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_device_finish_deferred_frees(g: vkgdr_t) -> i32 {
    // SAFETY: by this function's contract.
    unsafe { boundary::run(g, |gpu| gpu.inner.finish_deferred_frees()) }
}

/// Sets how long an allocation that runs short waits for freed memory that the device still uses, before it fails: 1000 by
/// default. Pools wait as long for memory of theirs. Holds for this handle.
///
/// @param g             The GPU.
/// @param milliseconds  The longest wait; 0 where the calling thread feeds a kernel that does not end by itself.
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `g` must be NULL or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_device_set_shortage_timeout(g: vkgdr_t, milliseconds: u64) -> i32 {
    // SAFETY: by this function's contract.
    unsafe { boundary::run(g, |gpu| gpu.inner.set_shortage_timeout(Duration::from_millis(milliseconds))) }
}
