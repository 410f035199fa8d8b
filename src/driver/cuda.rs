//! The CUDA driver API: the functions that this crate needs, each looked up once and checked at each call.
//!
//! The types are cudarc's. The functions are held here as plain pointers, since cudarc panics when the library or
//! a symbol is missing. Return codes are received as integers: a newer driver may return codes that no enum of
//! today lists.
//!
//! # Safety
//!
//! Handles that are passed to an `unsafe` function must be live; streams and semaphores must belong to the current context.
//! What a call reads or writes must be valid until the stream has passed the work. An object that is freed or destroyed must
//! not be used afterwards.
#![expect(unsafe_code, reason = "foreign function calls")]

use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void};
use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::sys::{
    self, CUDA_EXTERNAL_MEMORY_BUFFER_DESC, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC,
    CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, CUDA_MEMCPY3D, CUcontext, CUdevice,
    CUdeviceptr, CUevent, CUexternalMemory, CUexternalSemaphore, CUpointer_attribute as Attribute, CUstream, CUuuid,
};

use libloading::Library;

use super::stream::FillPattern;
use super::{fork, load_library, os};
use crate::error::{Call, CudaCode};
use crate::{Error, Result};

/// The driver's name, as passed to `dlopen`.
pub(crate) const LIBRARY: &str = "libcuda.so.1";
/// Declares [`Cuda`]: one field for each driver function, under the driver's own name.
macro_rules! driver_functions {
    (
        required { $($name:ident($($arg:ty),*);)* }
        optional { $($maybe:ident($($maybe_arg:ty),*);)* }
    ) => {
        /// The functions of the loaded CUDA driver.
        #[expect(non_snake_case, reason = "the fields bear the driver's names")]
        pub(crate) struct Cuda {
            $(pub(super) $name: unsafe extern "C" fn($($arg),*) -> c_int,)*
            $(pub(super) $maybe: Option<unsafe extern "C" fn($($maybe_arg),*) -> c_int>,)*
        }

        impl Cuda {
            /// Looks every function up.
            fn find(library: &Library) -> Result<Self> {
                Ok(Self {
                    // SAFETY: the signature is the one in cuda.h for this symbol.
                    $($name: *unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) }
                        .map_err(|_| Error::Symbol { library: LIBRARY, symbol: stringify!($name) })?,)*
                    // SAFETY: as above.
                    $($maybe: unsafe { library.get(concat!(stringify!($maybe), "\0").as_bytes()) }
                        .ok().map(|symbol| *symbol),)*
                })
            }
        }
    };
}

