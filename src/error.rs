//! The error type: the operation that failed, the driver's code, the numbers involved and, where known, the remedy.
//!
//! Decisions look at [`Call`] and at codes; names and texts are for readers. The remedies are in [`hint`].
#![forbid(unsafe_code)]

mod hint;

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};

use ash::vk;
use cudarc::driver::sys::CUresult;

use crate::MemoryKind;

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
    #[error(
        "Vulkan device {device} has no {extension}: install a newer NVIDIA driver, or enable it on a device of your own"
    )]
    Extension {
        /// The device's name.
        device: String,
        /// The missing extension.
        extension: &'static str,
    },
    /// A CUDA driver call failed.
    #[error("{operation} failed ({code}){}", hint::cuda(*call, *code))]
    #[non_exhaustive]
    Cuda {
        /// The CUDA driver function.
        operation: &'static str,
        /// The code that it returned.
        code: CudaCode,
        /// What `operation` names, for this crate's decisions.
        #[doc(hidden)]
        call: Call,
    },
    /// A Vulkan call failed.
    #[error("{operation} failed ({}){}", token(*code), hint::vulkan(*call, *code))]
    #[non_exhaustive]
    Vulkan {
        /// The Vulkan function.
        operation: &'static str,
        /// The code that it returned.
        code: vk::Result,
        /// What `operation` names, for this crate's decisions.
        #[doc(hidden)]
        call: Call,
    },
    /// Memory could not be allocated or mapped for the CPU: memory or address space is short, or there are too many
    /// allocations.
    #[error(
        "{}{}{}{}",
        shortage(*operation, *code, *kind, *asked, *heap),
        room(*free, *asked, *heap, others),
        in_use(*still_used),
        hint::exhaustion(*code, *kind, *asked, *heap, *free)
    )]
    Allocation {
        /// The Vulkan function that failed. `None` if the request was refused without a call, because Vulkan leaves its effect
        /// undefined: a size beyond the heap.
        operation: Option<&'static str>,
        /// The function's result, or the Vulkan result that names the reason of a refusal.
        code: vk::Result,
        /// The kind of memory.
        kind: MemoryKind,
        /// Bytes requested.
        asked: u64,
        /// Bytes in the memory heap of that kind.
        heap: u64,
        /// Free bytes of the heap by the driver's budget. If they would have been enough, the BAR is full or fragmented.
        free: Option<u64>,
        /// If `free` is some, the other kinds of memory that the GPU has, with room by the budgets of their heaps.
        others: Vec<MemoryKind>,
        /// The allocations and parts of pools that were freed, and that the device may still have been using when the wait for them
        /// ended ([`Vkgdr::set_shortage_timeout`](crate::Vkgdr::set_shortage_timeout)).
        still_used: usize,
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
    #[error("the program's Vulkan device ({device}) is no CUDA device: none of CUDA's {devices} has its UUID {}", hyphenated(*uuid))]
    NoCudaDevice {
        /// The Vulkan device's name.
        device: String,
        /// Its UUID.
        uuid: [u8; 16],
        /// The number of CUDA devices.
        devices: i32,
    },
    /// No Vulkan device has the CUDA device's UUID.
    #[error("no Vulkan device matching the CUDA device found: CUDA device {device} has UUID {}, {found}", hyphenated(*uuid))]
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
        /// The error of NVIDIA's driver for machines without X11, called without the loader.
        headless: Box<Error>,
        /// The most probable cause by what was found on the system, with its remedy.
        cause: String,
    },
    /// The GPU has no memory type for a kind of memory.
    #[error(
        "Vulkan device does not provide a suitable memory type: {device} has no {kind} memory ({wanted}){}",
        hint::memory_type(*kind, wanted)
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
        in_bytes(*len), if *len == 1 { "is" } else { "are" }, in_bytes(*size)
    )]
    OutOfRange {
        /// The first byte.
        offset: usize,
        /// The number of bytes.
        len: usize,
        /// The size of the memory or slice in bytes.
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
    #[error("{what} {value} is not a multiple of {}", in_bytes(*unit))]
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
    /// CUDA's memory has no host view, or no dma-buf.
    #[error("{}{reason}{}", no_view_at(*address, *reason), hint::no_mapping(*address, *reason))]
    NoMapping {
        /// The device address; 0 where memory was to be allocated.
        address: u64,
        /// The reason.
        reason: NoMapping,
    },
    /// Memory that no network card can register.
    #[error(
        "{kind} memory of this allocation has no dma-buf: allocate device memory for network cards (with_dma_buf, VKGDR_MEMORY_DMA_BUF_BIT, dma_buf=True), or register host memory by its pointer"
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
    #[error("{operation} failed ({}){}", std::io::Error::from_raw_os_error(*code), hint::system(*code))]
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
    /// Memory that another process sent does not fit. A driver did not see its descriptor, which was closed.
    #[error("received memory was refused: {reason}")]
    Refused {
        /// What does not fit, with the values of both sides.
        reason: String,
    },
    /// The process that sends memory belongs to another user. The message is still in the socket.
    #[error(
        "the process at the other end of the socket {}, not to user {ours} as this one",
        match theirs == ours {
            true => "perhaps belongs to a user outside of this user namespace".into(),
            false => format!("belongs to user {theirs}"),
        }
    )]
    OtherUser {
        /// The other process's effective user id when it connected.
        theirs: u32,
        /// This process's effective user id.
        ours: u32,
    },
    /// The process at the other end of a socket closed it.
    #[error("the other process closed the connection")]
    Disconnected,
    /// The memory has been freed.
    #[error("the memory was freed")]
    Freed,
    /// An operation that needs memory with an allocation of its own, on memory of a pool or a slice.
    #[error("memory of a pool, or a slice, cannot be exported or sent: allocate the memory by itself")]
    Pooled,
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
    #[error(
        "{operation} timed out: the kernel at the other end of the ring is slow, does not run, has closed its end, or got another address"
    )]
    RingTimeout {
        /// The operation.
        operation: &'static str,
    },
    /// A message that is longer than the ring, or than the buffer for it.
    #[error("messages of {} do not fit: there is room for {}", in_bytes(*len), in_bytes(*most))]
    MessageTooLong {
        /// The bytes of the message.
        len: usize,
        /// The bytes of the longest message that fits.
        most: usize,
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
    /// The stream belongs to another context than the memory or semaphore, or than the current one where that was meant.
    #[error(
        "the stream belongs to another CUDA context: not to that of the memory or semaphore, or not to the current one"
    )]
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

