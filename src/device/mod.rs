//! [`Vkgdr`]: the handle of a GPU, with its flags, memory types and primary context.
//!
//! [`gpu`] holds the state that all handles of a GPU share, including what is [retired](crate::retire), and finds its Vulkan
//! device. [`memory_type`] chooses the memory type of each kind. Queries of the driver tell devices, an address's device, and
//! whether CUDA's own memory can be exported as a dma-buf and mapped by the CPU.
#![forbid(unsafe_code)]

pub(crate) mod gpu;
mod memory_type;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ash::vk::MemoryPropertyFlags as Property;
use cudarc::driver::sys::{CUdevice, CUdevice_attribute as Attribute, CUdeviceptr};

use crate::driver::context::{Context, PrimaryContext};
use crate::driver::cuda::{cuda, started};
use crate::driver::{fork, os};
use crate::engine::{CopyEngines, CopyThresholds};
use crate::error::CudaCode;
use crate::lock::Lock;
use crate::retire::SHORTAGE_TIMEOUT;
use crate::{Error, MemoryKind, NoMapping, OpenFlags, Result, addresses, flags};
use gpu::{Gpu, VulkanGpu};
pub use memory_type::MemoryTypeInfo;
pub(crate) use memory_type::{LINE, MemoryType};

/// A GPU whose memory can be allocated.
///
/// Cloning is cheap and shares the handle. Memory keeps its handle alive, so a handle may be dropped at any time. The
/// handles of a GPU in a process share one Vulkan device, except those of `open_on`: every `open` after the first is
/// cheap.
///
/// Where Vulkan is missing or does not know the GPU, the handle has `Host` and `Device` memory. `Mapped` memory is CUDA's own
/// then, where the CPU can map that ([`supports_existing`](Self::supports_existing)); otherwise the error says what is missing.
/// That Vulkan does not know a GPU is found out once per process. The first `open` looks for it, and later ones return what
/// that found ([`Error::NoVulkan`]). Where Vulkan knows the GPU and its device could not be created, opening again tries
/// again; a handle opened without Vulkan never gains it.
///
/// A handle may be used from any thread. Unless it retains the primary context ([`Vkgdr::open_primary_context`], and `open_on`
/// without `CURRENT_CONTEXT`), allocating needs a current CUDA context of its device on the calling thread.
///
/// Neither driver works in a child that was forked after this crate loaded the CUDA driver. The first `open` loads it,
/// or a function such as [`device_count`](crate::device_count). In such a child, every operation that needs a driver
/// returns [`Error::Forked`], and drops leave inherited memory to the parent. A child that needs the GPU must `exec`
/// first. Handlers of `pthread_atfork` that were registered before that load run too early: they must not use this crate.
#[derive(Clone)]
pub struct Vkgdr {
    handle: Arc<HandleState>,
}

struct HandleState {
    gpu: &'static Gpu,
    device: CUdevice,
    /// The Vulkan device, or the error of finding it.
    vulkan: Result<Arc<VulkanGpu>>,
    /// What each kind is allocated from: host memory is registered pages, also where Vulkan has some.
    types: [Option<MemoryType>; MemoryKind::ALL.len()],
    flags: OpenFlags,
    /// Ends before the primary context is released.
    engines: CopyEngines,
    /// The context in which memory is allocated, whichever is current.
    primary: Option<PrimaryContext>,
    /// Keeps the primary context alive once memory was allocated in it as the current one.
    kept: OnceLock<PrimaryContext>,
    /// One-entry cache of the last context that was checked to belong to this device.
    last_context: Lock<Option<Context>>,
    /// How long an allocation that runs short waits for freed memory, in nanoseconds.
    shortage_timeout: AtomicU64,
}

