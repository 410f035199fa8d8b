//! The CUDA driver, without the library under test. Each function is looked up when it is called, so that a missing one
//! is an answer too. Codes are integers.
#![expect(unsafe_code, reason = "foreign function calls")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt::Write as _;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;

use vkgdr::cudarc::driver::sys::{self, CUcontext, CUdevice, CUdeviceptr, CUfunction, CUmodule, CUstream, CUuuid};

/// A result, or the failed function with the driver's token.
pub(crate) type Answer<T> = Result<T, String>;

/// The GPU that is asked about.
pub(crate) const DEVICE: CUdevice = 0;

/// Looks up a function and calls it: `call!("cuMemFree_v2", (CUdeviceptr), (pointer))`. Unsafe, since the call is.
macro_rules! call {
    ($name:literal, ($($type:ty),*), ($($argument:expr),*)) => {{
        type Function = unsafe extern "C" fn($($type),*) -> c_int;
        // SAFETY: the signature is the one in cuda.h.
        match unsafe { symbol::<Function>(concat!($name, "\0")) } {
            // SAFETY: handles come from the driver through this file's types, pointers are to live locals, and the
            // driver checks device addresses.
            Some(function) => check($name, unsafe { function($($argument),*) }),
            None => Err(format!("{}: this driver has no such function", $name)),
        }
    }};
}

/// Looks up a function of the driver. Without a driver cudarc panics, see [`open`].
///
/// # Safety
///
/// `F` must be the type of the function of that name.
unsafe fn symbol<F: Copy>(name: &str) -> Option<F> {
    // SAFETY: the initialisers of libcuda have no preconditions.
    let library = unsafe { sys::culib() };
    // SAFETY: by this function's contract.
    unsafe { library.get::<F>(name.as_bytes()) }.ok().map(|function| *function)
}

fn check(name: &str, code: c_int) -> Answer<()> {
    if code == 0 { Ok(()) } else { Err(format!("{name}: {}", token(code))) }
}