/// A driver function whose failures this crate tells apart from those of others, to decide or to name a remedy.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    AllocateMemory,
    ExportMemory,
    ImportMemory,
    MapImported,
    RegisterPages,
    ExportDmaBuf,
    CreateSemaphore,
    ExportSemaphore,
    ImportSemaphore,
    StartCuda,
    StartVulkan,
    ListDevices,
    /// Any other function, by its name.
    Other(&'static str),
}

impl Call {
    /// The driver's name for the function.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::AllocateMemory => "vkAllocateMemory",
            Self::ExportMemory => "vkGetMemoryFdKHR",
            Self::ImportMemory => "cuImportExternalMemory",
            Self::MapImported => "cuExternalMemoryGetMappedBuffer",
            Self::RegisterPages => "cuMemHostRegister",
            Self::ExportDmaBuf => "cuMemGetHandleForAddressRange",
            Self::CreateSemaphore => "vkCreateSemaphore",
            Self::ExportSemaphore => "vkGetSemaphoreFdKHR",
            Self::ImportSemaphore => "cuImportExternalSemaphore",
            Self::StartCuda => "cuInit",
            Self::StartVulkan => "vkCreateInstance",
            Self::ListDevices => "vkEnumeratePhysicalDevices",
            Self::Other(name) => name,
        }
    }
}

impl From<&'static str> for Call {
    fn from(name: &'static str) -> Self {
        Self::Other(name)
    }
}

impl Error {
    pub(crate) fn cuda(call: impl Into<Call>, code: CudaCode) -> Self {
        let call = call.into();
        Self::Cuda { operation: call.name(), code, call }
    }

    /// A shortage of memory: of the Vulkan call `operation`, or without a call. The sizes are in bytes.
    #[cold]
    pub(crate) fn shortage(
        operation: Option<&'static str>,
        code: vk::Result,
        kind: MemoryKind,
        asked: u64,
        heap: u64,
    ) -> Self {
        Self::Allocation { operation, code, kind, asked, heap, free: None, others: Vec::new(), still_used: 0 }
    }