impl Vkgdr {
    /// Opens the GPU with CUDA device number `device`, counted from 0.
    ///
    /// Initialises the CUDA driver; needs no current context, and leaves the current context alone. With
    /// [`OpenFlags::CURRENT_CONTEXT`] the number is ignored, see [`Vkgdr::open_current_context`].
    ///
    /// # Errors
    ///
    /// The CUDA driver is missing ([`Error::Library`], [`Error::Symbol`]) or returns an error (`CUDA_ERROR_INVALID_DEVICE` for
    /// a number without a device). Vulkan runs out of memory. [`OpenFlags::REQUIRE_COHERENT`] leaves no mapped memory:
    /// [`Error::NoSuitableMemoryType`], or the error that says why there is no Vulkan device ([`Error::NoVulkan`],
    /// [`Error::Extension`] or [`Error::Vulkan`]). Flags are unknown, or the process was forked ([`Error::Forked`]).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// let gpu = vkgdr::Vkgdr::open(0, vkgdr::OpenFlags::empty())?;
    /// println!("{}", gpu.name());
    /// # Ok::<(), vkgdr::Error>(())
    /// ```
    pub fn open(device: CUdevice, flags: OpenFlags) -> Result<Self> {
        let (gpu, device, vulkan) = find(device, flags)?;
        Self::with_vulkan(gpu, device, vulkan, flags, None)
    }

    /// Opens the GPU of the CUDA context that is current on the calling thread.
    ///
    /// # Errors
    ///
    /// The errors of [`Vkgdr::open`], and `CUDA_ERROR_INVALID_CONTEXT` when no context is current.
    pub fn open_current_context(flags: OpenFlags) -> Result<Self> {
        Self::open(0, flags | OpenFlags::CURRENT_CONTEXT)
    }

    /// Opens the GPU with CUDA device number `device` and retains its primary context, the one that the CUDA
    /// runtime and most libraries use.
    ///
    /// Allocations of this handle are made in that context, whichever context is current, if any. The context is
    /// released when the handle and its memory are gone. With [`OpenFlags::CURRENT_CONTEXT`] the device is that of
    /// the current context, which must exist.
    ///
    /// # Errors
    ///
    /// The errors of [`Vkgdr::open`].
    pub fn open_primary_context(device: CUdevice, flags: OpenFlags) -> Result<Self> {
        let (gpu, device, vulkan) = find(device, flags)?;
        let primary = PrimaryContext::retain(device)?;
        Self::with_vulkan(gpu, device, vulkan, flags, Some(primary))
    }

    /// A handle of a GPU with this Vulkan device, or the error of finding one.
    pub(crate) fn with_vulkan(
        gpu: &'static Gpu,
        device: CUdevice,
        vulkan: Result<Arc<VulkanGpu>>,
        flags: OpenFlags,
        primary: Option<PrimaryContext>,
    ) -> Result<Self> {
        let host = MemoryType::registered_pages(os::total_memory(), flags);
        let [mapped, device_only] = match &vulkan {
            Ok(vulkan) => [MemoryKind::Mapped, MemoryKind::Device].map(|kind| vulkan.memory_type(kind, flags)),
            Err(_) => [None, Some(device_memory_type(device)?)],
        };
        // Without Vulkan's mapped memory, CUDA's own, if the CPU can map that.
        let of_cuda = || check_mapping(device).and_then(|()| mapped_memory_type(device, false, flags)).ok();
        let types = [mapped.or_else(of_cuda), Some(host), device_only];
        if types[MemoryKind::Mapped as usize].is_none() && flags.contains(OpenFlags::REQUIRE_COHERENT) {
            return Err(no_memory_type(&vulkan, MemoryKind::Mapped, flags));
        }
        if let Err(error) = &vulkan {
            let mapped = if types[MemoryKind::Mapped as usize].is_some() { "maps CUDA's" } else { "has no mapped" };
            log::info!("{} is opened without Vulkan and {mapped} memory: {error}", gpu.name);
        }
        let state = HandleState {
            gpu,
            device,
            vulkan,
            types,
            flags,
            engines: CopyEngines::default(),
            primary,
            kept: OnceLock::new(),
            last_context: Lock::default(),
            shortage_timeout: AtomicU64::new(nanoseconds(SHORTAGE_TIMEOUT)),
        };
        Ok(Self { handle: Arc::new(state) })
    }

