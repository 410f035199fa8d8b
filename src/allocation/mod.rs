//! One allocation, stage by stage: Vulkan memory with its host mapping, the exported file descriptor, the CUDA
//! import and its device mapping.
//!
//! Each stage is a value with `Drop` before the next call that can fail, so that a failure leaves nothing behind.
//! Contexts, and work that still uses the memory, are the callers' responsibility.

mod cuda;
#[cfg(test)]
mod shared_fd_tests;
mod shortage;
mod vulkan;

use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use ash::vk;
use cudarc::driver::sys::CUdeviceptr;

use crate::device::MemoryType;
use crate::driver::descriptor;
use crate::{Error, MemoryKind, Result, Vkgdr};
use cuda::{DeviceMapping, ExternalMemory};
use vulkan::DeviceMemory;
pub(crate) use vulkan::Exported;

/// The granularity of allocations in bytes: a cache line, which is also the size of the CPU's write-combining buffers.
/// Mapped memory starts at a line, since Vulkan's `minMemoryMapAlignment` is at least 64 (specification, "Required
/// Limits").
///
/// So no line holds bytes of two allocations, and a copy may load whole lines.
pub(crate) const LINE: usize = 64;

/// One allocation with all its stages. The order of the fields is the order of teardown.
#[derive(Debug)]
pub(crate) struct Allocation {
    device_mapping: DeviceMapping,
    external: ExternalMemory,
    memory: DeviceMemory,
    memory_type: MemoryType,
    kind: MemoryKind,
    len: usize,
    owner: Vkgdr,
}

impl Allocation {
    /// Allocates `len` bytes in the current context, which must be one of the owner's device.
    ///
    /// When a driver has run out of memory or descriptors, this waits for all deferred frees and tries once more.
    pub(crate) fn new(owner: &Vkgdr, len: usize, kind: MemoryKind) -> Result<Self> {
        Self::make(owner, len, kind, None).map_err(|error| shortage::explain(owner, error))
    }

    /// As [`new`](Self::new), for memory that was exported as a descriptor.
    pub(crate) fn import(owner: &Vkgdr, exported: &Exported, len: usize, kind: MemoryKind) -> Result<Self> {
        Self::make(owner, len, kind, Some(exported))
    }

    #[inline]
    fn make(owner: &Vkgdr, len: usize, kind: MemoryKind, exported: Option<&Exported>) -> Result<Self> {
        let deferred = owner.gpu().deferred_frees();
        deferred.poll();
        let memory_type = owner.memory_type(kind)?;
        let size = padded_size(len, kind, memory_type)?;
        let acquire = || Self::acquire(owner, len, size, kind, memory_type, exported);
        match acquire() {
            Err(error) if error.is_exhaustion() && deferred.drain() => acquire(),
            result => result,
        }
    }

    #[inline(never)]
    fn acquire(
        owner: &Vkgdr,
        len: usize,
        size: u64,
        kind: MemoryKind,
        memory_type: MemoryType,
        exported: Option<&Exported>,
    ) -> Result<Self> {
        let out_of = |error| with_sizes(error, kind, len, memory_type);
        let Some(counted) = owner.gpu().count_allocation() else {
            return Err(shortage(None, vk::Result::ERROR_TOO_MANY_OBJECTS, kind, len, memory_type));
        };
        let memory = match exported {
            None => DeviceMemory::allocate(counted, &memory_type, size),
            Some(exported) => DeviceMemory::import(counted, &memory_type, size, exported),
        };
        let mut memory = memory.map_err(out_of)?;
        if kind.has_host_view() {
            memory.map().map_err(out_of)?;
        }
        debug_assert!(memory.host_ptr().is_none_or(|pointer| pointer.addr().get().is_multiple_of(LINE)));
        // A driver need not export imported memory: its descriptor is duplicated.
        let fd = exported.map_or_else(|| memory.export(), Exported::duplicate)?;
        let external = ExternalMemory::import(fd, size)?;
        let device_mapping = DeviceMapping::map(&external, size)?;
        Ok(Self { device_mapping, external, memory, memory_type, kind, len, owner: owner.clone() })
    }

    /// A new descriptor of the memory.
    pub(crate) fn export(&self) -> Result<OwnedFd> {
        let fd = self.memory.export()?;
        descriptor::close_on_exec(&fd)?;
        Ok(fd)
    }

    /// Releases every stage in the current context, and keeps the handle, which may be what keeps the context alive. A
    /// failing stage does not stop the next; the first error is returned.
    #[inline]
    pub(crate) fn release(&mut self) -> Result<()> {
        let mapping = self.device_mapping.release();
        let external = self.external.release();
        self.memory.release();
        mapping?;
        external
    }

    /// Releases only Vulkan's stages, after CUDA released its own with the context.
    pub(crate) fn release_without_cuda(mut self) {
        self.device_mapping.abandon();
        self.external.abandon();
    }

