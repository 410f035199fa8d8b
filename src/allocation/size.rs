//! [`padded_size`]: the size that is requested from the drivers, in whole atoms and cache lines ([`LINE`]).
#![forbid(unsafe_code)]

use ash::vk;

use super::shortage::shortage;
use crate::device::MemoryType;
use crate::{Error, MemoryKind, Result};

/// The granularity of allocations in bytes: a cache line, which is also the size of the CPU's write-combining buffers.
/// Mapped memory starts at a line, since Vulkan's `minMemoryMapAlignment` is at least 64 (specification, "Required
/// Limits").
///
/// So no line holds bytes of two allocations, and a copy may load whole lines.
pub(crate) const LINE: usize = 64;

/// The bytes that are requested: whole atoms, so that a flush that is rounded outwards stays within the
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryTypeInfo;
    use crate::device::Source;

    fn memory_type(granularity: usize) -> MemoryType {
        let flags = vk::MemoryPropertyFlags::HOST_VISIBLE;
        let info = MemoryTypeInfo { index: 0, heap: 0, heap_size: 1 << 30, flags };
        MemoryType { source: Source::Vulkan, info, coherent: true, cached: false, atom: 1, granularity }
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