    pub(crate) fn vulkan(call: impl Into<Call>, code: vk::Result) -> Self {
        let call = call.into();
        Self::Vulkan { operation: call.name(), code, call }
    }

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

    /// Whether this is a sticky error, after which the CUDA context never does any work again
    /// ("the context must be destroyed", CUDA driver API, CUresult).
    pub(crate) fn is_fatal_to_context(&self) -> bool {
        self.cuda_code().is_some_and(|code| CudaCode::STICKY.contains(&code))
    }

    /// Whether the CUDA context does no work any more and never will: it is broken or destroyed.
    #[doc(hidden)]
    pub fn ends_all_work(&self) -> bool {
        self.is_fatal_to_context() || self.context_is_gone()
    }

    /// Whether the context was destroyed, and all that it owned, or CUDA has shut down.
    pub(crate) fn context_is_gone(&self) -> bool {
        self.cuda_code().is_some_and(|code| CudaCode::GONE.contains(&code) || code == CudaCode::DEINITIALIZED)
    }

    /// Whether a drop logs it. All memory of a broken context has the same error, which is logged once.
    #[doc(hidden)]
    pub fn is_news(&self) -> bool {
        static BROKEN: AtomicBool = AtomicBool::new(false);
        !(self.is_fatal_to_context() && BROKEN.swap(true, Ordering::Relaxed))
    }

    /// Whether a stream capture forbids the call.
    pub(crate) fn is_of_capture(&self) -> bool {
        self.cuda_code().is_some_and(|code| CudaCode::OF_CAPTURE.contains(&code))
    }

    /// Whether CUDA refuses to share Vulkan's memory or the system's pages, by the codes that say so. Any other code, such as
    /// `CUDA_ERROR_UNKNOWN`, is a failure of this one call.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Cuda { call: Call::ImportMemory | Call::MapImported, code, .. } => {
                CudaCode::REFUSAL.contains(&code.value())
            }
            // On Tegra without I/O coherence, and under confidential computing.
            Self::Cuda { call: Call::RegisterPages, code, .. } => code.value() == CudaCode::NOT_SUPPORTED,
            _ => false,
        }
    }

    /// Whether the driver does not export memory as a dma-buf, by the codes that say so: that of `cuIpcOpenMemHandle`, for example.
    #[doc(hidden)]
    pub fn is_unexported(&self) -> bool {
        matches!(self, Self::Cuda { call: Call::ExportDmaBuf, code, .. }
            if [CudaCode::INVALID_VALUE, CudaCode::NOT_SUPPORTED].contains(&code.value()))
    }

    /// Whether memory of a kind is exhausted, or a driver refuses it, so that there may be memory of another kind. A process
    /// without descriptors has no memory of any kind.
    pub(crate) fn concerns_the_kind(&self) -> bool {
        match self {
            Self::NoSuitableMemoryType { .. } | Self::NoVulkan { .. } => true,
            Self::NoMapping { .. } | Self::NoDmaBuf { .. } => true,
            _ => self.is_out_of_memory() || self.is_refusal(),
        }
    }

    /// Whether memory is exhausted: a heap of Vulkan's, the GPU's by CUDA, or the system's.
    #[doc(hidden)]
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Self::Allocation { .. } => true,
            Self::Cuda { code, .. } => code.value() == CudaCode::OUT_OF_MEMORY,
            Self::System { code, .. } => *code == libc::ENOMEM,
            _ => false,
        }
    }

    /// Adds what was freed and is still in use to the error of a shortage.
    #[cold]
    pub(crate) fn with_still_used(mut self, count: usize) -> Self {
        if let Self::Allocation { still_used, .. } = &mut self {
            *still_used += count;
        }
        self
    }

    /// Whether a resource is exhausted that freeing memory may return: memory, descriptors, allocations.
    #[doc(hidden)]
    pub fn is_exhaustion(&self) -> bool {
        match self {
            // An export without a free descriptor may fail with this code, an import of what the driver does not know as well.
            Self::Vulkan { code: vk::Result::ERROR_INVALID_EXTERNAL_HANDLE, call, .. } => *call == Call::ExportMemory,
            Self::Vulkan { code, .. } | Self::Allocation { code, .. } => [
                vk::Result::ERROR_OUT_OF_DEVICE_MEMORY,
                vk::Result::ERROR_OUT_OF_HOST_MEMORY,
                vk::Result::ERROR_MEMORY_MAP_FAILED,
                vk::Result::ERROR_TOO_MANY_OBJECTS,
            ]
            .contains(code),
            // An import without a free descriptor fails with this code.
            Self::Cuda { call: Call::ImportMemory, code, .. } if code.value() == CudaCode::OPERATING_SYSTEM => true,
            Self::System { code: libc::EMFILE, .. } => true,
            _ => self.is_out_of_memory(),
        }
    }

    /// Whether the request exceeds the heap, and was refused before a driver was called: an
    /// [exhaustion](Self::is_exhaustion) in which freeing other memory does not help.
    pub(crate) fn exceeds_the_heap(&self) -> bool {
        matches!(self, Self::Allocation { operation: None, code: vk::Result::ERROR_OUT_OF_DEVICE_MEMORY, .. })
    }
}