driver_functions! {
    required {
        cuInit(c_uint);
        cuDriverGetVersion(*mut c_int);
        cuGetErrorName(c_int, *mut *const c_char);
        cuDeviceGetCount(*mut c_int);
        cuDeviceGetPCIBusId(*mut c_char, c_int, CUdevice);
        cuDeviceGetName(*mut c_char, c_int, CUdevice);
        cuDeviceGetAttribute(*mut c_int, c_int, CUdevice);
        cuDeviceGetUuid_v2(*mut CUuuid, CUdevice);
        cuDevicePrimaryCtxGetState(CUdevice, *mut c_uint, *mut c_int);
        cuDeviceTotalMem_v2(*mut usize, CUdevice);
        cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);
        cuDevicePrimaryCtxRelease_v2(CUdevice);
        cuCtxGetCurrent(*mut CUcontext);
        cuCtxGetDevice(*mut CUdevice);
        cuCtxPushCurrent_v2(CUcontext);
        cuCtxPopCurrent_v2(*mut CUcontext);
        cuCtxSynchronize();
        cuImportExternalMemory(*mut CUexternalMemory, *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC);
        cuExternalMemoryGetMappedBuffer(*mut CUdeviceptr, CUexternalMemory, *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC);
        cuDestroyExternalMemory(CUexternalMemory);
        cuMemAlloc_v2(*mut CUdeviceptr, usize);
        cuMemGetAddressRange_v2(*mut CUdeviceptr, *mut usize, CUdeviceptr);
        cuMemFree_v2(CUdeviceptr);
        cuMemGetInfo_v2(*mut usize, *mut usize);
        cuPointerGetAttributes(c_uint, *const c_uint, *mut *mut c_void, CUdeviceptr);
        cuMemHostRegister_v2(*mut c_void, usize, c_uint);
        cuMemHostGetDevicePointer_v2(*mut CUdeviceptr, *mut c_void, c_uint);
        cuMemHostUnregister(*mut c_void);
        cuStreamCreate(*mut CUstream, c_uint);
        cuStreamDestroy_v2(CUstream);
        cuStreamGetCtx(CUstream, *mut CUcontext);
        cuStreamSynchronize(CUstream);
        cuStreamWaitEvent(CUstream, CUevent, c_uint);
        cuEventCreate(*mut CUevent, c_uint);
        cuEventRecord(CUevent, CUstream);
        cuEventQuery(CUevent);
        cuEventSynchronize(CUevent);
        cuEventDestroy_v2(CUevent);
        cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream);
        cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream);
        cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, usize, CUstream);
        cuMemcpyPeerAsync(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, usize, CUstream);
        cuMemcpy3DAsync_v2(*const CUDA_MEMCPY3D, CUstream);
        cuMemsetD8Async(CUdeviceptr, c_uchar, usize, CUstream);
        cuMemsetD16Async(CUdeviceptr, c_ushort, usize, CUstream);
        cuMemsetD32Async(CUdeviceptr, c_uint, usize, CUstream);
        cuImportExternalSemaphore(*mut CUexternalSemaphore, *const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC);
        cuSignalExternalSemaphoresAsync(*const CUexternalSemaphore, *const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, c_uint, CUstream);
        cuWaitExternalSemaphoresAsync(*const CUexternalSemaphore, *const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, c_uint, CUstream);
        cuDestroyExternalSemaphore(CUexternalSemaphore);
        cuStreamIsCapturing(CUstream, *mut c_uint);
        cuThreadExchangeStreamCaptureMode(*mut c_uint);
    }
    optional {
        // Since CUDA 12.0.
        cuCtxGetId(CUcontext, *mut c_ulonglong);
        // Since CUDA 11.7.
        cuMemGetHandleForAddressRange(*mut c_void, CUdeviceptr, usize, c_uint, c_ulonglong);
    }
}

/// Calls a driver function and turns its code into a result that names it: as the [`Call`] that is given, or by its name.
/// A function after `?` is one that drivers may lack.
macro_rules! call {
    ($driver:expr, $name:ident($($arg:expr),*)) => { call!($driver, $name($($arg),*) as stringify!($name)) };
    ($driver:expr, $name:ident($($arg:expr),*) as $call:expr) => {
        // SAFETY: the table holds the driver's own function of that name. Out-pointers are live locals, and handles
        // come from the driver (the caller's obligation, where the function is unsafe).
        $driver.check($call, unsafe { ($driver.$name)($($arg),*) })
    };
    ($driver:expr, ?$name:ident($($arg:expr),*)) => { call!($driver, ?$name($($arg),*) as stringify!($name)) };
    ($driver:expr, ?$name:ident($($arg:expr),*) as $call:expr) => {
        match $driver.$name {
            // SAFETY: as above.
            Some(function) => $driver.check($call, unsafe { function($($arg),*) }),
            None => Err(Error::Symbol { library: LIBRARY, symbol: stringify!($name) }),
        }
    };
}
pub(super) use call;

/// What a call writes to its output, which is `value` at first.
fn output<T>(mut value: T, call: impl FnOnce(*mut T) -> Result<()>) -> Result<T> {
    call(&raw mut value)?;
    Ok(value)
}

/// Calls the driver, and once more when it fails: the error may be one of earlier, asynchronous work, which is reported
/// once.
pub(crate) fn retry_once<T>(call: impl Fn() -> Result<T>) -> Result<T> {
    call().or_else(|_| call())
}

/// The CUDA driver, loaded at the first call. A failure is not remembered: the next call tries again. Every use of the driver
/// passes this check, which fails in a child that was forked after the driver was loaded.
#[inline]
pub(crate) fn cuda() -> Result<&'static Cuda> {
    fork::check()?;
    CUDA.get().map_or_else(load, Ok)
}

