//! [`vkgdr_memory_flags`]: kind, fallbacks and dma-buf of an allocation.
#![forbid(unsafe_code)]

use vkgdr_rs::{AllocateOptions, Error, MemoryKind};

use crate::errors::Outcome;

/// Flags for vkgdr_memory_alloc(): one kind, and kinds to fall back on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub enum vkgdr_memory_flags {
    /// GPU memory that the CPU accesses through the PCIe BAR: the memory of vkgdr 0.1. Vulkan allocates it; without Vulkan, or
    /// beyond its heap, CUDA does, where vkgdr_device_supports_existing() is true. Such memory has no
    /// vkgdr_memory_get_vulkan_memory(), and vkgdr_memory_send() refuses it.
    VKGDR_MEMORY_MAPPED = 0,
    /// Cached system memory that the GPU accesses over PCIe.
    VKGDR_MEMORY_HOST = 1,
    /// GPU memory without a host view.
    VKGDR_MEMORY_DEVICE = 2,
    /// For vkgdr_memory_alloc(), by bitwise or: host memory if there is no memory of the kind, or not enough. Then
    /// vkgdr_memory_get_kind() tells which it is. Not in vkgdr 0.1, and far from the bits that its successors may use.
    VKGDR_MEMORY_OR_HOST_BIT = 0x0100_0000,
    /// The same with device memory, after host memory if both bits are set.
    VKGDR_MEMORY_OR_DEVICE_BIT = 0x0200_0000,
    /// For vkgdr_memory_alloc(), by bitwise or with VKGDR_MEMORY_MAPPED or VKGDR_MEMORY_DEVICE: memory that network cards
    /// can register, by vkgdr_memory_get_dma_buf(). CUDA allocates it, and mapped memory needs what
    /// vkgdr_device_supports_existing() tells. With VKGDR_MEMORY_HOST it is an error: network cards register host memory by
    /// its host pointer. With this bit, VKGDR_MEMORY_OR_HOST_BIT has no effect.
    VKGDR_MEMORY_DMA_BUF_BIT = 0x0400_0000,
}

/// The options that the flags of an allocation stand for.
pub(crate) fn options(flags: u32) -> Outcome<AllocateOptions> {
    const HOST: u32 = vkgdr_memory_flags::VKGDR_MEMORY_OR_HOST_BIT as u32;
    const DEVICE: u32 = vkgdr_memory_flags::VKGDR_MEMORY_OR_DEVICE_BIT as u32;
    const DMA_BUF: u32 = vkgdr_memory_flags::VKGDR_MEMORY_DMA_BUF_BIT as u32;
    let others = [(HOST, MemoryKind::Host), (DEVICE, MemoryKind::Device)];
    let asked = others.into_iter().filter(|(bit, _)| flags & bit != 0).map(|(_, kind)| kind);
    let options = AllocateOptions::new(kind(flags & !(HOST | DEVICE | DMA_BUF))?).fallback(asked);
    Ok(if flags & DMA_BUF == 0 { options } else { options.with_dma_buf() })
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
