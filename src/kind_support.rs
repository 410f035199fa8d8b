//! [`Vkgdr::supports`](crate::Vkgdr::supports) and [`Vkgdr::memory_info`](crate::Vkgdr::memory_info).
//!
//! Both allocate a little memory to find out.
#![forbid(unsafe_code)]

use crate::allocation::Allocation;
use crate::device::{MemoryType, Source};
use crate::driver::context::PrimaryContext;
use crate::driver::cuda::cuda;
use crate::driver::fork;
use crate::report::report;
use crate::{Error, MemoryInfo, MemoryKind, Result, Vkgdr};

impl Vkgdr {
    /// Whether memory of a kind can be allocated.
    ///
    /// That Vulkan lists a memory type is not enough: the drivers may still refuse to share its memory. So the first
    /// call for a kind allocates one byte and frees it; the answer is kept for the GPU. It does that in the handle's
    /// primary context if it retains that, otherwise in the current context. Where none of the device is current, it
    /// retains the device's primary context for this call. Like any allocation, it may wait for a running kernel.
    ///
    /// Where the allocation fails for another reason than a refusal, such as a shortage of memory, the answer is that of
    /// the list, and the next call tries again. [`memory_type_of`](Self::memory_type_of) asks the list alone. In a forked child,
    /// nothing can be allocated.
    #[must_use]
    pub fn supports(&self, kind: MemoryKind) -> bool {
        fork::check().is_ok() && self.tried_type(kind).is_ok()
    }

    /// Whether an allocation of this kind failed with `error` because the kind is missing, exhausted or refused by a driver, so
    /// that there may be memory of another kind.
    #[doc(hidden)]
    #[must_use]
    pub fn lacks(&self, kind: MemoryKind, error: &Error) -> bool {
        // A kind that has no memory type fails with any of the errors of starting Vulkan.
        error.concerns_the_kind() || self.memory_type(kind).is_err()
    }

    /// How much memory of a kind there is. Asks a driver or reads `/proc/meminfo`: not for hot loops. The first call for a kind
    /// tries to allocate some, as [`supports`](Self::supports) does.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuitableMemoryType`] when the GPU has no such memory, the driver's error when it refuses to share it, and
    /// without Vulkan the error that says what is missing; [`Error::Forked`]. For device memory without Vulkan also the
    /// errors of `cuMemGetInfo` and of retaining the primary context.
    pub fn memory_info(&self, kind: MemoryKind) -> Result<MemoryInfo> {
        fork::check()?;
        let memory_type = self.tried_type(kind)?;
        match memory_type.source {
            Source::Cuda | Source::DmaBuf => self.in_some_context(|| self.amount(&memory_type)),
            Source::Vulkan | Source::RegisteredPages => self.amount(&memory_type),
        }
    }

    /// The memory type of a kind, after its trial; an error if the drivers refuse the kind.
    fn tried_type(&self, kind: MemoryKind) -> Result<MemoryType> {
        let listed = self.memory_type(kind)?;
        if let Some(result) = self.gpu().trial(kind, &listed) {
            return result.map(|()| listed);
        }
        let (tried, result) = match self.in_some_context(|| cuda()?.outside_captures(|| Allocation::trial(self, kind)))
        {
            Ok(tried) => (tried, Ok(())),
            Err(error) if error.is_refusal() => (listed, Err(error)),
            Err(error) => {
                report!(Debug, "whether {kind} memory can be allocated is not known: {error}");
                return Ok(listed);
            }
        };
        self.gpu().record_trial(kind, &tried, result.clone());
        result.map(|()| tried)
    }

    /// Runs `work` in the handle's primary context if it retains that, otherwise in the current context if that belongs to
    /// the device, otherwise in the device's primary context.
    fn in_some_context<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        if let Some(context) = self.primary_context() {
            return context.run(work);
        }
        match self.check_current_context() {
            Ok(()) => work(),
            Err(Error::Forked) => Err(Error::Forked),
            Err(_) => PrimaryContext::retain(self.device())?.context().run(work),
        }
    }
}
