//! The CUDA driver, without the library under test. Each function is looked up when it is called, so that a missing one
//! is an answer too. Codes are integers.
#![expect(unsafe_code, reason = "foreign function calls")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt::Write as _;
use std::mem::ManuallyDrop;
use std::ptr;

use vkgdr::cudarc::driver::sys::{
    self, CUDA_EXTERNAL_MEMORY_BUFFER_DESC, CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st__bindgen_ty_1, CUcontext, CUdevice, CUdeviceptr, CUexternalMemory,
    CUexternalMemoryHandleType, CUuuid,
};

/// A result, or the failed function with the driver's token.
pub(crate) type Answer<T> = Result<T, String>;

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

mod context;
mod dma_buf;
mod stream;
mod virtual_memory;

pub(crate) use context::OrdinaryContext;
pub(crate) use dma_buf::dma_buf;
pub(crate) use stream::{Kernel, Module, Stream};
pub(crate) use virtual_memory::{Physical, Reservation};

/// Looks up a function of the driver. Without a driver cudarc panics, see [`Cuda::open`].
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

/// The driver with its first device's primary context current on this thread.
pub(crate) struct Cuda {
    pub(crate) device: CUdevice,
}

impl Cuda {
    /// Loads the driver and makes device 0's primary context current.
    pub(crate) fn open() -> Answer<Self> {
        // SAFETY: the initialisers of libcuda have no preconditions.
        if !unsafe { sys::is_culib_present() } {
            return Err("libcuda.so.1 cannot be loaded".to_owned());
        }
        call!("cuInit", (c_uint), (0))?;
        let mut context: CUcontext = ptr::null_mut();
        call!("cuDevicePrimaryCtxRetain", (*mut CUcontext, CUdevice), (&raw mut context, 0))?;
        call!("cuCtxSetCurrent", (CUcontext), (context))?;
        Ok(Self { device: 0 })
    }

    /// True for the simulated driver of sim/cuda.
    #[expect(clippy::unused_self, reason = "a value proves that the driver is loaded")]
    pub(crate) fn is_simulated(&self) -> bool {
        is_simulated()
    }

    #[expect(clippy::unused_self, reason = "as above")]
    pub(crate) fn version(&self) -> Answer<c_int> {
        let mut version = 0;
        call!("cuDriverGetVersion", (*mut c_int), (&raw mut version))?;
        Ok(version)
    }

    /// `cuDeviceGetUuid_v2`, and the older `cuDeviceGetUuid`, which ignores MIG.
    pub(crate) fn uuids(&self) -> [Answer<String>; 2] {
        let mut uuid = CUuuid { bytes: [0; 16] };
        let v2 = call!("cuDeviceGetUuid_v2", (*mut CUuuid, CUdevice), (&raw mut uuid, self.device));
        let v2 = v2.map(|()| hex(&uuid.bytes.map(i8::cast_unsigned)));
        let v1 = call!("cuDeviceGetUuid", (*mut CUuuid, CUdevice), (&raw mut uuid, self.device));
        [v2, v1.map(|()| hex(&uuid.bytes.map(i8::cast_unsigned)))]
    }

    pub(crate) fn attribute(&self, attribute: c_int) -> Answer<c_int> {
        let mut value = 0;
        call!("cuDeviceGetAttribute", (*mut c_int, c_int, CUdevice), (&raw mut value, attribute, self.device))?;
        Ok(value)
    }

    #[expect(clippy::unused_self, reason = "as above")]
    pub(crate) fn synchronize(&self) -> Answer<()> {
        call!("cuCtxSynchronize", (), ())
    }
}

