//! The flags of [`Vkgdr::open`](crate::Vkgdr::open) and the kinds of memory.
#![forbid(unsafe_code)]

use std::fmt;

use crate::{Error, Result};

bitflags::bitflags! {
    /// Options for opening a handle. The values are those of vkgdr 0.1's `enum vkgdr_open_flags`.
    ///
    /// A bit that is not listed here is refused with [`Error::UnknownFlags`].
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct OpenFlags: u32 {
        /// Ignore the device number and use the device of the context that is current on the calling thread.
        const CURRENT_CONTEXT = 1;
        /// Treat memory as non-coherent even where it is coherent: flush and invalidate of a range that is not
        /// empty reach the driver, except those of host memory that does not come from Vulkan, which call nothing. For
        /// testing that a program flushes where it must. `Device` memory, which has no host view, stays coherent.
        const FORCE_NON_COHERENT = 2;
        /// Use only memory types that are coherent, so that flush and invalidate need not reach the driver.
        /// `flush` still orders write-combined stores, which a kernel that is already running needs. Together with
        /// `FORCE_NON_COHERENT` a coherent type is chosen and treated as non-coherent.
        const REQUIRE_COHERENT = 4;
    }
}

impl OpenFlags {
    /// The flags, if every bit is known.
    pub(crate) fn checked(self) -> Result<Self> {
        let unknown = self.bits() & !Self::all().bits();
        if unknown == 0 { Ok(self) } else { Err(Error::UnknownFlags { bits: unknown }) }
    }
}

bitflags::bitflags! {
    /// How the CPU maps memory that others allocated ([`Mapping`](crate::Mapping)).
    ///
    /// A bit that is not listed here is refused with [`Error::UnknownFlags`].
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct MappingFlags: u32 {
        /// Through the PCIe BAR, write-combined, also on platforms where the CPU could cache the memory
        /// (`CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE`).
        const FORCE_PCIE = 1;
    }
}

impl MappingFlags {
    /// The flags, if every bit is known.
    pub(crate) fn checked(self) -> Result<Self> {
        let unknown = self.bits() & !Self::all().bits();
        if unknown == 0 { Ok(self) } else { Err(Error::UnknownFlags { bits: unknown }) }
    }
}

/// Where memory is located, and which side can access it.
///
/// | kind | Vulkan memory type | CPU | GPU | for |
/// |---|---|---|---|---|
/// | `Mapped` | device-local and host-visible | through the PCIe BAR: fast writes, slow reads | at full speed | data that the CPU writes and the GPU uses |
/// | `Host` | host-visible and host-cached | at full speed | over PCIe | results and flags that the CPU polls |
/// | `Device` | device-local, not host-visible where such a type exists | no view | at full speed | scratch space |
///
/// Without Vulkan there is no `Mapped` memory, unless the CPU can map CUDA's own
/// ([`Vkgdr::supports_existing`](crate::Vkgdr::supports_existing)), and `Device` memory comes from `cuMemAlloc`: it cannot be exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum MemoryKind {
    /// Video memory that the CPU accesses through the PCIe BAR. The default, and the only kind in vkgdr 0.1.
    #[default]
    Mapped,
    /// Cached system memory that the GPU accesses over PCIe.
    ///
    /// It is Vulkan's, unless a driver refuses to share that with CUDA, or there is no Vulkan, or Vulkan has no such type.
    /// Then it is pages of an anonymous file (memfd) that are registered with CUDA (`cuMemHostRegister`), for all
    /// allocations of the GPU from the first refusal on. Either is shared by [`export_fd`](crate::Memory::export_fd). A
    /// registered page may have the same host and device address.
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
