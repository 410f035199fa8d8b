//! Host views of CUDA memory that others allocated, and descriptors of memory for network cards.
#![expect(unsafe_code, reason = "exports C symbols")]

use std::ffi::c_int;
use std::os::fd::IntoRawFd;

use vkgdr_rs::{MappingFlags, Memory};

use crate::CUdeviceptr;
use crate::boundary::{self, handle, put, required};
use crate::handle::vkgdr_t;
use crate::memory_handle::{existing, vkgdr_memory_t};

/// Flags for vkgdr_map_existing(), combined by bitwise or.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub enum vkgdr_map_flags {
    /// Map through the PCIe BAR, write-combined, also on platforms where the CPU could cache the memory.
    VKGDR_MAP_FORCE_PCIE_BIT = 1,
}

/// A descriptor that a network card can register, and the place of memory in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct vkgdr_dma_buf {
    /// The descriptor, a dma-buf, for close(). It keeps the pages alive.
    pub fd: c_int,
    /// Where the memory begins in the dma-buf, in bytes.
    pub offset: u64,
    /// The bytes of the memory.
    pub size: usize,
}

/// Whether vkgdr_map_existing() works on a GPU: the driver supports CUDA 13.3 (R610) and the GPU allows it. Needs no current
/// context.
///
/// @param g    The GPU.
/// @param out  Where the answer is written.
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `g` must be NULL or a live handle, `out` NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_device_supports_existing(g: vkgdr_t, out: *mut bool) -> i32 {
    // SAFETY: by this function's contract.
    unsafe { boundary::answer(g, out, |gpu| Ok(gpu.inner.supports_existing()?)) }
}

/// Maps CUDA memory that others allocated for the CPU, such as that of cudaMalloc().
///
/// The result can do what memory of vkgdr_memory_alloc() can, apart from vkgdr_memory_send(), streams, vkgdr_find() and
/// vkgdr_memory_free_at(); vkgdr_memory_free() ends the mapping. A context must be current as for vkgdr_memory_alloc(). Memory of
/// this library that has a host pointer needs no mapping, on any GPU: the result is a region of it, which keeps it alive.
///
/// Other memory is not kept alive, and the mapping is not told when that is freed: end the mapping first. Afterwards the
/// CPU still sees the old pages, and copies by the GPU's copy engine use the address, whatever is there; see
/// vkgdr_memory_is_current().
///
/// @param g           The GPU.
/// @param device_ptr  The address of the first byte.
/// @param size        Bytes, more than 0, all in one allocation. Whole pages of 64 KiB around them are mapped,
///                    of an allocation up to 32 MiB all.
/// @param flags       Of `enum vkgdr_map_flags`; 0 for none. Unknown bits are an error.
/// @param out         Where the result is written; for vkgdr_memory_free().
/// @return A `vkgdr_status`: VKGDR_ERROR_NOT_SUPPORTED where vkgdr_device_supports_existing() says no, and for memory that the
///         driver does not export, as that of cuMemAllocAsync(). VKGDR_ERROR_OUT_OF_RANGE for bytes beyond the allocation,
///         VKGDR_ERROR_NO_DEVICE for another GPU's memory. VKGDR_ERROR_INVALID_ARGUMENT for an address without device memory,
///         and for host and managed memory, which need no view.
///
/// # Safety
///
/// `g` must be NULL or a live handle, `out` NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_map_existing(
    g: vkgdr_t,
    device_ptr: CUdeviceptr,
    size: usize,
    flags: u32,
    out: *mut vkgdr_memory_t,
) -> i32 {
    let map = || {
        // SAFETY: by this function's contract.
        let gpu = &unsafe { handle(g) }?.inner;
        let flags = MappingFlags::from_bits_retain(flags);
        // SAFETY: an alias of what others use, as all memory is in C.
        Ok(existing(unsafe { Memory::map_existing_with(gpu, device_ptr, size, flags) }?))
    };
    // SAFETY: by this function's contract.
    unsafe { boundary::making(out, map) }
}

/// Whether existing memory is still the one that was mapped: false once it was freed, also if other memory has its address.
/// Always true for memory of this library.
///
/// @param mem  The memory, or a region of it.
/// @param out  Where the answer is written.
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `mem` must be NULL or live, `out` NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_is_current(mem: vkgdr_memory_t, out: *mut bool) -> i32 {
    // SAFETY: by this function's contract.
    unsafe { boundary::answer(mem, out, |mem| Ok(mem.memory.is_current()?)) }
}

/// Creates a descriptor of memory that a network card can register: the arguments of ibv_reg_dmabuf_mr().
///
/// For memory that CUDA allocated: with VKGDR_MEMORY_DMA_BUF_BIT, mapped and device memory without Vulkan, and that of
/// vkgdr_map_existing(). End the registration before the memory is freed.
///
/// @param mem  The memory, or a region of it.
/// @param out  Where the descriptor and the place of the memory in it are written.
/// @return A `vkgdr_status`; VKGDR_ERROR_NOT_SUPPORTED for other memory.
///
/// # Safety
///
/// `mem` must be NULL or live, `out` NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_get_dma_buf(mem: vkgdr_memory_t, out: *mut vkgdr_dma_buf) -> i32 {
    boundary::opening(|| {
        required(out)?;
        // SAFETY: by this function's contract.
        let dma_buf = unsafe { handle(mem) }?.memory.dma_buf()?;
        let (offset, size) = (dma_buf.offset, dma_buf.len);
        // SAFETY: by this function's contract.
        unsafe { put(out, vkgdr_dma_buf { fd: dma_buf.fd.into_raw_fd(), offset, size }) }
    })
}
