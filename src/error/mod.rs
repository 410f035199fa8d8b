//! The error type: the operation that failed, the driver's code, the numbers involved and, where known, the remedy.
#![forbid(unsafe_code)]

mod class;
mod cuda_code;
mod hint;
mod no_mapping;
mod refusal;
mod text;

use std::fmt;

use ash::vk;

use crate::MemoryKind;
pub use cuda_code::CudaCode;
pub use no_mapping::NoMapping;
pub use refusal::Refusal;
pub(crate) use text::Uuid;
use text::{Count, Hint, MemoryAt, Room, Shortage, VulkanToken};

/// The result of every operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed.
///
/// The text names the operation and the driver's token, for example
/// `cuCtxGetDevice failed (CUDA_ERROR_INVALID_CONTEXT): …`.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A driver's library is missing.
    #[error("{library} could not be loaded ({reason}): {}", hint::library(library))]
    Library {
        /// The library's file name.
        library: &'static str,
        /// The dynamic loader's message.
        reason: String,
    },
    /// A driver's library lacks a function.
    #[error("{library} has no function {symbol}: install a newer NVIDIA driver")]
    Symbol {
        /// The library's file name.
        library: &'static str,
        /// The missing function.
        symbol: &'static str,
    },
    /// The Vulkan device lacks an extension.
    #[error("Vulkan device {device} has no {extension}: install a newer NVIDIA driver")]
    Extension {
        /// The device's name.
        device: String,
        /// The missing extension.
        extension: &'static str,
    },
    /// A CUDA driver call failed.
    #[error("{operation} failed ({code}){}", Hint(hint::cuda(operation, *code)))]
    Cuda {
        /// The CUDA driver function.
        operation: &'static str,
        /// The code that it returned.
        code: CudaCode,
    },
    /// A Vulkan call failed.
    #[error("{operation} failed ({}){}", VulkanToken(*code), Hint(hint::vulkan(operation, *code)))]
    Vulkan {
        /// The Vulkan function.
        operation: &'static str,
        /// The code that it returned.
        code: vk::Result,
    },
    /// Memory could not be allocated or mapped for the CPU: memory or address space is short, or there are too many
    /// allocations.
    #[error(
        "{}{}{}",
        Shortage { operation: *operation, code: *code, kind: *kind, asked: *asked, heap: *heap },
        Room { free: *free, heap: *heap, others },
        hint::exhaustion(*code, *kind, *asked, *heap, *free)
    )]
    Allocation {
        /// The Vulkan function that failed. `None` if the request was refused without a call, because Vulkan leaves its effect
        /// undefined: a size beyond the heap, or more live allocations than the device's limit.
        operation: Option<&'static str>,
        /// The function's result, or the Vulkan result that names the reason of a refusal.
        code: vk::Result,
        /// The kind of memory.
        kind: MemoryKind,
        /// Bytes requested.
        asked: u64,
        /// Bytes in the memory heap of that kind.
        heap: u64,
        /// Free bytes of the heap by the driver's budget, if they would have been enough: the BAR is full or fragmented.
        free: Option<u64>,
        /// If `free` is some, the other kinds of memory that the GPU has.
        others: Vec<MemoryKind>,
    },
    /// A Vulkan device that the program made cannot be used.
    #[error("the program's Vulkan device ({device}) cannot be used: {reason}")]
    UnsuitableDevice {
        /// The device's name.
        device: String,
        /// The reason and its remedy.
        reason: &'static str,
    },
    /// No CUDA device has the UUID of a Vulkan device that the program made.
    #[error(
        "the program's Vulkan device ({device}) is no CUDA device: none of CUDA's {devices} has its UUID {}", Uuid(*uuid)
    )]
    NoCudaDevice {
        /// The Vulkan device's name.
        device: String,
        /// Its UUID.
        uuid: [u8; 16],
        /// The number of CUDA devices.
        devices: i32,
    },
    /// No Vulkan device has the CUDA device's UUID.
    #[error("no Vulkan device matching the CUDA device found: CUDA device {device} has UUID {}, {found}", Uuid(*uuid))]
    NoMatchingDevice {
        /// The CUDA device.
        device: i32,
        /// Its UUID.
        uuid: [u8; 16],
        /// The Vulkan devices that were found, as text.
        found: String,
    },
    /// Vulkan does not know the GPU.
    #[error("{error}; {cause}")]
    NoVulkan {
        /// The Vulkan loader's error: [`Error::Library`], [`Error::Vulkan`] or [`Error::NoMatchingDevice`].
        error: Box<Error>,
        /// The most probable cause by what was found on the system, with its remedy.
        cause: String,
    },
    /// The GPU has no memory type for a kind of memory.
    #[error(
        "Vulkan device does not provide a suitable memory type: {device} has no {kind} memory ({wanted}){}",
        Hint(hint::memory_type(*kind, wanted))
    )]
    NoSuitableMemoryType {
        /// The Vulkan device's name.
        device: String,
        /// The kind that was requested.
        kind: MemoryKind,
        /// The property flags that are required.
        wanted: String,
    },
    /// Flags with unknown bits.
    #[error("unknown flag bits {bits:#x}")]
    UnknownFlags {
        /// The unknown bits.
        bits: u32,
    },
    /// Zero bytes of memory were requested.
    #[error("cannot allocate 0 bytes of {kind} memory")]
    ZeroSize {
        /// The kind of memory.
        kind: MemoryKind,
    },
    /// A range that does not lie within the memory.
    #[error(
        "{} at offset {offset} {} out of range: the memory has {}",
        Count(*len), if *len == 1 { "is" } else { "are" }, Count(*size)
    )]
    OutOfRange {
        /// The first byte.
        offset: usize,
        /// The number of bytes.
        len: usize,
        /// The size of the memory or region in bytes.
        size: usize,
    },
    /// A range that ends before it starts.
    #[error("the range {start}..{end} ends before it starts")]
    ReversedRange {
        /// The first byte.
        start: usize,
        /// One past the last byte.
        end: usize,
    },
    /// A pointer or a length that is not a multiple of the element's size or alignment, of the pattern's size, or of the row
    /// pitch.
    #[error("{what} {value} is not a multiple of {}", Count(*unit))]
    Misaligned {
        /// The name of the value.
        what: &'static str,
        /// The value.
        value: usize,
        /// The size that it must be a multiple of, in bytes.
        unit: usize,
    },
    /// The memory has no host view.
    #[error("{kind} memory has no host view: use its device pointer with CUDA's copies")]
    NoHostView {
        /// The kind of memory.
        kind: MemoryKind,
    },
    /// Memory that others allocated has no host view.
    #[error("{}{reason}", MemoryAt(*address, *reason))]
    NoMapping {
        /// The device address; 0 where no memory is concerned.
        address: u64,
        /// The reason, and what works instead.
        reason: NoMapping,
    },
    /// Memory that no network card can register.
    #[error(
        "{kind} memory of this allocation has no dma-buf: allocate mapped or device memory for network cards (with_dma_buf, VKGDR_MEMORY_DMA_BUF_BIT, dma_buf=True)"
    )]
    NoDmaBuf {
        /// The kind of memory.
        kind: MemoryKind,
    },
    /// Memory that no other process can share.
    #[error("{kind} memory that Vulkan did not allocate cannot be exported as a descriptor")]
    NoExport {
        /// The kind of memory.
        kind: MemoryKind,
    },
    /// A copy on a stream with host memory on both sides.
    #[error("a copy on a stream needs device memory on one side at least: copy from host to host with the CPU")]
    HostToHost,
    /// A system call failed.
    #[error("{operation} failed ({}){}", std::io::Error::from_raw_os_error(*code), Hint(hint::system(*code)))]
    System {
        /// The C library's function.
        operation: &'static str,
        /// The error number, an `errno`.
        code: i32,
    },
    /// The process is a child that was forked after this crate loaded the CUDA driver, which opening a GPU does. Neither driver
    /// works in such a process.
    #[error(
        "the process was forked after the GPU was opened: open and use it in the child only after exec, \
         or use multiprocessing's \"spawn\""
    )]
    Forked,
    /// Memory that another process sent does not fit, or its sender is not trusted.
    #[error("received memory was refused: {0}")]
    Refused(#[from] Refusal),
    /// The process at the other end of a socket closed it.
    #[error("the other process closed the connection")]
    Disconnected,
    /// The memory has been freed.
    #[error("the memory was freed")]
    Freed,
    /// An operation that needs memory with an allocation of its own, on memory of a pool.
    #[error("{operation} needs a dedicated allocation: this is a chunk of a pool's block, which has other chunks")]
    Pooled {
        /// The operation.
        operation: &'static str,
    },
    /// gpu-allocator, which places Vulkan's buffers and images, failed without calling a driver.
    #[error("gpu-allocator: {reason}")]
    Suballocation {
        /// Its error.
        reason: String,
    },
    /// An impossible option of a pool.
    #[error("a pool's {option} of {value} is impossible: it must be {allowed}")]
    PoolOption {
        /// The option's name.
        option: &'static str,
        /// Its value.
        value: usize,
        /// The values that are allowed.
        allowed: &'static str,
    },
    /// The ring was closed or aborted: nothing can be pushed, or everything was popped.
    #[error("the ring is closed")]
    RingClosed,
    /// The kernel at the other end of a ring left no room, or sent nothing, in the time that was given.
    #[error("{operation} timed out: the kernel at the other end of the ring is slow, or does not run")]
    RingTimeout {
        /// The operation.
        operation: &'static str,
    },
    /// A message that is longer than the ring, or than the buffer for it.
    #[error("a message of {} does not fit: there is room for {}", Count(*len), Count(*most))]
    MessageTooLong {
        /// The bytes of the message.
        len: usize,
        /// The bytes of the longest message that fits.
        most: usize,
    },
    /// Two arrays whose shapes must be the same.
    #[error("the array has the shape {expected:?}, the other one has {found:?}")]
    ShapeMismatch {
        /// The extents of the array in memory.
        expected: Vec<usize>,
        /// The extents of the other one.
        found: Vec<usize>,
    },
    /// A word in a ring's memory that no correct kernel writes.
    #[error("the ring is corrupt: {what} {value:#x} is impossible; is it used by two kernels, or as other memory?")]
    RingCorrupt {
        /// The word's name.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// The current context belongs to a different GPU than the handle.
    #[error("the current CUDA context is on device {current}, the handle is on device {expected}")]
    WrongDevice {
        /// The device of the current context.
        current: i32,
        /// The device of the handle.
        expected: i32,
    },
    /// The stream belongs to another context than the memory.
    #[error("the stream belongs to another CUDA context than the memory")]
    ForeignStream,
    /// The per-thread default stream, which is a different stream on each thread, so that no memory can be bound to it.
    #[error("memory cannot be bound to the per-thread default stream: it is another stream on every thread")]
    PerThreadStream,
    /// A write through a map guard for reading.
    #[error("the memory is mapped for reading only")]
    ReadOnly,
}

/// The same text as `Display`: a `main` that returns the error prints this, and the fields lack the remedy.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// The CUDA driver's code, if a CUDA call failed.
    #[must_use]
    pub const fn cuda_code(&self) -> Option<i32> {
        match self {
            Self::Cuda { code, .. } => Some(code.value()),
            _ => None,
        }
    }

    /// Vulkan's result code, if a Vulkan call failed or a request was refused.
    #[must_use]
    pub const fn vulkan_code(&self) -> Option<i32> {
        match self {
            Self::NoVulkan { error, .. } => (**error).vulkan_code(),
            Self::Vulkan { code, .. } | Self::Allocation { code, .. } => Some(code.as_raw()),
            _ => None,
        }
    }

    /// The error of a function of the C library that has just failed on this thread.
    pub(crate) fn last_system(operation: &'static str) -> Self {
        Self::System { operation, code: std::io::Error::last_os_error().raw_os_error().expect("errno is a code") }
    }
}

#[cfg(test)]
mod tests;