    /// The CUDA device number.
    #[must_use]
    pub fn device(&self) -> CUdevice {
        self.handle.device
    }

    /// The UUID that CUDA and Vulkan agree on.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        self.handle.gpu.uuid
    }

    /// The GPU's name, as the CUDA driver gives it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.handle.gpu.name
    }

    /// Sets how long an allocation that runs short waits for freed memory that the device still uses, before it fails: 1 s by
    /// default. Pools wait as long for memory of theirs. Holds for all clones of the handle.
    ///
    /// A program whose thread feeds a kernel that never ends sets 0: that kernel's memory does not become free by waiting. With 0,
    /// an allocation still waits up to 20 ms for a whole context, to find out whether it is idle. It also frees dropped memory that
    /// nothing uses, for which the driver waits: beside such a kernel drop none. A pool's allocation may wait twice as long: for
    /// freed memory of the GPU, and for that of the pool. Where another thread makes a block, pools and Vulkan's allocators first
    /// wait for that thread, up to a second.
    ///
    /// A context of `cuCtxCreate` has no such bound: it is waited for until it is idle, or with 0 not at all. Then a pool there
    /// reuses unbound memory after [`Pool::release_unused`](crate::Pool::release_unused) alone: bind memory to streams.
    pub fn set_shortage_timeout(&self, timeout: Duration) {
        self.handle.shortage_timeout.store(nanoseconds(timeout), Ordering::Relaxed);
    }

    /// When an allocation that runs short stops waiting.
    pub(crate) fn shortage_deadline(&self) -> Instant {
        Instant::now() + Duration::from_nanos(self.handle.shortage_timeout.load(Ordering::Relaxed))
    }

    /// The flags that the handle was opened with.
    #[must_use]
    pub fn flags(&self) -> OpenFlags {
        self.handle.flags
    }

    /// Releases the deferred frees that are ready, and returns their number. They are memory and semaphores, on any
    /// handle of this GPU, dropped while the device still used them, and no longer in use. If another thread is
    /// releasing some, it waits about 0.1 seconds for that.
    ///
    /// Every release of a `Memory` that is not of a pool does the same for a few of them, without waiting for their work. The end
    /// of a pool does it for all. So only programs that do neither for a long time need to call this. An allocation does it where
    /// memory is short, and Vulkan's allocator before it makes a block. Memory whose drop could not wait for its context, as
    /// during a stream capture, has no event to ask. This call waits for that context. So does an allocation that finds no memory
    /// left, and the drop of memory that waits for the same context anyway. Keep a handle until all memory that is bound to
    /// streams has been dropped and collected: this call needs one.
    ///
    /// The driver frees memory only after running kernels have ended, whatever they use (an H100 with driver 580). So beside a
    /// kernel that waits for the calling thread do not call this.
    pub fn collect(&self) -> usize {
        self.gpu().retired().collect()
    }

    /// Waits for the device's work that holds up deferred frees of this GPU, and releases them. Call it before you destroy a
    /// context of `cuCtxCreate`, or a Vulkan device of your own (`open_on`). Three kinds of memory remain. The first
    /// is memory whose free a stream capture has deferred, until [`collect`](Self::collect) finds that it has ended. The
    /// second is memory that another thread is waiting for. [`deferred_frees`](Self::deferred_frees) counts these two. The
    /// third is that of dropped [rings](crate::ring::Ring), until the last ring of their context is dropped.
    pub fn finish_deferred_frees(&self) {
        self.gpu().retired().drain(None);
    }

    /// Makes the copy engine's stream, so that [`CopyPolicy::Auto`](crate::CopyPolicy::Auto) uses the copy engine for memory of
    /// this handle. It is made in the handle's primary context if it retains that, otherwise in the current context, which
    /// must belong to the handle's device. Nothing is made if it exists. It ends with the handle and its memory. Drop the
    /// last of these with a context of `cuCtxCreate` current: otherwise the stream stays until that context ends.
    ///
    /// The driver may wait until running kernels have ended. Call this before starting a kernel that waits for the CPU. A
    /// copy with [`CopyPolicy::Dma`](crate::CopyPolicy::Dma) makes it, too, as does a copy from or to memory without a host
    /// view.
    /// With drivers older than CUDA 12 this does nothing, see [`Memory::write_with`](crate::Memory::write_with).
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_CONTEXT` when no context is current, [`Error::WrongDevice`](crate::Error::WrongDevice),
    /// [`Error::Forked`](crate::Error::Forked), and other errors of the driver.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// let gpu = vkgdr::Vkgdr::open_primary_context(0, vkgdr::OpenFlags::empty())?;
    /// gpu.prepare_copies()?;
    /// # Ok::<(), vkgdr::Error>(())
    /// ```
    pub fn prepare_copies(&self) -> Result<()> {
        fork::check()?;
        self.copy_engines().prepare(self.allocation_context()?)
    }

    /// The lengths from which [`CopyPolicy::Auto`](crate::CopyPolicy::Auto) leaves copies of this GPU's memory to the copy engine,
    /// once [`prepare_copies`](Self::prepare_copies) has made it.
    #[must_use]
    pub fn copy_thresholds(&self) -> CopyThresholds {
        self.gpu().copy_thresholds()
    }

    /// Sets the [`copy_thresholds`](Self::copy_thresholds), for all handles of this GPU in the process. [`CopyThresholds`] says
    /// which memory they apply to.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # let gpu = vkgdr::Vkgdr::open_primary_context(0, vkgdr::OpenFlags::empty())?;
    /// // The CPU makes every copy of memory that it sees.
    /// gpu.set_copy_thresholds(vkgdr::CopyThresholds { read: usize::MAX, write: usize::MAX });
    /// # Ok::<(), vkgdr::Error>(())
    /// ```
    pub fn set_copy_thresholds(&self, thresholds: CopyThresholds) {
        self.gpu().set_copy_thresholds(thresholds);
    }

    pub(crate) fn copy_engines(&self) -> &CopyEngines {
        &self.handle.engines
    }

    #[inline]
    pub(crate) fn gpu(&self) -> &'static Gpu {
        self.handle.gpu
    }

    /// The Vulkan device; an error that says what is missing if the handle was opened without one.
    #[inline]
    pub(crate) fn vulkan(&self) -> Result<&Arc<VulkanGpu>> {
        self.handle.vulkan.as_ref().map_err(Error::clone)
    }

    /// The memory type that a kind is allocated from.
    #[inline]
    pub(crate) fn memory_type(&self, kind: MemoryKind) -> Result<MemoryType> {
        let handle = &self.handle;
        handle.types[kind as usize].ok_or_else(|| no_memory_type(&handle.vulkan, kind, handle.flags))
    }

    /// Vulkan's memory type of a kind, also where the kind is not allocated from it.
    pub(crate) fn vulkan_memory_type(&self, kind: MemoryKind) -> Result<MemoryType> {
        let (vulkan, flags) = (self.vulkan()?, self.handle.flags);
        vulkan.memory_type(kind, flags).ok_or_else(|| vulkan.no_memory_type(kind, flags))
    }

    /// The context in which memory is allocated now: the primary one if this handle retains it, else the current one.
    pub(crate) fn allocation_context(&self) -> Result<Context> {
        self.primary_context().map_or_else(|| self.current_context(), Ok)
    }

    /// Runs `work` in that context, made current for it.
    pub(crate) fn in_context<T>(&self, work: impl FnOnce(Context) -> Result<T>) -> Result<T> {
        match self.primary_context() {
            Some(context) => context.run(|| work(context)),
            None => work(self.current_context()?),
        }
    }

    /// Whether the primary context that this handle retains was destroyed: by `cuDevicePrimaryCtxReset` (`cudaDeviceReset`).
    /// The handle can no longer allocate; open the GPU again. False for a handle that retains no context, and where the
    /// driver does not tell.
    ///
    /// Costs one driver call where the context is current, a few elsewhere.
    #[cfg(feature = "__internal")]
    #[doc(hidden)]
    pub fn context_is_destroyed(&self) -> bool {
        self.primary_context().is_some_and(Context::is_destroyed)
    }

    /// Whether this handle keeps the context of its memory alive; not that of others, of `cuCtxCreate`.
    #[cfg(feature = "__internal")]
    #[doc(hidden)]
    pub fn retains_context(&self) -> bool {
        self.handle.primary.is_some() || self.handle.kept.get().is_some()
    }

    /// The context of [`open_primary_context`](Self::open_primary_context); `None` for a handle of the current context.
    #[cfg(feature = "__internal")]
    #[doc(hidden)]
    #[must_use]
    pub fn own_context(&self) -> Option<cudarc::driver::sys::CUcontext> {
        self.primary_context().map(|context| context.raw())
    }

    /// The primary context, if this handle retains it.
    pub(crate) fn primary_context(&self) -> Option<Context> {
        self.handle.primary.as_ref().map(PrimaryContext::context)
    }

    /// The context that is current, which must belong to this handle's device.
    pub(crate) fn current_context(&self) -> Result<Context> {
        // Before the lock, which in a forked child may be held for ever by a thread of the parent.
        fork::check()?;
        let last = *self.handle.last_context.lock();
        // One driver call instead of several if the context is the last one.
        if let Some(last) = last
            && last.is_current()?
        {
            return Ok(last);
        }
        let ((context, current), expected) = (Context::current()?, self.handle.device);
        if current != expected {
            return Err(Error::WrongDevice { current, expected });
        }
        if context.primary_device().is_some() && self.handle.kept.get().is_none() {
            // Its other owners may release it while memory of this handle is in it. Another thread may do the same.
            let _ = self.handle.kept.set(PrimaryContext::retain(self.device())?);
        }
        *self.handle.last_context.lock() = Some(context);
        Ok(context)
    }
}