    #[inline]
    pub(crate) fn owner(&self) -> &Vkgdr {
        &self.owner
    }

    #[inline]
    pub(crate) const fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// The requested bytes.
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) const fn memory_type(&self) -> &MemoryType {
        &self.memory_type
    }

    #[inline]
    pub(crate) const fn device_ptr(&self) -> CUdeviceptr {
        self.device_mapping.pointer()
    }

    #[inline]
    pub(crate) fn host_ptr(&self) -> Option<NonNull<u8>> {
        self.memory.host_ptr()
    }

    /// Makes the CPU's writes to a range of bytes visible to the device. The range must lie within the
    /// allocation.
    pub(crate) fn flush(&self, offset: usize, len: usize) -> Result<()> {
        self.memory.flush(self.atoms(offset, len))
    }

    /// Makes the device's writes to a range of bytes visible to the CPU. The range must lie within the
    /// allocation.
    pub(crate) fn invalidate(&self, offset: usize, len: usize) -> Result<()> {
        self.memory.invalidate(self.atoms(offset, len))
    }

    /// The atoms that cover a range, as offset and size. The allocation is whole atoms, see [`padded_size`].
    fn atoms(&self, offset: usize, len: usize) -> (u64, u64) {
        let atom = self.memory_type.atom as u64;
        let (start, end) = (offset as u64, (offset + len) as u64);
        let start = start - start % atom;
        (start, end.next_multiple_of(atom) - start)
    }
}

/// The bytes that are requested from Vulkan: whole atoms, so that a flush that is rounded outwards stays within the
/// memory, and whole lines. Both are powers of two.
pub(crate) fn padded_size(len: usize, kind: MemoryKind, memory_type: MemoryType) -> Result<u64> {
    if len == 0 {
        return Err(Error::ZeroSize { kind });
    }
    let last = memory_type.granularity.max(LINE) as u64 - 1;
    let size = (len as u64).checked_add(last).map(|end| end & !last);
    // Vulkan does not define a size beyond the heap (VUID-vkAllocateMemory-pAllocateInfo-01713), and a slice
    // cannot be longer than `isize::MAX`.
    match size {
        Some(size) if size <= memory_type.info.heap_size && isize::try_from(size).is_ok() => Ok(size),
        _ => Err(shortage(None, vk::Result::ERROR_OUT_OF_DEVICE_MEMORY, kind, len, memory_type)),
    }
}

/// The error for a shortage: of the Vulkan call `operation`, or without a call.
#[cold]
fn shortage(
    operation: Option<&'static str>,
    code: vk::Result,
    kind: MemoryKind,
    len: usize,
    memory_type: MemoryType,
) -> Error {
    let (asked, heap) = (len as u64, memory_type.info.heap_size);
    Error::Allocation { operation, code, kind, asked, heap, free: None, others: Vec::new() }
}

/// Adds the sizes to a Vulkan error that means a shortage of memory or address space.
#[cold]
fn with_sizes(error: Error, kind: MemoryKind, len: usize, memory_type: MemoryType) -> Error {
    match error {
        Error::Vulkan { operation, code } if error.is_exhaustion() => {
            shortage(Some(operation), code, kind, len, memory_type)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryTypeInfo;

    fn memory_type(granularity: usize) -> MemoryType {
        let flags = vk::MemoryPropertyFlags::HOST_VISIBLE;
        let info = MemoryTypeInfo { index: 0, heap: 0, heap_size: 1 << 30, flags };
        MemoryType { info, coherent: true, cached: false, atom: 1, granularity }
    }

    #[test]
    fn sizes_are_padded_to_whole_atoms_and_lines() {
        for (len, atom, size) in [
            (1, 1, 64),
            (1, 64, 64),
            (64, 64, 64),
            (65, 1, 128),
            (4097, 64, 4160),
            (1, 256, 256),
            (1 << 30, 64, 1 << 30),
        ] {
            let padded = padded_size(len, MemoryKind::Mapped, memory_type(atom));
            assert!(matches!(padded, Ok(s) if s == size), "{len} bytes, atom {atom}: {padded:?}");
        }
    }

    #[test]
    fn impossible_sizes_are_refused_before_the_driver_is_called() {
        let refuse = |len| padded_size(len, MemoryKind::Mapped, memory_type(64));
        assert!(matches!(refuse(0), Err(Error::ZeroSize { .. })));
        for len in [(1 << 30) + 1, 1_000_000_000_000_000, isize::MAX as usize, usize::MAX] {
            let error = refuse(len).map_err(|e| e.to_string());
            assert!(error.as_ref().is_err_and(|e| e.contains("VK_ERROR_OUT_OF_DEVICE_MEMORY")), "{len}: {error:?}");
            assert!(error.is_err_and(|e| !e.contains("vkAllocateMemory")), "{len}: names a call that was not made");
        }
    }
}
