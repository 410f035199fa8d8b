//! The kinds of memory, as C flags.
#![forbid(unsafe_code)]

use vkgdr_rs::{Error, MemoryKind};

use crate::failure::Outcome;

/// Flags for vkgdr_memory_alloc(): one kind.
#[expect(non_camel_case_types, reason = "C's spelling")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub enum vkgdr_memory_flags {
    /// GPU memory that the CPU accesses through the PCIe BAR: the memory of vkgdr 0.1.
    VKGDR_MEMORY_MAPPED = 0,
    /// Cached system memory that the GPU accesses over PCIe.
    VKGDR_MEMORY_HOST = 1,
    /// GPU memory without a host view.
    VKGDR_MEMORY_DEVICE = 2,
}

/// The kind that the flags stand for.
pub(crate) fn kind(flags: u32) -> Outcome<MemoryKind> {
    match flags {
        0 => Ok(MemoryKind::Mapped),
        1 => Ok(MemoryKind::Host),
        2 => Ok(MemoryKind::Device),
        // Three is two kinds at once.
        3 => Err(Error::UnknownFlags { bits: 3 }.into()),
        _ => Err(Error::UnknownFlags { bits: flags & !3 }.into()),
    }
}
