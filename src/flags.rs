//! The flags of [`Vkgdr::open`](crate::Vkgdr::open) and [`Memory::map_existing`](crate::Memory::map_existing).
#![forbid(unsafe_code)]

use crate::{Error, Result};

bitflags::bitflags! {
    /// Options for opening a handle. The values are those of vkgdr 0.1's `enum vkgdr_open_flags`.
    ///
    /// A bit that is not listed here is refused with [`Error::UnknownFlags`].
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct OpenFlags: u32 {
        /// Ignore the device number and use the device of the context that is current on the calling thread.
        const CURRENT_CONTEXT = 1;
        /// Treat memory as non-coherent even where it is coherent: flush and invalidate of a range that is not empty
        /// reach the driver. Those of memory that does not come from Vulkan call nothing. For testing that a program
        /// flushes where it must. `Device` memory, which has no host view, stays coherent.
        const FORCE_NON_COHERENT = 2;
        /// Use only memory types that are coherent, so that flush and invalidate need not reach the driver.
        /// `flush` still orders write-combined stores, which a kernel that is already running needs. Together with
        /// `FORCE_NON_COHERENT` a coherent type is chosen and treated as non-coherent.
        const REQUIRE_COHERENT = 4;
    }
}

bitflags::bitflags! {
    /// How the CPU maps memory that others allocated ([`Memory::map_existing`](crate::Memory::map_existing)).
    ///
    /// A bit that is not listed here is refused with [`Error::UnknownFlags`].
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct MappingFlags: u32 {
        /// Through the PCIe BAR, write-combined, also on platforms where the CPU could cache the memory
        /// (`CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE`).
        const FORCE_PCIE = 1;
    }
}

/// The flags, if every bit is known.
pub(crate) fn checked<F: bitflags::Flags<Bits = u32>>(flags: F) -> Result<F> {
    let unknown = flags.bits() & !F::all().bits();
    if unknown == 0 { Ok(flags) } else { Err(Error::UnknownFlags { bits: unknown }) }
}
