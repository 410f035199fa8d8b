//! The driver's functions for modules and launches, called by name. Codes are integers; a missing function fails its
//! first call.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::{self, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use cudarc::driver::sys::{self, CUfunction_attribute};
use support::cuda::Stream;

/// The output of a call, or its code.
pub(crate) type Call<T = ()> = std::result::Result<T, i32>;

/// Calls a function of the driver: `call!(cuMemFree_v2(pointer: u64))`. Handles and addresses are integers.
macro_rules! call {
    ($name:ident($($argument:expr => $type:ty),* $(,)?)) => {{
        type Function = unsafe extern "C" fn($($type),*) -> i32;
        // SAFETY: the signature is the one in cuda.h.
        let function = unsafe { support::driver::function::<Function>(stringify!($name)) };
        // SAFETY: pointers are to live values, handles and device addresses are checked by the driver.
        crate::driver::outcome(unsafe { function($($argument),*) })
    }};
}
pub(crate) use call;

pub(crate) fn outcome(code: c_int) -> Call {
    if code == 0 { Ok(()) } else { Err(code) }
}

/// The value that a call writes through its output pointer.
pub(crate) fn given<T: Default>(call: impl FnOnce(*mut T) -> Call) -> Call<T> {
    let mut value = T::default();
    call(&raw mut value)?;
    Ok(value)
}

pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

/// A module, unloaded on drop.
#[derive(Debug)]
pub(crate) struct Module(pub(crate) usize);

impl Drop for Module {
    fn drop(&mut self) {
        let _ = self.unload();
    }
}

impl Module {
    pub(crate) fn load(text: &str) -> Call<Self> {
        Self::load_image(c_string(text).as_bytes_with_nul())
    }

    /// Loads an image, which may be invalid.
    pub(crate) fn load_image(image: &[u8]) -> Call<Self> {
        let load = |out| call!(cuModuleLoadData(out => *mut usize, image.as_ptr().cast() => *const c_void));
        given(load).map(Self)
    }

    /// Loads with a log; returns the error log beside the code.
    pub(crate) fn load_with_log(text: &str) -> (Call<Self>, String) {
        let text = c_string(text);
        let mut log = [0x55_u8; 4096];
        // CU_JIT_ERROR_LOG_BUFFER and its size, CU_JIT_OPTIMIZATION_LEVEL, CU_JIT_WALL_TIME.
        let keys: [c_uint; 4] = [5, 6, 7, 2];
        let mut values: [usize; 4] = [log.as_mut_ptr().expose_provenance(), log.len(), 3, 0];
        let result = given(|out| {
            call!(cuModuleLoadDataEx(
                out => *mut usize,
                text.as_ptr().cast() => *const c_void,
                4 => c_uint,
                keys.as_ptr() => *const c_uint,
                values.as_mut_ptr() => *mut usize,
            ))
        });
        let said = CStr::from_bytes_until_nul(&log).map(|log| log.to_string_lossy().into_owned()).unwrap_or_default();
        if support::simcuda().is_some() {
            assert_eq!(values[1], said.len(), "the size option returns the bytes written");
        }
        (result.map(Self), said)
    }

    pub(crate) fn function(&self, name: &str) -> Call<Function> {
        let name = c_string(name);
        let get = |out| call!(cuModuleGetFunction(out => *mut usize, self.0 => usize, name.as_ptr() => *const c_char));
        given(get).map(Function)
    }

    /// The address and size of a variable.
    pub(crate) fn variable(&self, name: &str) -> Call<(u64, usize)> {
        let name = c_string(name);
        let mut size = 0;
        let address = given(|out| {
            call!(cuModuleGetGlobal_v2(
                out => *mut u64, &raw mut size => *mut usize, self.0 => usize, name.as_ptr() => *const c_char,
            ))
        })?;
        Ok((address, size))
    }

    /// Unloads the module now. It must not be used afterwards.
    pub(crate) fn unload(&self) -> Call {
        call!(cuModuleUnload(self.0 => usize))
    }
}

/// The grid of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared: c_uint,
}

impl Shape {
    pub(crate) const ONE: Self = Self { grid: [1; 3], block: [1; 3], shared: 0 };

    /// This number of threads, in blocks of 128.
    pub(crate) fn threads(n: c_uint) -> Self {
        Self { grid: [n.div_ceil(128), 1, 1], block: [128, 1, 1], shared: 0 }
    }

