//! [`MemoryKind`]: where memory is located.
#![forbid(unsafe_code)]

use std::fmt;

/// Where memory is located, and which side can access it.
///
/// | kind | from | CPU | GPU | for |
/// |---|---|---|---|---|
/// | `Mapped` | Vulkan: device-local and host-visible | through the PCIe BAR: fast writes, slow reads | at full speed | data that the CPU writes and the GPU uses |
/// | `Host` | a memfd, registered with CUDA | at full speed | over PCIe | results and flags that the CPU polls |
/// | `Device` | Vulkan: device-local, not host-visible where such a type exists | no view | at full speed | scratch space |
///
/// Without Vulkan there is no `Mapped` memory, unless the CPU can map CUDA's own
/// ([`Vkgdr::supports_existing`](crate::Vkgdr::supports_existing)), and `Device` memory comes from `cuMemAlloc`: it cannot be
/// exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum MemoryKind {
    /// Video memory that the CPU accesses through the PCIe BAR. The default, and the only kind in vkgdr 0.1.
    ///
    /// Vulkan allocates it. Without Vulkan, or beyond its heap, CUDA does, where the CPU can map that
    /// ([`Vkgdr::supports_existing`](crate::Vkgdr::supports_existing)). Such memory cannot be exported by
    /// [`export_fd`](crate::Memory::export_fd), and has no `VkDeviceMemory`.
    #[default]
    Mapped,
    /// Cached system memory that the GPU accesses over PCIe.
    ///
    /// It consists of pages of an anonymous file (memfd) that are registered with CUDA (`cuMemHostRegister`), and needs no Vulkan.
    /// [`export_fd`](crate::Memory::export_fd) shares the file. A page may have the same host and device address.
    Host,
    /// Video memory without a host view.
    Device,
}

impl MemoryKind {
    /// Every kind, in the order of the table above.
    pub const ALL: [Self; 3] = [Self::Mapped, Self::Host, Self::Device];

    /// Whether memory of this kind has a host pointer.
    #[must_use]
    pub const fn has_host_view(self) -> bool {
        !matches!(self, Self::Device)
    }
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Mapped => "mapped",
            Self::Host => "host",
            Self::Device => "device",
        })
    }
}