/// The driver, started.
pub(crate) fn started() -> Result<&'static Cuda> {
    let cuda = cuda()?;
    cuda.init()?;
    Ok(cuda)
}

static CUDA: OnceLock<Cuda> = OnceLock::new();

#[cold]
fn load() -> Result<&'static Cuda> {
    // Vulkan is loaded after CUDA, so that this covers both.
    fork::watch_forks()?;
    let loaded = load_library(LIBRARY)
        .map_err(|reason| Error::Library { library: LIBRARY, reason })
        .and_then(|library| Cuda::find(&library));
    let kept = loaded.map(|loaded| CUDA.set(loaded).is_ok());
    if !matches!(kept, Ok(true)) {
        // Without a driver, or with that of a faster thread, which watches.
        fork::stop_watching_forks();
    }
    kept.map(|_| CUDA.get().expect("this thread or a faster one has set it"))
}

/// The kind of memory at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// The driver does not know the address.
    Unknown,
    Device,
    Host,
    Managed,
}

/// Live memory, as the driver describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryAt {
    pub(crate) placement: Placement,
    pub(crate) device: CUdevice,
    /// Unique in the process ("subsequent allocations do not reuse IDs", CUDA driver API); 0 where the driver gives none.
    pub(crate) buffer_id: c_ulonglong,
}

// The driver writes these as integers, which may have values that today's enums lack.
const MEMORY_TYPE_HOST: c_uint = sys::CUmemorytype::CU_MEMORYTYPE_HOST as c_uint;
const MEMORY_TYPE_DEVICE: c_uint = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE as c_uint;
const CAPTURE_STATUS_NONE: c_uint = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE as c_uint;
const CAPTURE_MODE_RELAXED: c_uint = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED as c_uint;
const WAIT_DEFAULT: c_uint = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT as c_uint;
// By their numbers in cuda.h: cudarc's bindings are those of the nvcc that is found, and the ones before CUDA 12.8 lack a name.
/// `CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID`.
static MEMORY_BLOCK_ID: c_uint = 20;
/// `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD`.
const DMA_BUF_FD: c_uint = 1;
/// `CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE`.
const MAPPING_TYPE_PCIE: c_ulonglong = 1;

impl Cuda {
    #[inline]
    pub(crate) fn check(&self, call: impl Into<Call>, code: c_int) -> Result<()> {
        if code == CudaCode::SUCCESS { Ok(()) } else { Err(self.error(call.into(), code)) }
    }

    #[cold]
    pub(super) fn error(&self, call: Call, code: c_int) -> Error {
        let mut name = ptr::null();
        // SAFETY: `name` is a live local; an unknown code leaves it null.
        unsafe { (self.cuGetErrorName)(code, &raw mut name) };
        // SAFETY: the driver's names are static strings, and the library is never unloaded.
        let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr::<'static>(name) });
        // The documented name: without the suffix of the ABI version.
        let call =
            if let Call::Other(symbol) = call { symbol.strip_suffix("_v2").unwrap_or(symbol).into() } else { call };
        Error::cuda(call, CudaCode::new(code, name.and_then(|n| n.to_str().ok())))
    }
}

/// The driver, its devices and contexts.
impl Cuda {
    /// Starts the driver, if it has not started yet.
    ///
    /// A failure is remembered, unless it may pass: on real drivers each that fails leaves descriptors and a thread behind
    /// (docs/hardware.md). A forked child of a process with a remembered failure returns the same. Until one has succeeded, any other
    /// child tries for itself.
    fn init(&self) -> Result<()> {
        static STARTED: AtomicBool = AtomicBool::new(false);
        static FAILED: OnceLock<CudaCode> = OnceLock::new();
        /// The watch that loading began has ended.
        static ENDED: AtomicBool = AtomicBool::new(false);
        let start = || call!(self, cuInit(0) as Call::StartCuda);
        if STARTED.load(Ordering::Relaxed) {
            return start();
        }
        if let Some(&code) = FAILED.get() {
            return Err(Error::cuda(Call::StartCuda, code));
        }
        // Each attempt has a watch of its own. The first that succeeds keeps it.
        fork::watch_forks()?;
        let started = start();
        match &started {
            Ok(()) if !STARTED.swap(true, Ordering::Relaxed) => return started,
            Err(Error::Cuda { code, .. }) if !STARTED.load(Ordering::Relaxed) => {
                if !code.is_transient() {
                    // Of two threads, the first is remembered.
                    let _ = FAILED.set(*code);
                }
                if !ENDED.swap(true, Ordering::Relaxed) {
                    fork::stop_watching_forks();
                }
            }
            _ => {}
        }
        fork::stop_watching_forks();
        started
    }