/// Queries.
impl Vkgdr {
    /// Every memory type of the GPU, in Vulkan's order. None without Vulkan.
    #[must_use]
    pub fn memory_types(&self) -> Vec<MemoryTypeInfo> {
        self.vulkan().map(|vulkan| vulkan.memory_types()).unwrap_or_default()
    }

    /// The memory type that this handle allocates a kind of memory from.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuitableMemoryType`] when the GPU has no such memory, and for
    /// memory that needs Vulkan the error of starting Vulkan.
    pub fn memory_type_of(&self, kind: MemoryKind) -> Result<MemoryTypeInfo> {
        self.memory_type(kind).map(|memory_type| memory_type.info)
    }

    /// The GPU's PCI address: domain, bus, device and function in hexadecimal digits, such as `0000:41:00.0`.
    ///
    /// # Errors
    ///
    /// The error of `cuDeviceGetPCIBusId`, and [`Error::Forked`].
    pub fn pci_bus_id(&self) -> Result<String> {
        cuda()?.device_pci_bus_id(self.device())
    }

    /// An attribute of the device by its number in `CUdevice_attribute`, which may be newer than this crate.
    #[cfg(feature = "__internal")]
    #[doc(hidden)]
    pub fn attribute(&self, number: i32) -> Result<i32> {
        cuda()?.device_attribute(number, self.device())
    }

