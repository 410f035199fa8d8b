//! The CUDA driver API: the functions that this crate needs, each looked up once and checked at each call.
//!
//! The types are cudarc's. The functions are held here as plain pointers, since cudarc panics when the library or
//! a symbol is missing. Return codes are received as integers: a newer driver may return codes that no enum of
//! today lists.
#![expect(unsafe_code, reason = "foreign function calls")]

mod existing;
mod memory;
#[cfg(feature = "vulkan")]
mod semaphore;
mod stream;

use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void};
use std::ptr;
use std::sync::OnceLock;

use cudarc::driver::sys::{
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC,
    CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, CUDA_MEMCPY3D, CUcontext, CUdevice,
    CUdeviceptr, CUevent, CUexternalMemory, CUexternalSemaphore, CUstream, CUuuid,
};

use libloading::Library;

use super::{fork, library};
use crate::error::{Call, CudaCode};
use crate::lock::Lock;
use crate::{Error, Result};
pub(crate) use stream::FillPattern;

const LIBRARY: &str = "libcuda.so.1";
/// Declares [`Table`]: one field for each driver function, under the driver's own name.
macro_rules! driver_functions {
    (
        required { $($name:ident($($arg:ty),*);)* }
        optional { $($maybe:ident($($maybe_arg:ty),*);)* }
    ) => {
        /// The driver's functions.
        #[expect(non_snake_case, reason = "the fields bear the driver's names")]
        struct Table {
            $($name: unsafe extern "C" fn($($arg),*) -> c_int,)*
            $($maybe: Option<unsafe extern "C" fn($($maybe_arg),*) -> c_int>,)*
        }

        impl Table {
            /// Looks every function up.
            fn load(library: &'static Library) -> Result<Self> {
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
        cuCtxSetCurrent(CUcontext);
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
    }
    optional {
        // Since CUDA 12.0.
        cuCtxGetId(CUcontext, *mut c_ulonglong);
        // Since CUDA 11.7.
        cuMemGetHandleForAddressRange(*mut c_void, CUdeviceptr, usize, c_uint, c_ulonglong);
        // For Vulkan's semaphores only.
        cuImportExternalSemaphore(*mut CUexternalSemaphore, *const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC);
        cuSignalExternalSemaphoresAsync(*const CUexternalSemaphore, *const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, c_uint, CUstream);
        cuWaitExternalSemaphoresAsync(*const CUexternalSemaphore, *const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, c_uint, CUstream);
        cuDestroyExternalSemaphore(CUexternalSemaphore);
        // Not needed where nothing is captured.
        cuStreamIsCapturing(CUstream, *mut c_uint);
        cuThreadExchangeStreamCaptureMode(*mut c_uint);
    }
}

/// Calls a driver function and turns its code into a result that names it: as the [`Call`] that is given, or by its name.
macro_rules! call {
    ($driver:expr, $name:ident($($arg:expr),*)) => { call!($driver, $name($($arg),*) as stringify!($name)) };
    ($driver:expr, $name:ident($($arg:expr),*) as $call:expr) => {
        // SAFETY: the table holds the driver's own function of that name; out-pointers are live locals, and
        // handles come from the driver (the caller's obligation, where the method is unsafe).
        $driver.check($call, unsafe { ($driver.table.$name)($($arg),*) })
    };
}
use call;
pub(crate) use existing::{DeviceAttribute, MemoryAt, Placement};
use memory::{MEMORY_TYPE_DEVICE, MEMORY_TYPE_HOST};

/// The loaded CUDA driver.
pub(crate) struct Cuda {
    table: Table,
}

/// The CUDA driver, loaded at the first call.
///
/// # Errors
///
/// [`Error::Library`] or [`Error::Symbol`] when the driver is missing or lacks a function. A failure is not
/// remembered: the next call tries again. [`Error::Forked`] in a child that was forked after the driver was loaded:
/// every use of the driver passes this check.
#[inline]
pub(crate) fn cuda() -> Result<&'static Cuda> {
    fork::check()?;
    CUDA.get().map_or_else(load, Ok)
}

static CUDA: OnceLock<Cuda> = OnceLock::new();

#[cold]
fn load() -> Result<&'static Cuda> {
    let loaded = Cuda { table: Table::load(library()?)? };
    Ok(CUDA.get_or_init(|| loaded))
}

/// The driver's library, never unloaded.
fn library() -> Result<&'static Library> {
    static LOADED: Lock<Option<&'static Library>> = Lock::new(None);
    // Vulkan is loaded after CUDA, so that this covers both.
    fork::watch_forks()?;
    let mut loaded = LOADED.lock();
    if let Some(library) = *loaded {
        return Ok(library);
    }
    match library::load(LIBRARY) {
        Ok(library) => Ok(*loaded.insert(library)),
        Err(reason) => {
            // A child that is not marked must not inherit the lock.
            drop(loaded);
            fork::stop_watching_forks();
            Err(Error::Library { library: LIBRARY, reason })
        }
    }
}

impl Cuda {
    #[inline]
    pub(crate) fn check(&self, call: impl Into<Call>, code: c_int) -> Result<()> {
        if code == CudaCode::SUCCESS { Ok(()) } else { Err(self.error(call.into(), code)) }
    }