    /// The newest CUDA version that the driver supports, as `1000 * major + 10 * minor`.
    pub(crate) fn version(&self) -> Result<i32> {
        output(0, |version| call!(self, cuDriverGetVersion(version)))
    }

    pub(crate) fn device_count(&self) -> Result<i32> {
        output(0, |count| call!(self, cuDeviceGetCount(count)))
    }

    pub(crate) fn device_uuid(&self, device: CUdevice) -> Result<[u8; 16]> {
        let uuid = output(CUuuid { bytes: [0; 16] }, |uuid| call!(self, cuDeviceGetUuid_v2(uuid, device)))?;
        Ok(uuid.bytes.map(|byte| byte.to_ne_bytes()[0]))
    }

    pub(crate) fn device_name(&self, device: CUdevice) -> Result<String> {
        let name = output([0; 256], |name| call!(self, cuDeviceGetName(name.cast(), 256, device)))?;
        Ok(text(&name))
    }

    /// Domain, bus, device and function in hexadecimal digits, such as `0000:41:00.0`.
    pub(crate) fn device_pci_bus_id(&self, device: CUdevice) -> Result<String> {
        let id = output([0; 64], |id| call!(self, cuDeviceGetPCIBusId(id.cast(), 64, device)))?;
        Ok(text(&id))
    }

    /// An integer property of a device, by its number; `CUDA_ERROR_INVALID_VALUE` for one that the driver does not know.
    pub(crate) fn device_attribute(&self, number: c_int, device: CUdevice) -> Result<c_int> {
        output(0, |value| call!(self, cuDeviceGetAttribute(value, number, device)))
    }

    /// The bytes of a device's memory.
    pub(crate) fn device_total_memory(&self, device: CUdevice) -> Result<u64> {
        output(0, |size| call!(self, cuDeviceTotalMem_v2(size, device))).map(|size| size as u64)
    }

    /// Whether the device's primary context exists.
    pub(super) fn primary_context_is_active(&self, device: CUdevice) -> Result<bool> {
        let mut flags = 0;
        let active = output(0, |active| call!(self, cuDevicePrimaryCtxGetState(device, &raw mut flags, active)))?;
        Ok(active != 0)
    }

    /// The context that is current on this thread, or null.
    pub(super) fn context_current(&self) -> Result<CUcontext> {
        output(ptr::null_mut(), |context| call!(self, cuCtxGetCurrent(context)))
    }

    /// The id of a context that was just retained, or with null of the current one, which may have been destroyed. Unique in
    /// the process; none before CUDA 12.
    #[inline]
    pub(super) fn context_id(&self, context: CUcontext) -> Result<Option<u64>> {
        if self.cuCtxGetId.is_none() {
            return Ok(None);
        }
        output(0, |id| call!(self, ?cuCtxGetId(context, id))).map(Some)
    }

    /// The device of the current context; `CUDA_ERROR_INVALID_CONTEXT` when there is none.
    pub(crate) fn context_device(&self) -> Result<CUdevice> {
        output(0, |device| call!(self, cuCtxGetDevice(device)))
    }

    pub(super) fn context_pop(&self) -> Result<()> {
        let mut context = ptr::null_mut();
        call!(self, cuCtxPopCurrent_v2(&raw mut context))
    }

    /// Waits for all work of the current context.
    pub(crate) fn context_synchronize(&self) -> Result<()> {
        call!(self, cuCtxSynchronize())
    }
}

/// Memory.
impl Cuda {
    /// The bytes of device memory that are free, of the current context's device.
    pub(crate) fn free_memory(&self) -> Result<u64> {
        let mut total = 0;
        output(0, |free| call!(self, cuMemGetInfo_v2(free, &raw mut total))).map(|free| free as u64)
    }

