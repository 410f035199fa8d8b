//! [`NoMapping`]: why existing memory has no host view.
#![forbid(unsafe_code)]

/// Why the CPU cannot map memory that CUDA allocated for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoMapping {
    /// The driver is too old.
    #[error(
        "the driver supports CUDA {}.{}, and mapping existing memory needs CUDA 13.3 (driver R610); {INSTEAD}",
        version / 1000, version % 1000 / 10
    )]
    Driver {
        /// The version that the driver reports, such as 13000 for CUDA 13.0.
        version: i32,
    },
    /// The GPU does not export its memory (`CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED` is 0 or unknown).
    #[error("CUDA device {device} exports no dma-buf (device attribute 124 is 0 or unknown); {INSTEAD}")]
    NoExport {
        /// The device.
        device: i32,
    },
    /// The CPU cannot map what the GPU exports (`CU_DEVICE_ATTRIBUTE_DMA_BUF_MMAP_SUPPORTED` is 0 or unknown).
    #[error("the CPU cannot map a dma-buf of CUDA device {device} (device attribute 152 is 0 or unknown); {INSTEAD}")]
    NoMmap {
        /// The device.
        device: i32,
    },
    /// The driver knows no memory at the address.
    #[error("the driver knows no memory there: it was freed, or is not CUDA's")]
    Unknown,
    /// It is host memory, which the CPU accesses by its own pointer.
    #[error("it is host memory: the CPU uses its own pointer to it")]
    Host,
    /// It is managed memory, whose address is valid for the CPU, too.
    #[error("it is managed memory: the CPU uses the same address")]
    Managed,
    /// It is memory of another device.
    #[error("it is memory of CUDA device {device}, the handle is on device {expected}: open that device")]
    OtherDevice {
        /// The device of the memory.
        device: i32,
        /// The device of the handle.
        expected: i32,
    },
    /// The memory was freed after it had been mapped.
    #[error("the memory was freed after it had been mapped")]
    Freed,
    /// A range of no bytes.
    #[error("the range is empty")]
    Empty,
}

/// The alternatives.
const INSTEAD: &str = "allocate mapped memory with this library, or copy by the GPU";