/// The result of a CUDA driver function: the number, and the driver's name for it.
///
/// The number stays an integer, since a newer driver may return codes that this crate has never heard of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudaCode {
    value: i32,
    name: Option<&'static str>,
}

impl CudaCode {
    pub(crate) const SUCCESS: i32 = CUresult::CUDA_SUCCESS as i32;
    pub(crate) const INVALID_VALUE: i32 = CUresult::CUDA_ERROR_INVALID_VALUE as i32;
    pub(crate) const OUT_OF_MEMORY: i32 = CUresult::CUDA_ERROR_OUT_OF_MEMORY as i32;
    pub(crate) const NOT_INITIALIZED: i32 = CUresult::CUDA_ERROR_NOT_INITIALIZED as i32;
    pub(crate) const DEINITIALIZED: i32 = CUresult::CUDA_ERROR_DEINITIALIZED as i32;
    pub(crate) const NO_DEVICE: i32 = CUresult::CUDA_ERROR_NO_DEVICE as i32;
    pub(crate) const INVALID_DEVICE: i32 = CUresult::CUDA_ERROR_INVALID_DEVICE as i32;
    pub(crate) const INVALID_CONTEXT: i32 = CUresult::CUDA_ERROR_INVALID_CONTEXT as i32;
    pub(crate) const OPERATING_SYSTEM: i32 = CUresult::CUDA_ERROR_OPERATING_SYSTEM as i32;
    pub(crate) const INVALID_HANDLE: i32 = CUresult::CUDA_ERROR_INVALID_HANDLE as i32;
    pub(crate) const NOT_READY: i32 = CUresult::CUDA_ERROR_NOT_READY as i32;
    pub(crate) const CONTEXT_IS_DESTROYED: i32 = CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED as i32;
    pub(crate) const NOT_SUPPORTED: i32 = CUresult::CUDA_ERROR_NOT_SUPPORTED as i32;
    pub(crate) const STREAM_CAPTURE_UNSUPPORTED: i32 = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED as i32;
    pub(crate) const ALREADY_REGISTERED: i32 = CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED as i32;

    /// `CUDA_ERROR_DEVICE_UNAVAILABLE`, which cudarc's older versions of CUDA lack.
    const BUSY: i32 = 46;

    /// The codes for a context that was destroyed.
    pub(crate) const GONE: [i32; 2] = [Self::INVALID_CONTEXT, Self::CONTEXT_IS_DESTROYED];

    /// The codes for memory that cannot be imported or mapped. Two are those that the CUDA driver API lists for both
    /// functions and that mean nothing else. The third is for what a system or device does not support.
    const REFUSAL: [i32; 3] = [Self::INVALID_VALUE, Self::INVALID_HANDLE, Self::NOT_SUPPORTED];

    /// The codes of stream captures, `STREAM_CAPTURE_UNSUPPORTED` to `STREAM_CAPTURE_WRONG_THREAD`.
    const OF_CAPTURE: RangeInclusive<i32> = Self::STREAM_CAPTURE_UNSUPPORTED..=908;

    /// Whether the driver may start at another attempt: a device that was busy, or too many open files.
    pub(crate) fn is_transient(self) -> bool {
        [Self::BUSY, Self::OPERATING_SYSTEM].contains(&self.value())
    }