    /// The device of a device address; `None` for host addresses, and for addresses that the driver does not know.
    pub(crate) fn pointer_device(&self, address: CUdeviceptr) -> Result<Option<CUdevice>> {
        let (mut memory_type, mut device) = (0_u32, 0_i32);
        let memory_type_at = (Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (&raw mut memory_type).cast());
        let device_at = (Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (&raw mut device).cast());
        self.pointer_attributes(address, [memory_type_at, device_at])?;
        Ok(if memory_type == MEMORY_TYPE_DEVICE { Some(device) } else { None })
    }

    /// Whether a host address is in pages that the driver has locked, so that the copy engine can access them.
    pub(crate) fn is_page_locked(&self, address: *const u8) -> Result<bool> {
        let mut memory_type = 0_u32;
        let memory_type_at = (Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (&raw mut memory_type).cast());
        self.pointer_attributes(address.addr() as CUdeviceptr, [memory_type_at])?;
        Ok(memory_type == MEMORY_TYPE_HOST)
    }

    /// The memory at an address.
    pub(crate) fn memory_at(&self, address: CUdeviceptr) -> Result<MemoryAt> {
        // Whether the driver writes one byte or four for a boolean is not documented.
        let (mut memory_type, mut device, mut managed) = (0_u32, 0_i32, 0_u32);
        let mut buffer_id = 0_u64;
        let attributes = [
            (Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (&raw mut memory_type).cast()),
            (Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (&raw mut device).cast()),
            (Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED, (&raw mut managed).cast()),
            (Attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID, (&raw mut buffer_id).cast()),
        ];
        self.pointer_attributes(address, attributes)?;
        let placement = match memory_type {
            MEMORY_TYPE_DEVICE | MEMORY_TYPE_HOST if managed & 0xff != 0 => Placement::Managed,
            MEMORY_TYPE_DEVICE => Placement::Device,
            MEMORY_TYPE_HOST => Placement::Host,
            _ => Placement::Unknown,
        };
        Ok(MemoryAt { placement, device, buffer_id })
    }

    /// The id of the physical allocation at an address of device memory, unique in the process.
    pub(crate) fn memory_block_id(&self, address: CUdeviceptr) -> Result<c_ulonglong> {
        let mut id = 0_u64;
        let mut id_at: *mut c_void = (&raw mut id).cast();
        call!(self, cuPointerGetAttributes(1, &raw const MEMORY_BLOCK_ID, &raw mut id_at, address))?;
        Ok(id)
    }

    /// Asks for attributes of an address, each with the place of its value, a live local of the attribute's type.
    fn pointer_attributes<const N: usize>(
        &self,
        address: CUdeviceptr,
        attributes: [(Attribute, *mut c_void); N],
    ) -> Result<()> {
        let (names, mut values) = (attributes.map(|(name, _)| name as c_uint), attributes.map(|(_, value)| value));
        let count = c_uint::try_from(N).expect("a few attributes");
        call!(self, cuPointerGetAttributes(count, names.as_ptr(), values.as_mut_ptr(), address))
    }

    /// The allocation that contains an address, or the mapping of virtual memory: its first address and its bytes. A context
    /// must be current.
    pub(crate) fn address_range(&self, address: CUdeviceptr) -> Result<(CUdeviceptr, usize)> {
        let (mut start, mut len) = (0, 0);
        call!(self, cuMemGetAddressRange_v2(&raw mut start, &raw mut len, address))?;
        Ok((start, len))
    }

    /// A new descriptor, a dma-buf, of a range of device memory in whole pages of 64 KiB. It keeps the pages alive. A
    /// context of the device must be current. With `pcie` the range is accessed through the PCIe BAR, even where there
    /// is another way. [`Error::Symbol`] before CUDA 11.7.
    pub(crate) fn dma_buf(&self, start: CUdeviceptr, len: usize, pcie: bool) -> Result<OwnedFd> {
        let flags = if pcie { MAPPING_TYPE_PCIE } else { 0 };
        let mut fd: c_int = -1;
        let to = (&raw mut fd).cast();
        call!(self, ?cuMemGetHandleForAddressRange(to, start, len, DMA_BUF_FD, flags) as Call::ExportDmaBuf)?;
        // SAFETY: a new descriptor, which the driver gave to the caller.
        unsafe { os::take(fd) }
    }
}