/// The driver's name of a code.
fn token(code: c_int) -> String {
    type GetErrorName = unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int;
    let mut name: *const c_char = ptr::null();
    // SAFETY: the signature is the one in cuda.h.
    if let Some(function) = unsafe { symbol::<GetErrorName>("cuGetErrorName\0") } {
        // SAFETY: `name` is a live local.
        unsafe { function(code, &raw mut name) };
    }
    if name.is_null() {
        return format!("code {code}");
    }
    // SAFETY: the driver's names are static strings, and the library is never unloaded.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

/// Loads the driver and makes the device's primary context current on this thread.
pub(crate) fn open() -> Answer<()> {
    // SAFETY: the initialisers of libcuda have no preconditions.
    if !unsafe { sys::is_culib_present() } {
        return Err("libcuda.so.1 cannot be loaded".to_owned());
    }
    call!("cuInit", (c_uint), (0))?;
    let mut context: CUcontext = ptr::null_mut();
    call!("cuDevicePrimaryCtxRetain", (*mut CUcontext, CUdevice), (&raw mut context, DEVICE))?;
    call!("cuCtxSetCurrent", (CUcontext), (context))
}

/// True if the driver is there, and is the simulated one of sim/cuda. Initialises nothing.
pub(crate) fn is_simulated() -> bool {
    // SAFETY: the initialisers of libcuda have no preconditions.
    let is_present = unsafe { sys::is_culib_present() };
    // SAFETY: the function is looked up, never called.
    is_present && unsafe { symbol::<unsafe extern "C" fn()>("simcuda_live_objects\0") }.is_some()
}

pub(crate) fn version() -> Answer<c_int> {
    let mut version = 0;
    call!("cuDriverGetVersion", (*mut c_int), (&raw mut version))?;
    Ok(version)
}

/// `cuDeviceGetUuid_v2`, and the older `cuDeviceGetUuid`, which ignores MIG.
pub(crate) fn uuids() -> [Answer<String>; 2] {
    let mut uuid = CUuuid { bytes: [0; 16] };
    let v2 = call!("cuDeviceGetUuid_v2", (*mut CUuuid, CUdevice), (&raw mut uuid, DEVICE)).map(|()| hex(&uuid));
    let v1 = call!("cuDeviceGetUuid", (*mut CUuuid, CUdevice), (&raw mut uuid, DEVICE)).map(|()| hex(&uuid));
    [v2, v1]
}

fn hex(uuid: &CUuuid) -> String {
    uuid.bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(crate) fn attribute(attribute: c_int) -> Answer<c_int> {
    let mut value = 0;
    call!("cuDeviceGetAttribute", (*mut c_int, c_int, CUdevice), (&raw mut value, attribute, DEVICE))?;
    Ok(value)
}

pub(crate) fn synchronize() -> Answer<()> {
    call!("cuCtxSynchronize", (), ())
}

// ---- contexts -------------------------------------------------------------------------------------------------

/// The current context's address and id.
pub(crate) fn current_context() -> Answer<(usize, u64)> {
    let (mut context, mut id): (CUcontext, u64) = (ptr::null_mut(), 0);
    call!("cuCtxGetCurrent", (*mut CUcontext), (&raw mut context))?;
    call!("cuCtxGetId", (CUcontext, *mut u64), (ptr::null_mut(), &raw mut id))?;
    Ok((context.addr(), id))
}

/// Makes no context current, and destroys the primary one with all that belongs to it.
pub(crate) fn leave_and_reset() -> Answer<()> {
    call!("cuCtxSetCurrent", (CUcontext), (ptr::null_mut()))?;
    call!("cuDevicePrimaryCtxReset_v2", (CUdevice), (DEVICE))
}

/// Whether the device has a primary context.
pub(crate) fn has_primary_context() -> Answer<bool> {
    let (mut flags, mut active): (c_uint, c_int) = (0, 0);
    call!(
        "cuDevicePrimaryCtxGetState",
        (CUdevice, *mut c_uint, *mut c_int),
        (DEVICE, &raw mut flags, &raw mut active)
    )?;
    Ok(active != 0)
}

// ---- memory ---------------------------------------------------------------------------------------------------

/// Memory type, device and ids of an address, as the library asks for them.
pub(crate) fn pointer_attributes(pointer: CUdeviceptr) -> Answer<String> {
    // CU_POINTER_ATTRIBUTE_MEMORY_TYPE, _DEVICE_ORDINAL and _BUFFER_ID, together, which the driver answers also for
    // addresses that it does not know.
    let names: [c_uint; 3] = [2, 9, 7];
    let (mut kind, mut device, mut buffer): (c_uint, c_int, u64) = (0, 0, 0);
    let mut values: [*mut c_void; 3] = [(&raw mut kind).cast(), (&raw mut device).cast(), (&raw mut buffer).cast()];
    call!(
        "cuPointerGetAttributes",
        (c_uint, *const c_uint, *mut *mut c_void, CUdeviceptr),
        (3, names.as_ptr(), values.as_mut_ptr(), pointer)
    )?;
    // CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID.
    let mut block = 0_u64;
    let known =
        call!("cuPointerGetAttribute", (*mut c_void, c_int, CUdeviceptr), ((&raw mut block).cast(), 20, pointer));
    let block = known.map_or_else(|refusal| refusal, |()| block.to_string());
    Ok(format!("type {kind}, device {device}, buffer {buffer}, block {block}"))
}

/// `cuMemAlloc`.
pub(crate) struct Buffer(pub(crate) CUdeviceptr);

impl Buffer {
    pub(crate) fn new(len: usize) -> Answer<Self> {
        let mut pointer = 0;
        call!("cuMemAlloc_v2", (*mut CUdeviceptr, usize), (&raw mut pointer, len))?;
        Ok(Self(pointer))
    }

    /// Frees it, with the driver's answer.
    pub(crate) fn free(self) -> Answer<()> {
        let pointer = ManuallyDrop::new(self).0;
        call!("cuMemFree_v2", (CUdeviceptr), (pointer))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let _ = call!("cuMemFree_v2", (CUdeviceptr), (self.0));
    }
}

pub(crate) fn memset(pointer: CUdeviceptr, value: u8, len: usize) -> Answer<()> {
    call!("cuMemsetD8_v2", (CUdeviceptr, u8, usize), (pointer, value, len))
}

pub(crate) fn read_word(source: CUdeviceptr) -> Answer<u32> {
    let mut word = 0_u32;
    call!("cuMemcpyDtoH_v2", (*mut c_void, CUdeviceptr, usize), ((&raw mut word).cast(), source, 4))?;
    Ok(word)
}

/// A dma-buf of a range. Flag 1 requests the PCIe BAR mapping.
pub(crate) fn dma_buf(pointer: CUdeviceptr, len: usize, flags: u64) -> Answer<OwnedFd> {
    let mut fd: c_int = -1;
    call!(
        "cuMemGetHandleForAddressRange",
        (*mut c_void, CUdeviceptr, usize, c_int, u64),
        ((&raw mut fd).cast(), pointer, len, 1, flags)
    )?;
    if fd < 0 {
        return Err(format!("cuMemGetHandleForAddressRange: gave descriptor {fd}"));
    }
    // SAFETY: the driver created this descriptor for the caller.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

// ---- a kernel -------------------------------------------------------------------------------------------------

/// A stream that does not wait for the default stream, and the kernel `spin`, which stays loaded.
pub(crate) struct Spinner {
    stream: CUstream,
    kernel: CUfunction,
}

impl Spinner {
    pub(crate) fn new() -> Answer<Self> {
        const TEXT: &CStr = c"
            .version 6.3
            .target sm_50
            .address_size 64
            .visible .entry spin(.param .u64 nanoseconds)
            {
                .reg .u64 %limit, %start, %now;
                .reg .pred %more;
                ld.param.u64 %limit, [nanoseconds];
                mov.u64 %start, %globaltimer;
            wait:
                mov.u64 %now, %globaltimer;
                sub.u64 %now, %now, %start;
                setp.lt.u64 %more, %now, %limit;
                @%more bra wait;
                ret;
            }";
        let (mut stream, mut module, mut kernel) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        call!("cuStreamCreate", (*mut CUstream, c_uint), (&raw mut stream, 1))?;
        call!("cuModuleLoadData", (*mut CUmodule, *const c_void), (&raw mut module, TEXT.as_ptr().cast()))?;
        call!(
            "cuModuleGetFunction",
            (*mut CUfunction, CUmodule, *const c_char),
            (&raw mut kernel, module, c"spin".as_ptr())
        )?;
        Ok(Self { stream, kernel })
    }

    /// Starts the kernel, which runs for a time.
    pub(crate) fn start(&self, nanoseconds: u64) -> Answer<()> {
        let mut arguments = [&raw const nanoseconds];
        type Pointers = *mut *const u64;
        call!(
            "cuLaunchKernel",
            (CUfunction, u32, u32, u32, u32, u32, u32, u32, CUstream, Pointers, *mut c_void),
            (self.kernel, 1, 1, 1, 1, 1, 1, 0, self.stream, arguments.as_mut_ptr(), ptr::null_mut())
        )
    }

    /// Waits for the kernel.
    pub(crate) fn finish(&self) -> Answer<()> {
        call!("cuStreamSynchronize", (CUstream), (self.stream))
    }
}