/// True if the driver is there, and is the simulated one of sim/cuda. Initialises nothing.
pub(crate) fn is_simulated() -> bool {
    // SAFETY: the initialisers of libcuda have no preconditions.
    let is_present = unsafe { sys::is_culib_present() };
    // SAFETY: the function is looked up, never called.
    is_present && unsafe { symbol::<unsafe extern "C" fn()>("simcuda_live_objects\0") }.is_some()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

// ---- pointers -------------------------------------------------------------------------------------------------

/// One attribute of a pointer, at most 8 bytes.
pub(crate) fn pointer_attribute(attribute: c_int, pointer: CUdeviceptr) -> Answer<u64> {
    let mut value = 0_u64;
    call!("cuPointerGetAttribute", (*mut c_void, c_int, CUdeviceptr), ((&raw mut value).cast(), attribute, pointer))?;
    Ok(value)
}

/// Memory type, device, buffer id and context of any address, asked for together, which the driver answers also for
/// addresses that it does not know. Needs no current context.
pub(crate) fn pointer_attributes(pointer: CUdeviceptr) -> Answer<String> {
    // CU_POINTER_ATTRIBUTE_MEMORY_TYPE, _DEVICE_ORDINAL, _BUFFER_ID and _CONTEXT.
    let names: [c_uint; 4] = [2, 9, 7, 1];
    let (mut kind, mut device, mut buffer, mut context): (c_uint, c_int, u64, usize) = (0, 0, 0, 0);
    let mut values: [*mut c_void; 4] =
        [(&raw mut kind).cast(), (&raw mut device).cast(), (&raw mut buffer).cast(), (&raw mut context).cast()];
    call!(
        "cuPointerGetAttributes",
        (c_uint, *const c_uint, *mut *mut c_void, CUdeviceptr),
        (4, names.as_ptr(), values.as_mut_ptr(), pointer)
    )?;
    Ok(format!("type {kind}, device {device}, buffer {buffer}, context {context:#x}"))
}

pub(crate) fn set_sync_memops(pointer: CUdeviceptr) -> Answer<()> {
    let value: c_uint = 1;
    call!("cuPointerSetAttribute", (*const c_void, c_int, CUdeviceptr), ((&raw const value).cast(), 6, pointer))
}

/// The start and length of a pointer's allocation.
pub(crate) fn address_range(pointer: CUdeviceptr) -> Answer<(CUdeviceptr, usize)> {
    let (mut base, mut len) = (0, 0);
    call!(
        "cuMemGetAddressRange_v2",
        (*mut CUdeviceptr, *mut usize, CUdeviceptr),
        (&raw mut base, &raw mut len, pointer)
    )?;
    Ok((base, len))
}

pub(crate) fn ipc_handle(pointer: CUdeviceptr) -> Answer<()> {
    let mut handle = [0_u8; 64];
    call!("cuIpcGetMemHandle", (*mut [u8; 64], CUdeviceptr), (&raw mut handle, pointer))
}

/// A registration of host memory, ended on drop.
pub(crate) struct Registered(*mut u8);

impl Registered {
    pub(crate) fn new(host: *mut u8, len: usize, flags: c_uint) -> Answer<Self> {
        call!("cuMemHostRegister_v2", (*mut c_void, usize, c_uint), (host.cast(), len, flags))?;
        Ok(Self(host))
    }

    pub(crate) fn device_pointer(&self) -> Answer<CUdeviceptr> {
        let mut pointer = 0;
        call!(
            "cuMemHostGetDevicePointer_v2",
            (*mut CUdeviceptr, *mut c_void, c_uint),
            (&raw mut pointer, self.0.cast(), 0)
        )?;
        Ok(pointer)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let _ = call!("cuMemHostUnregister", (*mut c_void), (self.0.cast()));
    }
}

// ---- memory ---------------------------------------------------------------------------------------------------

/// `cuMemAlloc`.
pub(crate) struct Buffer(pub(crate) CUdeviceptr);

impl Buffer {
    pub(crate) fn new(len: usize) -> Answer<Self> {
        let mut pointer = 0;
        call!("cuMemAlloc_v2", (*mut CUdeviceptr, usize), (&raw mut pointer, len))?;
        Ok(Self(pointer))
    }
}

impl Buffer {
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

/// `cuMemHostAlloc`: ordinary pinned memory, for comparison.
pub(crate) struct Pinned(pub(crate) *mut u8);

impl Pinned {
    pub(crate) fn new(len: usize) -> Answer<Self> {
        let mut pointer: *mut c_void = ptr::null_mut();
        call!("cuMemHostAlloc", (*mut *mut c_void, usize, c_uint), (&raw mut pointer, len, 0))?;
        Ok(Self(pointer.cast()))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = call!("cuMemFreeHost", (*mut c_void), (self.0.cast()));
    }
}

pub(crate) fn memset(pointer: CUdeviceptr, value: u8, len: usize) -> Answer<()> {
    call!("cuMemsetD8_v2", (CUdeviceptr, u8, usize), (pointer, value, len))
}

/// From pageable memory.
pub(crate) fn copy_from_host(target: CUdeviceptr, source: &[u8]) -> Answer<()> {
    let pointer: *const c_void = source.as_ptr().cast();
    call!("cuMemcpyHtoD_v2", (CUdeviceptr, *const c_void, usize), (target, pointer, source.len()))
}

pub(crate) fn copy_to_host<T: bytemuck::Pod>(target: &mut [T], source: CUdeviceptr) -> Answer<()> {
    let len = size_of_val(target);
    call!("cuMemcpyDtoH_v2", (*mut c_void, CUdeviceptr, usize), (target.as_mut_ptr().cast(), source, len))
}

pub(crate) fn copy(target: CUdeviceptr, source: CUdeviceptr, len: usize) -> Answer<()> {
    call!("cuMemcpyDtoD_v2", (CUdeviceptr, CUdeviceptr, usize), (target, source, len))
}

/// Memory imported from a file descriptor, which the driver owns after success.
pub(crate) struct Imported(CUexternalMemory);

impl Imported {
    pub(crate) fn new(fd: std::os::fd::OwnedFd, size: u64, dedicated: bool) -> Answer<Self> {
        use std::os::fd::{AsRawFd, IntoRawFd};
        let description = CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
            type_: CUexternalMemoryHandleType::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
            handle: CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st__bindgen_ty_1 { fd: fd.as_raw_fd() },
            size,
            flags: u32::from(dedicated),
            reserved: [0; 16],
        };
        let mut memory = ptr::null_mut();
        call!(
            "cuImportExternalMemory",
            (*mut CUexternalMemory, *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC),
            (&raw mut memory, &raw const description)
        )?;
        let _taken = fd.into_raw_fd();
        Ok(Self(memory))
    }

    /// Maps a range. The mapping is freed by `cuMemFree`, like a buffer, before the memory.
    pub(crate) fn map(&self, offset: u64, size: u64) -> Answer<Buffer> {
        let description = CUDA_EXTERNAL_MEMORY_BUFFER_DESC { offset, size, flags: 0, reserved: [0; 16] };
        let mut pointer = 0;
        call!(
            "cuExternalMemoryGetMappedBuffer",
            (*mut CUdeviceptr, CUexternalMemory, *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC),
            (&raw mut pointer, self.0, &raw const description)
        )?;
        Ok(Buffer(pointer))
    }
}

impl Drop for Imported {
    fn drop(&mut self) {
        let _ = call!("cuDestroyExternalMemory", (CUexternalMemory), (self.0));
    }
}