/// Streams: captures, waits, copies, fills.
impl Cuda {
    /// Runs `work` in relaxed capture mode: its calls are not part of any stream capture. While a capture in global
    /// mode is active, CUDA would otherwise refuse some of them and invalidate the capture
    /// (`cuThreadExchangeStreamCaptureMode`).
    pub(crate) fn outside_captures<T>(&self, work: impl FnOnce() -> T) -> T {
        let exchange = |mode| retry_once(|| output(mode, |mode| call!(self, cuThreadExchangeStreamCaptureMode(mode))));
        let before = exchange(CAPTURE_MODE_RELAXED);
        let value = work();
        if let Ok(before) = before {
            // A failure, like a panic of `work`, leaves the relaxed mode, which forbids nothing.
            let _ = exchange(before);
        }
        value
    }

    /// Runs `release`, and again outside of captures if one forbids it: nothing is leaked, although the first call has made that
    /// capture invalid.
    #[inline]
    pub(super) fn despite_captures(&self, release: impl Fn() -> Result<()>) -> Result<()> {
        match release() {
            Err(error) if error.is_of_capture() => self.outside_captures(release),
            result => result,
        }
    }

    pub(crate) unsafe fn stream_context(&self, stream: CUstream) -> Result<CUcontext> {
        output(ptr::null_mut(), |context| call!(self, cuStreamGetCtx(stream, context)))
    }

    /// Whether a capture records the stream's work, or did until it became invalid. Unlike a question about the work itself, it
    /// leaves the capture valid (`cuStreamIsCapturing`).
    pub(crate) unsafe fn stream_is_capturing(&self, stream: CUstream) -> Result<bool> {
        let status = output(CAPTURE_STATUS_NONE, |status| call!(self, cuStreamIsCapturing(stream, status)))?;
        Ok(status != CAPTURE_STATUS_NONE)
    }

    pub(crate) unsafe fn stream_synchronize(&self, stream: CUstream) -> Result<()> {
        call!(self, cuStreamSynchronize(stream))
    }

    /// A new event of the current context, without timing.
    pub(crate) fn create_event(&self) -> Result<CUevent> {
        const FLAGS: c_uint = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as c_uint;
        output(ptr::null_mut(), |event| call!(self, cuEventCreate(event, FLAGS)))
    }

    /// Records the event after all work that was submitted to the stream so far.
    pub(crate) unsafe fn record_event(&self, event: CUevent, stream: CUstream) -> Result<()> {
        call!(self, cuEventRecord(event, stream))
    }

