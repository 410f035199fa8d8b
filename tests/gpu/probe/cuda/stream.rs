//! Streams and kernels.
#![expect(unsafe_code, reason = "foreign function calls")]

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr;

use vkgdr::cudarc::driver::sys::{CUdeviceptr, CUfunction, CUmodule, CUstream};

use super::{Answer, check, symbol};

/// A stream that does not wait for the default stream.
pub(crate) struct Stream(CUstream);

impl Stream {
    pub(crate) fn new() -> Answer<Self> {
        let mut stream = ptr::null_mut();
        call!("cuStreamCreate", (*mut CUstream, c_uint), (&raw mut stream, 1))?;
        Ok(Self(stream))
    }

    pub(crate) fn synchronize(&self) -> Answer<()> {
        call!("cuStreamSynchronize", (CUstream), (self.0))
    }

    /// Starts a copy from host memory. The caller keeps both sides alive until it synchronizes.
    pub(crate) fn copy_from_host(&self, target: CUdeviceptr, source: *const u8, len: usize) -> Answer<()> {
        call!(
            "cuMemcpyHtoDAsync_v2",
            (CUdeviceptr, *const c_void, usize, CUstream),
            (target, source.cast(), len, self.0)
        )
    }

    /// Starts a copy to host memory. The caller keeps both sides alive until it synchronizes.
    pub(crate) fn copy_to_host(&self, target: *mut u8, source: CUdeviceptr, len: usize) -> Answer<()> {
        call!("cuMemcpyDtoHAsync_v2", (*mut c_void, CUdeviceptr, usize, CUstream), (target.cast(), source, len, self.0))
    }

    /// `cuStreamWriteValue32`: the device writes one word, in the stream's order.
    pub(crate) fn write_value(&self, target: CUdeviceptr, value: u32) -> Answer<()> {
        call!("cuStreamWriteValue32_v2", (CUstream, CUdeviceptr, u32, c_uint), (self.0, target, value, 0))
    }

    /// `cuStreamWaitValue32`: the stream waits until the word is at least `value`.
    pub(crate) fn wait_value(&self, source: CUdeviceptr, value: u32) -> Answer<()> {
        call!("cuStreamWaitValue32_v2", (CUstream, CUdeviceptr, u32, c_uint), (self.0, source, value, 0))
    }

    /// Launches a kernel with one thread. Every argument has 64 bits, of which the kernel reads the low ones.
    pub(crate) fn launch(&self, kernel: &Kernel, arguments: &[u64]) -> Answer<()> {
        let mut pointers: Vec<*const u64> = arguments.iter().map(ptr::from_ref).collect();
        type Pointers = *mut *const u64;
        call!(
            "cuLaunchKernel",
            (CUfunction, u32, u32, u32, u32, u32, u32, u32, CUstream, Pointers, *mut c_void),
            (kernel.function, 1, 1, 1, 1, 1, 1, 0, self.0, pointers.as_mut_ptr(), ptr::null_mut())
        )
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = call!("cuStreamDestroy_v2", (CUstream), (self.0));
    }
}

/// kernels.ptx, which stays loaded.
pub(crate) struct Module(CUmodule);

impl Module {
    pub(crate) fn load() -> Answer<Self> {
        let text = CString::new(include_str!("../kernels.ptx")).map_err(|error| error.to_string())?;
        let mut module: CUmodule = ptr::null_mut();
        call!("cuModuleLoadData", (*mut CUmodule, *const c_void), (&raw mut module, text.as_ptr().cast()))?;
        Ok(Self(module))
    }

    pub(crate) fn function(&self, name: &str) -> Answer<Kernel> {
        let name = CString::new(name).map_err(|error| error.to_string())?;
        let mut function = ptr::null_mut();
        call!(
            "cuModuleGetFunction",
            (*mut CUfunction, CUmodule, *const c_char),
            (&raw mut function, self.0, name.as_ptr())
        )?;
        Ok(Kernel { function })
    }

    /// No kernel of it may be launched afterwards.
    pub(crate) fn unload(self) -> Answer<()> {
        call!("cuModuleUnload", (CUmodule), (self.0))
    }

    /// Whether the driver loads kernels when they are first used, by `cuModuleGetLoadingMode`.
    pub(crate) fn loading() -> Answer<&'static str> {
        let mut mode: c_int = 0;
        call!("cuModuleGetLoadingMode", (*mut c_int), (&raw mut mode))?;
        // CU_MODULE_EAGER_LOADING and CU_MODULE_LAZY_LOADING.
        Ok(match mode {
            1 => "eager",
            2 => "lazy",
            _ => "neither eager nor lazy",
        })
    }
}

/// A kernel of a module.
pub(crate) struct Kernel {
    function: CUfunction,
}

impl Kernel {
    pub(crate) fn load(name: &str) -> Answer<Self> {
        Module::load()?.function(name)
    }
}
