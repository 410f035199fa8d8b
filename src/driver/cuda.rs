//! The CUDA driver API: the functions that this crate needs, each looked up once and checked at each call.
//!
//! The types are cudarc's. The functions are held here as plain pointers, since cudarc panics when the library or
//! a symbol is missing. Return codes are received as integers: a newer driver may return codes that no enum of
//! today lists.
#![expect(unsafe_code, reason = "foreign function calls")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong};
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};

use cudarc::driver::sys::{
    self, CUDA_EXTERNAL_MEMORY_BUFFER_DESC, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUcontext, CUdevice, CUdeviceptr,
    CUevent, CUexternalMemory, CUstream, CUuuid,
};

use libloading::Library;

use crate::error::CudaCode;
use crate::{Error, Result};

const LIBRARY: &str = "libcuda.so.1";
const SUCCESS: c_int = 0;
/// `CU_EVENT_DISABLE_TIMING`: an event that only orders.
const EVENT_DISABLE_TIMING: c_uint = 2;

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
        cuGetErrorName(c_int, *mut *const c_char);
        cuDeviceGetName(*mut c_char, c_int, CUdevice);
        cuDeviceGetUuid_v2(*mut CUuuid, CUdevice);
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
        cuMemFree_v2(CUdeviceptr);
        cuStreamGetCtx(CUstream, *mut CUcontext);
        cuStreamSynchronize(CUstream);
        cuEventCreate(*mut CUevent, c_uint);
        cuEventRecord(CUevent, CUstream);
        cuEventQuery(CUevent);
        cuEventSynchronize(CUevent);
        cuEventDestroy_v2(CUevent);
    }
    optional {
        // Since CUDA 12.0.
        cuCtxGetId(CUcontext, *mut c_ulonglong);
    }
}

/// Calls a driver function and turns its code into a result that names it.
macro_rules! call {
    ($driver:expr, $name:ident($($arg:expr),*)) => {
        // SAFETY: the table holds the driver's own function of that name; out-pointers are live locals, and
        // handles come from the driver (the caller's obligation, where the method is unsafe).
        $driver.check(stringify!($name), unsafe { ($driver.table.$name)($($arg),*) })
    };
}

/// The loaded CUDA driver.
pub(crate) struct Cuda {
    table: Table,
}

/// The CUDA driver, loaded at the first call.
///
/// # Errors
///
/// [`Error::Library`] or [`Error::Symbol`] when the driver is missing or lacks a function. A failure is not
/// remembered: the next call tries again.
pub(crate) fn cuda() -> Result<&'static Cuda> {
    static CUDA: OnceLock<Cuda> = OnceLock::new();
    if let Some(cuda) = CUDA.get() {
        return Ok(cuda);
    }
    let loaded = Cuda { table: Table::load(library()?)? };
    Ok(CUDA.get_or_init(|| loaded))
}

/// The driver's library, never unloaded.
fn library() -> Result<&'static Library> {
    static LOADED: Mutex<Option<&'static Library>> = Mutex::new(None);
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(library) = *loaded {
        return Ok(library);
    }
    // SAFETY: loading libcuda runs its initialisers, which is what the caller asked for.
    let library = unsafe { Library::new(LIBRARY) }
        .map_err(|error| Error::Library { library: LIBRARY, reason: reason(&error) })?;
    Ok(*loaded.insert(Box::leak(Box::new(library))))
}

/// What the dynamic loader said.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

impl Cuda {
    fn check(&self, operation: &'static str, code: c_int) -> Result<()> {
        if code == SUCCESS { Ok(()) } else { Err(self.error(operation, code)) }
    }

    #[cold]
    fn error(&self, operation: &'static str, code: c_int) -> Error {
        let mut name = ptr::null();
        // SAFETY: `name` is a live local; an unknown code leaves it null.
        unsafe { (self.table.cuGetErrorName)(code, &raw mut name) };
        // SAFETY: the driver's names are static strings, and the library is never unloaded.
        let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr::<'static>(name) });
        Error::Cuda { operation: public_name(operation), code: CudaCode::new(code, name.and_then(|n| n.to_str().ok())) }
    }

    /// What is said of a context that is gone, when only its number tells.
    pub(crate) fn destroyed_context(&self) -> Error {
        self.error("cuCtxPushCurrent", CudaCode::CONTEXT_IS_DESTROYED)
    }

    pub(crate) fn init(&self) -> Result<()> {
        call!(self, cuInit(0))
    }

    pub(crate) fn device_uuid(&self, device: CUdevice) -> Result<[u8; 16]> {
        let mut uuid = CUuuid { bytes: [0; 16] };
        call!(self, cuDeviceGetUuid_v2(&raw mut uuid, device))?;
        Ok(uuid.bytes.map(|byte| byte.cast_unsigned()))
    }