    /// The number of deferred frees of this GPU, on all handles of the process. They are memory, Vulkan's buffers and images, and
    /// semaphores that were dropped and wait until the device has finished with them. Free chunks of a [`Pool`](crate::Pool)
    /// count if another context's stream used them. Those of a dropped pool count once per stream. See
    /// [`collect`](Self::collect).
    #[must_use]
    pub fn deferred_frees(&self) -> usize {
        self.gpu().retired().len()
    }

    /// The number of live allocations of the handle's Vulkan device, including those that wait to be released.
    #[cfg(feature = "__internal")]
    #[doc(hidden)]
    pub fn live_allocations(&self) -> usize {
        self.vulkan().map_or(0, |vulkan| vulkan.live_allocations())
    }
}

impl fmt::Debug for Vkgdr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vkgdr")
            .field("device", &self.device())
            .field("name", &self.name())
            .field("flags", &self.flags())
            .finish_non_exhaustive()
    }
}

/// The GPU of a CUDA device, or of that of the current context if the flags say so, with its number and its Vulkan device.
fn find(device: CUdevice, flags: OpenFlags) -> Result<(&'static Gpu, CUdevice, Result<Arc<VulkanGpu>>)> {
    let flags = flags::checked(flags)?;
    let cuda = started()?;
    let device = if flags.contains(OpenFlags::CURRENT_CONTEXT) { cuda.context_device()? } else { device };
    let (gpu, vulkan) = Gpu::find(device, cuda.device_uuid(device)?)?;
    Ok((gpu, device, vulkan))
}