    /// One block of this number of threads.
    pub(crate) fn block(n: c_uint) -> Self {
        Self { block: [n, 1, 1], ..Self::ONE }
    }
}

/// The keys of a launch's argument buffer.
const BUFFER_POINTER: *const c_void = ptr::without_provenance(sys::CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT as usize);
pub(crate) const BUFFER_SIZE: *const c_void = ptr::without_provenance(sys::CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT as usize);
pub(crate) const PARAMETERS_END: *const c_void = ptr::without_provenance(sys::CU_LAUNCH_PARAM_END_AS_INT as usize);

/// A kernel's handle: a function, or a library's kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Function(pub(crate) usize);

impl Function {
    /// Launches on a stream, with a pointer to each argument. Each has 64 bits, of which the kernel reads the low ones.
    pub(crate) fn launch(self, shape: Shape, stream: usize, arguments: &[u64]) -> Call {
        let mut pointers: Vec<*const u64> = arguments.iter().map(ptr::from_ref).collect();
        self.launch_raw(shape, stream, pointers.as_mut_ptr().cast(), null_mut())
    }

    /// Launches with an argument buffer.
    pub(crate) fn launch_with_buffer(self, shape: Shape, stream: usize, buffer: &[u8]) -> Call {
        let size = buffer.len();
        let mut extra: [*const c_void; 5] =
            [BUFFER_POINTER, buffer.as_ptr().cast(), BUFFER_SIZE, (&raw const size).cast(), PARAMETERS_END];
        self.launch_raw(shape, stream, null_mut(), extra.as_mut_ptr().cast())
    }

    pub(crate) fn launch_raw(
        self,
        Shape { grid, block, shared }: Shape,
        stream: usize,
        pointers: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> Call {
        call!(cuLaunchKernel(
            self.0 => usize,
            grid[0] => c_uint, grid[1] => c_uint, grid[2] => c_uint,
            block[0] => c_uint, block[1] => c_uint, block[2] => c_uint,
            shared => c_uint,
            stream => usize,
            pointers => *mut *mut c_void,
            extra => *mut *mut c_void,
        ))
    }

    pub(crate) fn attribute(self, attribute: CUfunction_attribute) -> Call<c_int> {
        given(|out| call!(cuFuncGetAttribute(out => *mut c_int, attribute as c_uint => c_uint, self.0 => usize)))
    }

    pub(crate) fn set_attribute(self, attribute: CUfunction_attribute, value: c_int) -> Call {
        call!(cuFuncSetAttribute(self.0 => usize, attribute as c_uint => c_uint, value => c_int))
    }
}

/// Memory of `cuMemAlloc`, freed on drop.
#[derive(Debug)]
pub(crate) struct Buffer(pub(crate) u64);

impl Buffer {
    pub(crate) fn new(len: usize) -> Call<Self> {
        given(|out| call!(cuMemAlloc_v2(out => *mut u64, len => usize))).map(Self)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let _ = call!(cuMemFree_v2(self.0 => u64));
    }
}

/// A word of page-locked host memory, freed on drop: a flag or number shared by host and device.
#[derive(Debug)]
pub(crate) struct Pinned(usize);

impl Pinned {
    /// A word with this value.
    pub(crate) fn new(value: u32) -> Call<Self> {
        let new = given(|out| call!(cuMemHostAlloc(out => *mut usize, 4 => usize, 0 => c_uint))).map(Self)?;
        new.word().store(value, Ordering::Release);
        Ok(new)
    }

    /// The device address.
    pub(crate) fn device(&self) -> Call<u64> {
        given(|out| call!(cuMemHostGetDevicePointer_v2(out => *mut u64, self.0 => usize, 0 => c_uint)))
    }

    pub(crate) fn word(&self) -> &AtomicU32 {
        // SAFETY: the driver allocated at least four aligned bytes, which live as long as `self`.
        unsafe { AtomicU32::from_ptr(ptr::with_exposed_provenance_mut(self.0)) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = call!(cuMemFreeHost(self.0 => usize));
    }
}

/// A stream handle as an integer.
pub(crate) fn handle(stream: &Stream) -> usize {
    stream.raw().expose_provenance()
}

/// Waits for a stream; 0 is the default stream.
pub(crate) fn synchronize(stream: usize) -> Call {
    call!(cuStreamSynchronize(stream => usize))
}