    pub(crate) fn device_name(&self, device: CUdevice) -> Result<String> {
        let mut name = [0 as c_char; 256];
        call!(self, cuDeviceGetName(name.as_mut_ptr(), 256, device))?;
        let bytes: Vec<u8> = name.iter().map(|&c| c.cast_unsigned()).take_while(|&c| c != 0).collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
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

    /// The number that no other context of this process ever has; none before CUDA 12.
    ///
    /// # Safety
    ///
    /// `context` must be a context, or null for the current one.
    pub(crate) unsafe fn context_id(&self, context: CUcontext) -> Result<Option<u64>> {
        let Some(get_id) = self.table.cuCtxGetId else { return Ok(None) };
        let mut id = 0;
        // SAFETY: `id` is a live local and `context` is valid by this method's contract.
        self.check("cuCtxGetId", unsafe { get_id(context, &raw mut id) })?;
        Ok(Some(id))
    }

    /// Replaces the top of this thread's stack of contexts; null takes it off.
    ///
    /// # Safety
    ///
    /// `context` must be null or have been current on this thread.
    pub(crate) unsafe fn context_set_current(&self, context: CUcontext) -> Result<()> {
        call!(self, cuCtxSetCurrent(context))
    }

    /// # Safety
    ///
    /// `context` must have been a context. The driver keeps a table of its contexts and refuses one that was
    /// destroyed, with `CUDA_ERROR_CONTEXT_IS_DESTROYED` or `CUDA_ERROR_INVALID_CONTEXT`.
    pub(crate) unsafe fn context_push(&self, context: CUcontext) -> Result<()> {
        call!(self, cuCtxPushCurrent_v2(context))
    }

    pub(crate) fn context_pop(&self) -> Result<()> {
        let mut context = ptr::null_mut();
        call!(self, cuCtxPopCurrent_v2(&raw mut context))
    }

    /// Waits for all work of the current context.
    pub(crate) fn context_synchronize(&self) -> Result<()> {
        call!(self, cuCtxSynchronize())
    }

    /// Imports exported Vulkan memory. On success the driver owns `fd`.
    ///
    /// # Safety
    ///
    /// `fd` must be an opaque file descriptor of a memory object of exactly `size` bytes.
    pub(crate) unsafe fn external_memory_import(&self, fd: c_int, size: u64) -> Result<CUexternalMemory> {
        let desc = CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
            type_: sys::CUexternalMemoryHandleType::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
            handle: sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st__bindgen_ty_1 { fd },
            size,
            flags: 0,
            reserved: [0; 16],
        };
        let mut memory = ptr::null_mut();
        call!(self, cuImportExternalMemory(&raw mut memory, &raw const desc))?;
        Ok(memory)
    }

    /// # Safety
    ///
    /// `memory` must be a live imported memory of at least `size` bytes.
    pub(crate) unsafe fn external_memory_map(&self, memory: CUexternalMemory, size: u64) -> Result<CUdeviceptr> {
        let desc = CUDA_EXTERNAL_MEMORY_BUFFER_DESC { offset: 0, size, flags: 0, reserved: [0; 16] };
        let mut pointer = 0;
        call!(self, cuExternalMemoryGetMappedBuffer(&raw mut pointer, memory, &raw const desc))?;
        Ok(pointer)
    }

    /// # Safety
    ///
    /// `memory` must be a live imported memory that is not used afterwards.
    pub(crate) unsafe fn external_memory_destroy(&self, memory: CUexternalMemory) -> Result<()> {
        call!(self, cuDestroyExternalMemory(memory))
    }

    /// # Safety
    ///
    /// `pointer` must come from [`Self::external_memory_map`] and not be used afterwards.
    pub(crate) unsafe fn memory_free(&self, pointer: CUdeviceptr) -> Result<()> {
        call!(self, cuMemFree_v2(pointer))
    }

    /// # Safety
    ///
    /// `stream` must be a live stream, or one of the default streams of the current context.
    pub(crate) unsafe fn stream_context(&self, stream: CUstream) -> Result<CUcontext> {
        let mut context = ptr::null_mut();
        call!(self, cuStreamGetCtx(stream, &raw mut context))?;
        Ok(context)
    }

    /// # Safety
    ///
    /// As for [`Self::stream_context`].
    pub(crate) unsafe fn stream_synchronize(&self, stream: CUstream) -> Result<()> {
        call!(self, cuStreamSynchronize(stream))
    }

    pub(crate) fn event_create(&self) -> Result<CUevent> {
        let mut event = ptr::null_mut();
        call!(self, cuEventCreate(&raw mut event, EVENT_DISABLE_TIMING))?;
        Ok(event)
    }

    /// # Safety
    ///
    /// `event` must be live, and `stream` as for [`Self::stream_context`].
    pub(crate) unsafe fn event_record(&self, event: CUevent, stream: CUstream) -> Result<()> {
        call!(self, cuEventRecord(event, stream))
    }

    /// Whether everything before the event has been done.
    ///
    /// # Safety
    ///
    /// `event` must be live.
    pub(crate) unsafe fn event_passed(&self, event: CUevent) -> Result<bool> {
        // SAFETY: the event is live by this method's contract.
        match unsafe { (self.table.cuEventQuery)(event) } {
            CudaCode::NOT_READY => Ok(false),
            code => self.check("cuEventQuery", code).map(|()| true),
        }
    }

    /// # Safety
    ///
    /// `event` must be live.
    pub(crate) unsafe fn event_synchronize(&self, event: CUevent) -> Result<()> {
        call!(self, cuEventSynchronize(event))
    }

    /// # Safety
    ///
    /// `event` must be live and not be used afterwards.
    pub(crate) unsafe fn event_destroy(&self, event: CUevent) -> Result<()> {
        call!(self, cuEventDestroy_v2(event))
    }
}

/// The name in the documentation: without the suffix of the ABI version.
fn public_name(symbol: &'static str) -> &'static str {
    symbol.strip_suffix("_v2").unwrap_or(symbol)
}
