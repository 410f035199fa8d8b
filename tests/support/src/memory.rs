//! Opening device 0, and reading and writing memory from either side.

use std::os::fd::OwnedFd;

use cudarc::driver::sys::{CUdeviceptr, CUstream};
use vkgdr::{
    CopyPtr, Error, Extent, MappingFlags, Memory, MemoryKind, MemoryTypeInfo, OpenFlags, PitchedPtr, RawMemory, Vkgdr,
};

use crate::Result;
use crate::cuda::{self, PrimaryContext, Stream};

/// The kinds of memory with a host view.
pub const HOST_VIEWS: [MemoryKind; 2] = [MemoryKind::Mapped, MemoryKind::Host];

/// Opens device 0, with its primary context current on this thread. Destructure the result as `(_context, gpu)`: the
/// context must be dropped last.
///
/// # Errors
/// Those of [`Vkgdr::open`].
#[track_caller]
pub fn open(flags: OpenFlags) -> Result<(PrimaryContext, Vkgdr)> {
    let context = PrimaryContext::retain_and_push(0);
    Ok((context, Vkgdr::open(0, flags)?))
}

/// Like [`open`], with coherent mapped memory; `None`, with a message, if the GPU has no such memory.
///
/// # Errors
/// Those of [`Vkgdr::open`], except for the lack of coherent memory.
#[track_caller]
pub fn open_coherent() -> Result<Option<(PrimaryContext, Vkgdr)>> {
    let context = PrimaryContext::retain_and_push(0);
    match Vkgdr::open(0, OpenFlags::REQUIRE_COHERENT) {
        Ok(gpu) => Ok(Some((context, gpu))),
        Err(error @ Error::NoSuitableMemoryType { .. }) => {
            eprintln!("left out: {error}");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// The supported members of `kinds`. The others are printed as left out.
pub fn supported(gpu: &Vkgdr, kinds: &[MemoryKind]) -> Vec<MemoryKind> {
    let (has, lacks): (Vec<_>, Vec<_>) = kinds.iter().partition(|kind| gpu.supports(**kind));
    for kind in lacks {
        eprintln!("left out: {} has no {kind} memory", gpu.name());
    }
    has
}

/// The supported members of `kinds` whose memory CUDA imports from Vulkan. The others are printed as left out.
pub fn imported(gpu: &Vkgdr, kinds: &[MemoryKind]) -> Vec<MemoryKind> {
    let mut kinds = supported(gpu, kinds);
    kinds.retain(|&kind| {
        is_imported(gpu, kind) || {
            eprintln!("left out: {kind} memory of {} is not Vulkan's", gpu.name());
            false
        }
    });
    kinds
}

/// Whether a kind is supported, by memory that CUDA imports from Vulkan.
#[must_use]
pub fn is_imported(gpu: &Vkgdr, kind: MemoryKind) -> bool {
    let is_vulkans = |found: MemoryTypeInfo| found.index != MemoryTypeInfo::OUTSIDE_VULKAN;
    gpu.supports(kind) && gpu.memory_type_of(kind).is_ok_and(is_vulkans)
}

/// The bytes that the device sees.
#[track_caller]
#[must_use]
pub fn device_read(pointer: CUdeviceptr, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    cuda::memcpy_dtoh(&mut bytes, pointer);
    bytes
}

/// The bytes that the CPU sees in a range, after an invalidate.
///
/// # Errors
/// Those of [`Memory::invalidate`] and [`Memory::read`].
pub fn host_read(memory: &Memory, offset: usize, len: usize) -> Result<Vec<u8>> {
    memory.invalidate(offset..offset + len)?;
    let mut bytes = vec![0; len];
    memory.read(offset, &mut bytes)?;
    Ok(bytes)
}

/// Writes by the CPU, and flushes.
///
/// # Errors
/// Those of [`Memory::write`] and [`Memory::flush`].
pub fn host_write(memory: &Memory, offset: usize, bytes: &[u8]) -> Result {
    memory.write(offset, bytes)?;
    Ok(memory.flush(offset..offset + bytes.len())?)
}

/// The memory that contains an address, for tests: none of them has lent its bytes exclusively.
#[must_use]
#[expect(unsafe_code, reason = "makes an alias")]
pub fn memory_of(address: u64) -> Option<(Memory, usize)> {
    // SAFETY: tests have no exclusive references to the bytes.
    unsafe { vkgdr::memory_of(address) }
}

/// Frees raw memory, for tests: no device work is pending, and no pointer is used afterwards.
///
/// # Errors
/// Those of [`RawMemory::free`].
#[expect(unsafe_code, reason = "by this function's description")]
pub fn free(memory: &mut RawMemory) -> vkgdr::Result<()> {
    // SAFETY: by this function's description.
    unsafe { memory.free() }
}

/// Binds memory to a stream, which the test keeps until the memory was freed.
///
/// # Errors
/// Those of [`Memory::bind_raw_stream`].
#[track_caller]
#[expect(unsafe_code, reason = "the test keeps the stream")]
pub fn bind(memory: &Memory, stream: &Stream) -> vkgdr::Result<()> {
    // SAFETY: by this function's description.
    unsafe { memory.bind_raw_stream(stream.raw()) }
}

/// Records a use by a stream of the memory's context, which the test keeps until the memory was freed.
///
/// # Errors
/// Those of [`Memory::stream`] and [`Memory::record_use`].
#[expect(unsafe_code, clippy::not_unsafe_ptr_arg_deref, reason = "the test keeps the stream")]
pub fn record_use(memory: &Memory, stream: CUstream) -> Result {
    // SAFETY: by this function's description.
    Ok(memory.record_use(unsafe { memory.stream(stream) }?)?)
}

/// Maps memory that others allocated, for tests: they have no references to its bytes.
///
/// # Errors
/// Those of [`Memory::map_existing`].
#[expect(unsafe_code, reason = "makes an alias")]
pub fn map_existing(gpu: &Vkgdr, address: CUdeviceptr, len: usize, flags: MappingFlags) -> vkgdr::Result<Memory> {
    // SAFETY: plain bytes that the test frees after the mapping.
    unsafe { Memory::map_existing_with(gpu, address, len, flags) }
}

/// Imports a descriptor of memory, which was exported from `of` or from an import of it.
///
/// # Errors
/// Those of [`Memory::import_fd`].
#[track_caller]
#[expect(unsafe_code, reason = "the descriptor is that memory's")]
pub fn import(gpu: &Vkgdr, fd: OwnedFd, of: &Memory) -> vkgdr::Result<Memory> {
    // SAFETY: exported on the same GPU from memory of this kind and length.
    unsafe { Memory::import_fd(gpu, fd, of.len(), of.kind()) }
}

/// One side of a copy of a [`row`].
#[must_use]
pub const fn linear(ptr: CopyPtr) -> PitchedPtr {
    PitchedPtr { ptr, row_pitch: 0, slice_pitch: 0 }
}

/// `len` bytes in one row.
#[must_use]
pub const fn row(len: usize) -> Extent {
    Extent { width: len, height: 1, depth: 1 }
}
