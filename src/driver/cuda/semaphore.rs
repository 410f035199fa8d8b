//! The CUDA driver's functions on timeline semaphores that Vulkan exported.
#![expect(unsafe_code, reason = "foreign function calls")]

use std::ffi::c_int;
use std::ptr;

use cudarc::driver::sys::{
    self, CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC, CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS,
    CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, CUexternalSemaphore, CUstream,
};

use super::{Cuda, LIBRARY};
use crate::error::Call;
use crate::{Error, Result};

/// A function that drivers may lack.
fn found<F>(function: Option<F>, symbol: &'static str) -> Result<F> {
    function.ok_or(Error::Symbol { library: LIBRARY, symbol })
}

impl Cuda {
    /// Imports a timeline semaphore. On success the driver owns `fd`.
    ///
    /// # Safety
    ///
    /// `fd` must be an opaque file descriptor of a timeline semaphore of Vulkan.
    pub(crate) unsafe fn semaphore_import(&self, fd: c_int) -> Result<CUexternalSemaphore> {
        let import = found(self.table.cuImportExternalSemaphore, Call::ImportSemaphore.name())?;
        let desc = CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC {
            type_: sys::CUexternalSemaphoreHandleType::CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD,
            handle: sys::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_st__bindgen_ty_1 { fd },
            flags: 0,
            reserved: [0; 16],
        };
        let mut semaphore = ptr::null_mut();
        // SAFETY: live locals, and by this method's contract.
        self.check(Call::ImportSemaphore, unsafe { import(&raw mut semaphore, &raw const desc) })?;
        Ok(semaphore)
    }

    /// Makes a stream set a semaphore to a value, after the stream's earlier work.
    ///
    /// # Safety
    ///
    /// The semaphore and the stream must be live and belong to the current context, and the value must be greater than
    /// any that the semaphore has or will have by then.
    pub(crate) unsafe fn semaphore_signal(
        &self,
        semaphore: CUexternalSemaphore,
        value: u64,
        stream: CUstream,
    ) -> Result<()> {
        const NAME: &str = "cuSignalExternalSemaphoresAsync";
        let signal = found(self.table.cuSignalExternalSemaphoresAsync, NAME)?;
        // SAFETY: a structure of numbers, all of which may be 0.
        let mut params: CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS = unsafe { std::mem::zeroed() };
        params.params.fence.value = value;
        // SAFETY: live locals, and by this method's contract.
        self.check(NAME, unsafe { signal(&raw const semaphore, &raw const params, 1, stream) })
    }

    /// Makes a stream's later work wait until a semaphore has reached a value.
    ///
    /// # Safety
    ///
    /// The semaphore and the stream must be live and belong to the current context.
    pub(crate) unsafe fn semaphore_wait(
        &self,
        semaphore: CUexternalSemaphore,
        value: u64,
        stream: CUstream,
    ) -> Result<()> {
        const NAME: &str = "cuWaitExternalSemaphoresAsync";
        let wait = found(self.table.cuWaitExternalSemaphoresAsync, NAME)?;
        // SAFETY: a structure of numbers, all of which may be 0.
        let mut params: CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS = unsafe { std::mem::zeroed() };
        params.params.fence.value = value;
        // SAFETY: live locals, and by this method's contract.
        self.check(NAME, unsafe { wait(&raw const semaphore, &raw const params, 1, stream) })
    }

    /// # Safety
    ///
    /// The semaphore must be live and belong to the current context; no work may use it, now or later.
    pub(crate) unsafe fn semaphore_destroy(&self, semaphore: CUexternalSemaphore) -> Result<()> {
        const NAME: &str = "cuDestroyExternalSemaphore";
        let destroy = found(self.table.cuDestroyExternalSemaphore, NAME)?;
        // SAFETY: by this method's contract; a call that is refused has not destroyed it.
        self.despite_captures(|| self.check(NAME, unsafe { destroy(semaphore) }))
    }
}
