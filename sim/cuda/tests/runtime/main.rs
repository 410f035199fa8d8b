//! The CUDA runtime of `sim/cudart`: each test does the same with the libraries of CUDA 12 and 13.
#![expect(unsafe_code, reason = "calls the runtime's functions")]

mod devices;
mod errors;
mod kernels;
mod memory;
mod order;

use std::ffi::{CString, c_void};

use support::simcuda;

/// Calls a function of the runtime: `call!(library, cudaFree(pointer => usize))`.
macro_rules! call {
    ($library:expr, $name:ident($($argument:expr => $type:ty),* $(,)?)) => {{
        type Function = unsafe extern "C" fn($($type),*) -> i32;
        // SAFETY: the signature is the one in cuda_runtime_api.h.
        let function = unsafe { $library.symbol::<Function>(stringify!($name)) };
        // SAFETY: pointers are to live values; handles and device addresses are checked by the driver.
        unsafe { function($($argument),*) }
    }};
}
use call;

/// As `call!`, and panics unless the call succeeds.
macro_rules! good {
    ($library:expr, $name:ident $arguments:tt) => {
        assert_eq!(crate::call!($library, $name $arguments), 0, stringify!($name))
    };
}
use good;

const INVALID_VALUE: i32 = 1;
const INVALID_DEVICE: i32 = 101;
const INVALID_HANDLE: i32 = 400;
const NOT_READY: i32 = 600;
const NOT_SUPPORTED: i32 = 801;

const HOST_TO_DEVICE: i32 = 1;
const DEVICE_TO_HOST: i32 = 2;
const DEVICE_TO_DEVICE: i32 = 3;
const DEFAULT: i32 = 4;

/// The runtime of one version of CUDA.
#[derive(Clone, Copy)]
struct Runtime {
    major: u32,
    library: *mut c_void,
}

// SAFETY: a loaded library, which is never unloaded, belongs to no thread.
unsafe impl Send for Runtime {}
// SAFETY: as above.
unsafe impl Sync for Runtime {}

impl Runtime {
    /// Looks a function up, by the version that programs are linked against.
    ///
    /// # Safety
    ///
    /// `F` must be the type of the function of that name.
    unsafe fn symbol<F: Copy>(&self, name: &str) -> F {
        let text = |text: String| CString::new(text).unwrap_or_else(|error| panic!("{error}"));
        let (symbol, version) = (text(name.to_owned()), text(format!("libcudart.so.{}", self.major)));
        // SAFETY: a loaded library, and two strings that live through the call.
        let function = unsafe { libc::dlvsym(self.library, symbol.as_ptr(), version.as_ptr()) };
        assert!(!function.is_null(), "{name}");
        // SAFETY: by this function's contract; a function pointer has the size of a pointer.
        unsafe { std::mem::transmute_copy::<*mut c_void, F>(&function) }
    }

    /// Allocates device memory.
    fn allocate(&self, size: usize) -> usize {
        let mut pointer = 0;
        good!(self, cudaMalloc(&raw mut pointer => *mut usize, size => usize));
        pointer
    }

    fn free(&self, pointer: usize) {
        good!(self, cudaFree(pointer => usize));
    }

    fn write(&self, to: usize, bytes: &[u8]) {
        good!(self, cudaMemcpy(to => usize, bytes.as_ptr() => *const u8, bytes.len() => usize, HOST_TO_DEVICE => i32));
    }

    fn read(&self, from: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        good!(self, cudaMemcpy(bytes.as_mut_ptr() => *mut u8, from => usize, len => usize, DEVICE_TO_HOST => i32));
        bytes
    }

    /// The last error, which is forgotten.
    fn last_error(&self) -> i32 {
        call!(self, cudaGetLastError())
    }
}

/// Runs a test with each runtime.
fn with_each(test: fn(Runtime)) {
    let (Some(_), Ok(folder)) = (simcuda(), std::env::var("VKGDR_SIM_DIR")) else {
        support::skip!("the runtime is the simulator's");
    };
    for major in [12, 13] {
        let path = CString::new(format!("{folder}/libcudart.so.{major}")).unwrap_or_else(|error| panic!("{error}"));
        // SAFETY: the library has no initialisers.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!library.is_null(), "{path:?} cannot be loaded");
        test(Runtime { major, library });
    }
}