    #[cold]
    fn error(&self, call: Call, code: c_int) -> Error {
        let mut name = ptr::null();
        // SAFETY: `name` is a live local; an unknown code leaves it null.
        unsafe { (self.table.cuGetErrorName)(code, &raw mut name) };
        // SAFETY: the driver's names are static strings, and the library is never unloaded.
        let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr::<'static>(name) });
        // The documented name: without the suffix of the ABI version.
        let call =
            if let Call::Other(symbol) = call { symbol.strip_suffix("_v2").unwrap_or(symbol).into() } else { call };
        Error::cuda(call, CudaCode::new(code, name.and_then(|n| n.to_str().ok())))
    }

    /// The error for a destroyed context, where only its id shows that.
    pub(crate) fn destroyed_context(&self) -> Error {
        self.error("cuCtxPushCurrent".into(), CudaCode::CONTEXT_IS_DESTROYED)
    }

    pub(crate) fn init(&self) -> Result<()> {
        call!(self, cuInit(0) as Call::StartCuda)
    }

    pub(crate) fn device_uuid(&self, device: CUdevice) -> Result<[u8; 16]> {
        let mut uuid = CUuuid { bytes: [0; 16] };
        call!(self, cuDeviceGetUuid_v2(&raw mut uuid, device))?;
        Ok(uuid.bytes.map(|byte| byte.to_ne_bytes()[0]))
    }

    /// The newest CUDA version that the driver supports, as `1000 * major + 10 * minor`.
    pub(crate) fn version(&self) -> Result<i32> {
        let mut version = 0;
        call!(self, cuDriverGetVersion(&raw mut version))?;
        Ok(version)
    }

    pub(crate) fn device_count(&self) -> Result<i32> {
        let mut count = 0;
        call!(self, cuDeviceGetCount(&raw mut count))?;
        Ok(count)
    }

    pub(crate) fn device_name(&self, device: CUdevice) -> Result<String> {
        let mut name = [0 as c_char; 256];
        call!(self, cuDeviceGetName(name.as_mut_ptr(), 256, device))?;
        Ok(text(&name))
    }

    /// Domain, bus, device and function in hexadecimal digits, such as `0000:41:00.0`.
    pub(crate) fn device_pci_bus_id(&self, device: CUdevice) -> Result<String> {
        let mut id = [0 as c_char; 64];
        call!(self, cuDeviceGetPCIBusId(id.as_mut_ptr(), 64, device))?;
        Ok(text(&id))
    }

    /// Whether the device's primary context exists.
    pub(crate) fn primary_context_is_active(&self, device: CUdevice) -> Result<bool> {
        let (mut flags, mut active) = (0, 0);
        call!(self, cuDevicePrimaryCtxGetState(device, &raw mut flags, &raw mut active))?;
        Ok(active != 0)
    }

    /// The bytes of a device's memory.
    pub(crate) fn device_total_memory(&self, device: CUdevice) -> Result<u64> {
        let mut size = 0;
        call!(self, cuDeviceTotalMem_v2(&raw mut size, device))?;
        Ok(size as u64)
    }

    pub(crate) fn primary_context_retain(&self, device: CUdevice) -> Result<CUcontext> {
        let mut context = ptr::null_mut();
        call!(self, cuDevicePrimaryCtxRetain(&raw mut context, device))?;
        Ok(context)
    }

    pub(crate) fn primary_context_release(&self, device: CUdevice) -> Result<()> {
        call!(self, cuDevicePrimaryCtxRelease_v2(device))
    }

    /// The context that is current on this thread, or null.
    pub(crate) fn context_current(&self) -> Result<CUcontext> {
        let mut context = ptr::null_mut();
        call!(self, cuCtxGetCurrent(&raw mut context))?;
        Ok(context)
    }

    /// The device of the current context; `CUDA_ERROR_INVALID_CONTEXT` when there is none.
    pub(crate) fn context_device(&self) -> Result<CUdevice> {
        let mut device = 0;
        call!(self, cuCtxGetDevice(&raw mut device))?;
        Ok(device)
    }

    /// The context's id, which is unique in the process; none before CUDA 12.
    ///
    /// # Safety
    ///
    /// `context` must be a live context, or null for the current one, which may have been destroyed.
    #[inline]
    pub(crate) unsafe fn context_id(&self, context: CUcontext) -> Result<Option<u64>> {
        let Some(get_id) = self.table.cuCtxGetId else { return Ok(None) };
        let mut id = 0;
        // SAFETY: `id` is a live local and `context` is valid by this method's contract.
        self.check("cuCtxGetId", unsafe { get_id(context, &raw mut id) })?;
        Ok(Some(id))
    }

    /// Replaces the top of this thread's context stack; null pops it.
    ///
    /// # Safety
    ///
    /// `context` must be null or a live context.
    pub(crate) unsafe fn context_set_current(&self, context: CUcontext) -> Result<()> {
        call!(self, cuCtxSetCurrent(context))
    }

    /// # Safety
    ///
    /// `context` must be a live context: what the driver does with one that was destroyed is undefined.
    pub(crate) unsafe fn context_push(&self, context: CUcontext) -> Result<()> {
        call!(self, cuCtxPushCurrent_v2(context))
    }

    pub(crate) fn context_pop(&self) -> Result<()> {
        let mut context = ptr::null_mut();
        call!(self, cuCtxPopCurrent_v2(&raw mut context))
    }

    /// Waits for all work of the current context.
    pub(crate) fn context_synchronize(&self) -> Result<()> {
        crate::lock::before_wait();
        call!(self, cuCtxSynchronize())
    }
}

/// The text in a buffer that a driver filled.
fn text(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().map(|&c| c.to_ne_bytes()[0]).take_while(|&c| c != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