/// The error for a kind of memory that a handle does not have.
#[cold]
fn no_memory_type(vulkan: &Result<Arc<VulkanGpu>>, kind: MemoryKind, flags: OpenFlags) -> Error {
    match vulkan {
        Ok(vulkan) => vulkan.no_memory_type(kind, flags),
        Err(error) => error.clone(),
    }
}

/// How much memory of a kind there is. All in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryInfo {
    /// The size of the heap that the kind's memory comes from. For mapped memory this is the part of the GPU's memory
    /// that the PCIe BAR exposes.
    pub total: u64,
    /// An estimate of what this process can still allocate from that heap.
    pub available: u64,
    /// Where `available` comes from.
    pub source: MemoryInfoSource,
}

/// Where [`MemoryInfo::available`] comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryInfoSource {
    /// From `VK_EXT_memory_budget`: the heap's budget, which allows for other processes, less what this process uses.
    Budget,
    /// From the heap's size alone: the driver has no `VK_EXT_memory_budget`, so that memory in use is unknown.
    Heap,
    /// From the system: host memory that does not come from Vulkan. `total` is all of the system's memory, `available`
    /// what programs can take of it without swapping (`MemAvailable` in `/proc/meminfo`).
    System,
    /// From `cuMemGetInfo`: device and mapped memory that CUDA allocates, not Vulkan. `total` is all of the GPU's
    /// memory, `available` its free memory.
    Cuda,
}

impl fmt::Display for MemoryInfoSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Budget => "budget",
            Self::Heap => "heap size",
            Self::System => "system",
            Self::Cuda => "cuMemGetInfo",
        })
    }
}

/// The number of CUDA devices that this process sees. Initialises the CUDA driver.
///
/// # Errors
///
/// [`Error::Library`] and [`Error::Symbol`] when the driver is missing or
/// too old, the driver's errors, such as `CUDA_ERROR_NO_DEVICE`, and [`Error::Forked`].
pub fn device_count() -> Result<i32> {
    let cuda = started()?;
    cuda.device_count()
}

/// The CUDA device that owns the memory at an address. For a device address of this crate's host memory, except
/// [`RawMemory`](crate::RawMemory), it is the device for which that is mapped. `None` for other addresses, such as plain host
/// addresses. Initialises the CUDA driver. For addresses of foreign memory a context must be current.
///
/// # Errors
///
/// The errors of [`device_count`], and `CUDA_ERROR_INVALID_CONTEXT` when a context is needed and none is current.
pub fn pointer_device(address: CUdeviceptr) -> Result<Option<CUdevice>> {
    let cuda = started()?;
    addresses::device_of(address).map_or_else(|| cuda.pointer_device(address), |device| Ok(Some(device)))
}