    /// The codes after which a context does no work any more, and returns the same code from every call. CUDA's driver
    /// API (CUresult) says "the context cannot be used", "any further CUDA work will return the same error" or "the
    /// process must be terminated". By number, since some or all of cudarc's versions of CUDA lack those of CUDA 13:
    /// 226, 721, 810 and 911.
    const STICKY: [i32; 15] = [214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911];

    pub(crate) const fn new(value: i32, name: Option<&'static str>) -> Self {
        Self { value, name }
    }

    /// The driver's name for it, such as `CUDA_ERROR_INVALID_VALUE`; `None` for a code that the driver does not know.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        self.name
    }

    /// The number, a `CUresult`.
    #[must_use]
    pub const fn value(self) -> i32 {
        self.value
    }
}

impl fmt::Display for CudaCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name {
            Some(name) => f.write_str(name),
            None => write!(f, "unknown CUDA error {}", self.value),
        }
    }
}

/// Why the CPU cannot map CUDA's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoMapping {
    /// The driver is too old.
    #[error(
        "the driver supports CUDA {}.{}, and mapping CUDA's memory needs CUDA 13.3 (driver R610)",
        version / 1000, version % 1000 / 10
    )]
    Driver {
        /// The version that the driver reports, such as 13000 for CUDA 13.0.
        version: i32,
    },
    /// The GPU does not export its memory (`CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED` is 0 or unknown).
    #[error("CUDA device {device} exports no dma-buf (device attribute 124 is 0 or unknown)")]
    NoExport {
        /// The device.
        device: i32,
    },
    /// The CPU cannot map what the GPU exports (`CU_DEVICE_ATTRIBUTE_DMA_BUF_MMAP_SUPPORTED` is 0 or unknown).
    #[error("the CPU cannot map a dma-buf of CUDA device {device} (device attribute 152 is 0 or unknown)")]
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

/// Vulkan's own spelling of a result code.
fn token(code: vk::Result) -> String {
    let name = format!("{code:?}");
    let is_known = name.starts_with(|c: char| c.is_ascii_alphabetic());
    if is_known { format!("VK_{name}") } else { format!("unknown Vulkan error {}", code.as_raw()) }
}

/// A shortage of memory: the failed call and its result, or the result as the reason where nothing was called.
fn shortage(operation: Option<&str>, code: vk::Result, kind: MemoryKind, asked: u64, heap: u64) -> String {
    let what = format!("requested {} of {kind} memory; the heap has {}", in_units(asked), in_units(heap));
    match operation {
        Some(operation) => format!("{operation} failed ({}): {what}", token(code)),
        None => format!("{what} ({})", token(code)),
    }
}

/// The room that a driver's budget shows, and the kinds of memory to use instead; or nothing.
fn room(free: Option<u64>, asked: u64, heap: u64, others: &[MemoryKind]) -> String {
    let Some(free) = free else { return String::new() };
    let cause = if free >= asked { "; the BAR is full or fragmented: " } else { "; " };
    let room = format!("{cause}{} of {} free by the budget", in_units(free), in_units(heap));
    let others: Vec<_> = others.iter().map(ToString::to_string).collect();
    if others.is_empty() { room } else { format!("{room}; {} memory would work", others.join(" and ")) }
}

/// What is freed and still in use, as the middle of a text.
fn in_use(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => "; the device may still use 1 freed allocation".to_owned(),
        _ => format!("; the device may still use {count} freed allocations"),
    }
}

/// The memory at a device address, as the beginning of a text; nothing where memory was to be allocated.
fn no_view_at(address: u64, reason: NoMapping) -> String {
    match (address, reason) {
        (0, NoMapping::Driver { .. } | NoMapping::NoExport { .. } | NoMapping::NoMmap { .. }) => String::new(),
        _ => format!("no host view of the memory at {address:#x}: "),
    }
}

/// A number of bytes, without a larger unit.
#[must_use]
pub fn in_bytes<N: fmt::Display + PartialEq + From<u8>>(count: N) -> String {
    let unit = if count == N::from(1) { "byte" } else { "bytes" };
    format!("{count} {unit}")
}

