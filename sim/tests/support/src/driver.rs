//! The CUDA driver of this process, and the helpers' calls of it.
//!
//! Function pointers return plain integers, since a code unknown to this version of cudarc must stay a number.
//! `libcuda` is opened by cudarc, so that it is the handle that the programs under test use.
#![expect(unsafe_code, reason = "opens libcuda and calls its functions")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use cudarc::driver::sys::{
    self, CUDA_EXTERNAL_MEMORY_BUFFER_DESC, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUcontext, CUdevice, CUdeviceptr,
    CUevent, CUexternalMemory, CUstream, CUuuid,
};
use libloading::Library;

use crate::simcuda;

/// `libcuda`, opened once and never closed; `None` where it is missing.
pub(crate) fn library() -> Option<&'static Library> {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    let present = *PRESENT.get_or_init(|| {
        // SAFETY: opens and closes `libcuda`, whose constructors have no preconditions.
        unsafe { sys::is_culib_present() }
    });
    present.then(|| {
        // SAFETY: as above; the library can be opened, so that this does not panic.
        unsafe { sys::culib() }
    })
}

/// Whether the driver is NVIDIA's. Loads it, but does not initialise it.
#[must_use]
pub fn is_real() -> bool {
    library().is_some() && simcuda().is_none()
}

/// A number of rounds: fewer on a real driver, where a context, an allocation or a process takes milliseconds to seconds.
#[must_use]
pub fn rounds<T>(simulated: T, real: T) -> T {
    if is_real() { real } else { simulated }
}

/// Whether a real driver is present and has at least one device. Initialises the driver.
#[must_use]
pub fn has_gpu() -> bool {
    is_real() && device_count() > 0
}

/// The number of the driver's devices; 0 without a driver or if it does not initialise.
#[must_use]
pub fn device_count() -> i32 {
    let mut count = 0;
    if library().is_none() || init() != 0 {
        return 0;
    }
    // SAFETY: `count` is a valid output.
    let code = unsafe { call::cuDeviceGetCount(&raw mut count) };
    if code == 0 { count } else { 0 }
}

/// The version of CUDA that the driver reports: 1000 for each major, 10 for each minor version.
///
/// # Panics
/// When it reports none.
#[must_use]
#[track_caller]
pub fn version() -> i32 {
    let mut version = 0;
    // SAFETY: `version` is a valid output.
    check("cuDriverGetVersion", unsafe { call::cuDriverGetVersion(&raw mut version) });
    version
}

/// Initialises the driver and returns its code, 0 for success.
#[must_use]
pub fn init() -> i32 {
    // SAFETY: `cuInit` takes flags, which must be 0, and may be called again.
    unsafe { call::cuInit(0) }
}

/// Initialises the driver.
///
/// # Panics
/// When it does not initialise.
#[track_caller]
pub fn initialise() {
    check("cuInit", init());
}

/// A device's PCI address, such as `0000:01:00.0`.
///
/// # Panics
/// When the driver refuses.
#[must_use]
#[track_caller]
pub fn pci_bus_id(ordinal: c_int) -> String {
    let mut device = 0;
    // SAFETY: `device` is a valid output.
    check("cuDeviceGet", unsafe { call::cuDeviceGet(&raw mut device, ordinal) });
    let mut text = [0_u8; 32];
    // SAFETY: `text` is writable for 32 bytes.
    check("cuDeviceGetPCIBusId", unsafe { call::cuDeviceGetPCIBusId(text.as_mut_ptr().cast(), 32, device) });
    CStr::from_bytes_until_nul(&text).unwrap_or_default().to_string_lossy().into_owned()
}

/// The driver's name of a code, such as `CUDA_ERROR_INVALID_CONTEXT`, or the number if it has none.
#[must_use]
pub fn error_name(code: i32) -> String {
    let mut name: *const c_char = std::ptr::null();
    // SAFETY: `name` is a valid output; any integer is allowed as the code.
    let result = unsafe { call::cuGetErrorName(code, &raw mut name) };
    if result != 0 || name.is_null() {
        return format!("CUDA error {code}");
    }
    // SAFETY: on success it is a terminated string that lives as long as the driver.
    let name = unsafe { CStr::from_ptr(name) };
    name.to_string_lossy().into_owned()
}