    /// Whether the stream has passed the event. Does not wait.
    pub(crate) unsafe fn event_is_complete(&self, event: CUevent) -> Result<bool> {
        // SAFETY: by this function's contract.
        match unsafe { (self.cuEventQuery)(event) } {
            CudaCode::NOT_READY => Ok(false),
            code => self.check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Waits until the stream has passed the event.
    pub(crate) unsafe fn event_synchronize(&self, event: CUevent) -> Result<()> {
        call!(self, cuEventSynchronize(event))
    }

    pub(crate) unsafe fn destroy_event(&self, event: CUevent) -> Result<()> {
        call!(self, cuEventDestroy_v2(event))
    }

    /// Makes later work of the stream wait for the work before the event.
    pub(crate) unsafe fn stream_wait_event(&self, stream: CUstream, event: CUevent) -> Result<()> {
        call!(self, cuStreamWaitEvent(stream, event, WAIT_DEFAULT))
    }

    pub(crate) unsafe fn copy_host_to_device(
        &self,
        to: CUdeviceptr,
        from: *const u8,
        len: usize,
        stream: CUstream,
    ) -> Result<()> {
        call!(self, cuMemcpyHtoDAsync_v2(to, from.cast::<c_void>(), len, stream))
    }

    pub(crate) unsafe fn copy_device_to_host(
        &self,
        to: *mut u8,
        from: CUdeviceptr,
        len: usize,
        stream: CUstream,
    ) -> Result<()> {
        call!(self, cuMemcpyDtoHAsync_v2(to.cast::<c_void>(), from, len, stream))
    }

    pub(crate) unsafe fn copy_on_device(
        &self,
        to: CUdeviceptr,
        from: CUdeviceptr,
        len: usize,
        stream: CUstream,
    ) -> Result<()> {
        call!(self, cuMemcpyDtoDAsync_v2(to, from, len, stream))
    }

    /// Copies between two contexts' memory, each address with its context.
    pub(crate) unsafe fn copy_between_contexts(
        &self,
        (to, to_context): (CUdeviceptr, CUcontext),
        (from, from_context): (CUdeviceptr, CUcontext),
        len: usize,
        stream: CUstream,
    ) -> Result<()> {
        call!(self, cuMemcpyPeerAsync(to, to_context, from, from_context, len, stream))
    }

    /// Copies rows and slices.
    pub(crate) unsafe fn copy_3d(&self, copy: &CUDA_MEMCPY3D, stream: CUstream) -> Result<()> {
        call!(self, cuMemcpy3DAsync_v2(ptr::from_ref(copy), stream))
    }

    /// Repeats a value `count` times.
    pub(crate) unsafe fn fill(
        &self,
        to: CUdeviceptr,
        pattern: FillPattern,
        count: usize,
        stream: CUstream,
    ) -> Result<()> {
        match pattern {
            FillPattern::One(value) => call!(self, cuMemsetD8Async(to, value, count, stream)),
            FillPattern::Two(value) => call!(self, cuMemsetD16Async(to, value, count, stream)),
            FillPattern::Four(value) => call!(self, cuMemsetD32Async(to, value, count, stream)),
        }
    }
}

/// Timeline semaphores of Vulkan.
#[cfg(feature = "vulkan")]
impl Cuda {
    /// Imports a timeline semaphore. On success the driver owns `fd`.
    ///
    /// # Safety
    ///
    /// `fd` must be an opaque file descriptor of a timeline semaphore.
    pub(crate) unsafe fn semaphore_import(&self, fd: c_int) -> Result<CUexternalSemaphore> {
        let desc = CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC {
            type_: sys::CUexternalSemaphoreHandleType::CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD,
            handle: sys::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_st__bindgen_ty_1 { fd },
            flags: 0,
            reserved: [0; 16],
        };
        let import = |to| call!(self, cuImportExternalSemaphore(to, &raw const desc) as Call::ImportSemaphore);
        output(ptr::null_mut(), import)
    }

    /// Makes a stream set a semaphore to a value, after the stream's earlier work.
    ///
    /// # Safety
    ///
    /// The value must be greater than any that the semaphore has or will have by then.
    pub(crate) unsafe fn semaphore_signal(
        &self,
        semaphore: CUexternalSemaphore,
        value: u64,
        stream: CUstream,
    ) -> Result<()> {
        // SAFETY: a structure of numbers, all of which may be 0.
        let mut params: CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS = unsafe { std::mem::zeroed() };
        params.params.fence.value = value;
        call!(self, cuSignalExternalSemaphoresAsync(&raw const semaphore, &raw const params, 1, stream))
    }

    /// Makes a stream's later work wait until a semaphore has reached a value.
    pub(crate) unsafe fn semaphore_wait(
        &self,
        semaphore: CUexternalSemaphore,
        value: u64,
        stream: CUstream,
    ) -> Result<()> {
        // SAFETY: a structure of numbers, all of which may be 0.
        let mut params: CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS = unsafe { std::mem::zeroed() };
        params.params.fence.value = value;
        call!(self, cuWaitExternalSemaphoresAsync(&raw const semaphore, &raw const params, 1, stream))
    }

    /// A call that is refused has not destroyed the semaphore. No work may use it, now or later.
    pub(crate) unsafe fn semaphore_destroy(&self, semaphore: CUexternalSemaphore) -> Result<()> {
        self.despite_captures(|| call!(self, cuDestroyExternalSemaphore(semaphore)))
    }
}

/// The text in a buffer that a driver filled.
fn text(buffer: &[u8]) -> String {
    let text = CStr::from_bytes_until_nul(buffer).unwrap_or_default();
    text.to_string_lossy().into_owned()
}