/// A number of bytes in the largest binary unit that leaves at least 1.
#[must_use]
pub fn in_units(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let Some(exponent) = count.checked_ilog2().map(|log| log / 10).filter(|&e| e > 0) else {
        return in_bytes(count);
    };
    let (unit, shift) = (UNITS[exponent as usize - 1], exponent * 10);
    if count.trailing_zeros() >= shift {
        return format!("{} {unit}", count >> shift);
    }
    let tenths = u128::from(count) * 10 / (1_u128 << shift);
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

/// A UUID in hyphenated groups.
#[must_use]
pub fn hyphenated(uuid: [u8; 16]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    [0..4, 4..6, 6..8, 8..10, 10..16].map(|group| hex(&uuid[group])).join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_names_sizes_and_room_and_the_bar_only_where_that_is_small() {
        const MIB: u64 = 1 << 20;
        let (code, kind) = (vk::Result::ERROR_OUT_OF_DEVICE_MEMORY, MemoryKind::Mapped);
        let error = |operation, asked, heap, free| {
            let others = Vec::new();
            Error::Allocation { operation, code, kind, asked, heap, free, others, still_used: 0 }
        };
        let refused = error(None, 2 << 30, 256 * MIB, None);
        assert!(refused.is_exhaustion() && refused.exceeds_the_heap());
        let bar = "enable Resizable BAR in the firmware to map more";
        assert_eq!(
            refused.to_string(),
            format!("requested 2 GiB of mapped memory; the heap has 256 MiB (VK_ERROR_OUT_OF_DEVICE_MEMORY); {bar}")
        );
        let called = error(Some("vkAllocateMemory"), MIB, 8 << 30, Some(200 * MIB));
        assert!(!called.exceeds_the_heap());
        let end = "8 GiB; the BAR is full or fragmented: 200 MiB of 8 GiB free by the budget";
        assert!(called.to_string().ends_with(end), "{called}");
    }

    #[test]
    fn codes_that_nobody_knows_keep_their_number() {
        let vulkan = Error::vulkan("vkMapMemory", vk::Result::from_raw(-987_654));
        assert_eq!(vulkan.to_string(), "vkMapMemory failed (unknown Vulkan error -987654)");
        let cuda = Error::cuda("cuMemFree", CudaCode::new(4242, None));
        assert_eq!(cuda.to_string(), "cuMemFree failed (unknown CUDA error 4242)");
    }

    #[test]
    fn the_error_of_a_broken_context_is_logged_once() {
        let is_news = |code| Error::cuda("cuMemFree", CudaCode::new(code, None)).is_news();
        is_news(700);
        assert!(!is_news(700) && !is_news(719));
        assert!(is_news(999) && is_news(999));
    }

    #[test]
    fn sizes_are_shown_in_the_largest_whole_unit() {
        let counts = [0, 1, 1023, 1024, 1536, 2 << 30, u64::MAX, 1_000_000_000_000_000];
        let texts = ["0 bytes", "1 byte", "1023 bytes", "1 KiB", "1.5 KiB", "2 GiB", "15.9 EiB", "909.4 TiB"];
        assert_eq!(counts.map(in_units), texts);
        // Rounded down: a size is never larger than said.
        assert_eq!(in_units((8 << 30) - 1), "7.9 GiB");
    }

    #[test]
    fn uuids_have_their_hyphens() {
        let uuid = *b"\0\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff";
        assert_eq!(hyphenated(uuid), "00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn only_the_codes_that_say_so_are_a_refusal() {
        let of = |call| move |code: &i32| Error::cuda(call, CudaCode::new(*code, None)).is_refusal();
        assert_eq!((0..5000).filter(of(Call::RegisterPages)).collect::<Vec<_>>(), [801]);
        for call in [Call::ImportMemory, Call::MapImported] {
            assert_eq!((0..5000).filter(of(call)).collect::<Vec<_>>(), [1, 400, 801]);
        }
        assert_eq!((0..5000).filter(of("cuMemAlloc".into())).count(), 0);
        let unknown = |call| Error::vulkan(call, vk::Result::ERROR_INVALID_EXTERNAL_HANDLE).is_exhaustion();
        assert!(unknown(Call::ExportMemory) && !unknown(Call::AllocateMemory));
    }
}