/// The CUDA device of the context that is current on this thread. Initialises the CUDA driver.
///
/// # Errors
///
/// The errors of [`device_count`], and `CUDA_ERROR_INVALID_CONTEXT` when no context is current.
pub fn current_device() -> Result<CUdevice> {
    started()?.context_device()
}

/// The newest CUDA version that the installed driver supports, as `1000 * major + 10 * minor`: 12080 is CUDA 12.8.
/// Loads the driver, after which a forked child cannot use it, and does not initialise it.
///
/// # Errors
///
/// The errors of [`device_count`].
pub fn driver_version() -> Result<i32> {
    cuda()?.version()
}

/// A duration for an atomic; the longest there is for one of 584 years or more.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The first driver that maps dma-bufs, as `cuDriverGetVersion` reports it: CUDA 13.3, R610.
const FIRST_VERSION: i32 = 13_030;
/// Whether the driver exports dma-bufs: `CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED`, which cudarc's bindings lack before CUDA 11.7.
const DMA_BUF_SUPPORTED: i32 = 124;
/// Whether the CPU can map a dma-buf: `CU_DEVICE_ATTRIBUTE_DMA_BUF_MMAP_SUPPORTED` of CUDA 13.3, which cudarc lacks.
const DMA_BUF_MMAP_SUPPORTED: i32 = 152;

/// Whether the device has an attribute; false where the driver does not know it.
fn has_attribute(number: i32, device: CUdevice) -> Result<bool> {
    match cuda()?.device_attribute(number, device) {
        Err(error) if error.cuda_code() == Some(CudaCode::INVALID_VALUE) => Ok(false),
        answer => answer.map(|value| value != 0),
    }
}

/// Fails unless the driver exports memory of the device.
pub(crate) fn check_export(device: CUdevice) -> Result<()> {
    let exports = has_attribute(DMA_BUF_SUPPORTED, device)?;
    if exports { Ok(()) } else { refuse(NoMapping::NoExport { device }) }
}

/// Fails unless the driver and the device let the CPU map device memory.
pub(crate) fn check_mapping(device: CUdevice) -> Result<()> {
    let version = cuda()?.version()?;
    if version < FIRST_VERSION {
        return refuse(NoMapping::Driver { version });
    }
    check_export(device)?;
    if has_attribute(DMA_BUF_MMAP_SUPPORTED, device)? { Ok(()) } else { refuse(NoMapping::NoMmap { device }) }
}

/// The type of mapped memory that CUDA allocates on the device. The CPU caches it where the GPU is coherent with it, unless the
/// mapping goes through the PCIe BAR.
pub(crate) fn mapped_memory_type(device: CUdevice, pcie: bool, flags: OpenFlags) -> Result<MemoryType> {
    let size = cuda()?.device_total_memory(device)?;
    // Where the device accesses the CPU's memory by the CPU's page tables, the CPU caches the device's memory.
    let page_tables = Attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES;
    let cached = !pcie && has_attribute(page_tables as i32, device)?;
    let properties = Property::DEVICE_LOCAL | Property::HOST_VISIBLE | Property::HOST_COHERENT;
    let cache = if cached { Property::HOST_CACHED } else { Property::empty() };
    Ok(MemoryType::outside_vulkan(MemoryKind::Mapped, size, properties | cache, flags))
}

/// The type of memory without a host view that CUDA allocates on the device.
pub(crate) fn device_memory_type(device: CUdevice) -> Result<MemoryType> {
    let size = cuda()?.device_total_memory(device)?;
    Ok(MemoryType::outside_vulkan(MemoryKind::Device, size, Property::DEVICE_LOCAL, OpenFlags::empty()))
}

fn refuse<T>(reason: NoMapping) -> Result<T> {
    Err(Error::NoMapping { address: 0, reason })
}