/// Panics with the function and the driver's name for the code, unless it is success.
#[track_caller]
pub(crate) fn check(function: &str, code: i32) {
    assert!(code == 0, "{function} failed: {} ({code})", error_name(code));
}

/// Prints a failure in a destructor, where a panic is not allowed.
pub(crate) fn report(function: &str, code: i32) {
    if code != 0 {
        eprintln!("support: {function} failed: {} ({code})", error_name(code));
    }
}

/// Whether the driver exports a function.
#[must_use]
pub(crate) fn exports(name: &CStr) -> bool {
    // SAFETY: only the address is taken.
    library().is_some_and(|library| unsafe { library.get::<*mut c_void>(name) }.is_ok())
}

/// A function of the driver.
///
/// # Panics
/// When there is no driver, or it lacks the function.
///
/// # Safety
/// `F` must be the type of the function of that name.
#[must_use]
pub unsafe fn function<F: Copy>(name: &str) -> F {
    let library = library().unwrap_or_else(|| panic!("there is no libcuda"));
    // SAFETY: by this function's contract.
    let found = unsafe { library.get::<F>(name) };
    *found.unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Wrappers that look up the function once and return its code as an integer.
macro_rules! driver_functions {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        /// The CUDA driver functions used by the helpers, by their exported names.
        #[expect(non_snake_case, reason = "the names are the driver's")]
        pub(crate) mod call {
            use super::*;

            $(
                /// # Safety
                /// As documented by the CUDA driver API for this function.
                pub(crate) unsafe fn $name($($argument: $type),*) -> c_int {
                    type Function = unsafe extern "C" fn($($type),*) -> c_int;
                    static FUNCTION: OnceLock<Function> = OnceLock::new();
                    // SAFETY: the signature is that of the CUDA driver API.
                    let function = FUNCTION.get_or_init(|| unsafe { function(stringify!($name)) });
                    // SAFETY: by this function's contract.
                    unsafe { function($($argument),*) }
                }
            )*
        }
    };
}

driver_functions! {
    cuInit(flags: c_uint);
    cuDriverGetVersion(version: *mut c_int);
    cuGetErrorName(code: c_int, name: *mut *const c_char);
    cuDeviceGetCount(count: *mut c_int);
    cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    cuDeviceGetPCIBusId(text: *mut c_char, len: c_int, device: CUdevice);
    cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice);
    cuCtxCreate_v2(context: *mut CUcontext, flags: c_uint, device: CUdevice);
    cuCtxCreate_v4(context: *mut CUcontext, parameters: *mut c_void, flags: c_uint, device: CUdevice);
    cuCtxDestroy_v2(context: CUcontext);
    cuCtxGetCurrent(context: *mut CUcontext);
    cuCtxPushCurrent_v2(context: CUcontext);
    cuCtxPopCurrent_v2(context: *mut CUcontext);
    cuCtxSynchronize();
    cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    cuDevicePrimaryCtxReset_v2(device: CUdevice);
    cuStreamCreate(stream: *mut CUstream, flags: c_uint);
    cuStreamDestroy_v2(stream: CUstream);
    cuStreamSynchronize(stream: CUstream);
    cuStreamQuery(stream: CUstream);
    cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
    cuEventCreate(event: *mut CUevent, flags: c_uint);
    cuEventRecord(event: CUevent, stream: CUstream);
    cuEventDestroy_v2(event: CUevent);
    cuLaunchHostFunc(stream: CUstream, function: unsafe extern "C" fn(*mut c_void), data: *mut c_void);
    cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
    cuMemAllocManaged(address: *mut CUdeviceptr, bytes: usize, flags: c_uint);
    cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: c_uint);
    cuMemFree_v2(address: CUdeviceptr);
    cuMemFreeHost(address: *mut c_void);
    cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, bytes: usize);
    cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize);
    cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemsetD8_v2(to: CUdeviceptr, value: u8, bytes: usize);
    cuMemHostRegister_v2(pages: *mut c_void, bytes: usize, flags: c_uint);
    cuMemHostUnregister(pages: *mut c_void);
    cuImportExternalMemory(memory: *mut CUexternalMemory, from: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC);
    cuExternalMemoryGetMappedBuffer(
        address: *mut CUdeviceptr, memory: CUexternalMemory, range: *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC
    );
    cuDestroyExternalMemory(memory: CUexternalMemory);
}
