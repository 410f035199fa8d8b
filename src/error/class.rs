//! Classes of errors: those that end the context, shortages, refusals, and those after which another kind of memory may do.
#![forbid(unsafe_code)]

use ash::vk;

use super::{CudaCode, Error};

impl Error {
    /// Whether this is a sticky error, after which the CUDA context never does any work again
    /// ("the context must be destroyed", CUDA driver API, CUresult).
    pub(crate) fn is_fatal_to_context(&self) -> bool {
        self.cuda_code().is_some_and(|code| CudaCode::STICKY.contains(&code))
    }

    /// Whether the CUDA context does no work any more and never will: it is broken or destroyed.
    #[doc(hidden)]
    #[must_use]
    pub fn ends_all_work(&self) -> bool {
        let is_gone = |code| CudaCode::GONE.contains(&code) || code == CudaCode::DEINITIALIZED;
        self.is_fatal_to_context() || self.cuda_code().is_some_and(is_gone)
    }

    /// Whether a stream capture forbids the call.
    pub(crate) fn is_of_capture(&self) -> bool {
        self.cuda_code().is_some_and(|code| CudaCode::OF_CAPTURE.contains(&code))
    }

    /// Whether a driver refuses to share Vulkan's memory with CUDA: a stage of an allocation fails for another reason than
    /// a shortage of memory, the state of the context, or a stream capture. A refusal that is an exhaustion as well may be either.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Vulkan { operation: "vkGetMemoryFdKHR", code: vk::Result::ERROR_INVALID_EXTERNAL_HANDLE } => true,
            Self::Vulkan { operation: "vkAllocateMemory" | "vkGetMemoryFdKHR", .. } => !self.is_exhaustion(),
            Self::Cuda { operation: "cuImportExternalMemory" | "cuExternalMemoryGetMappedBuffer", code } => {
                code.value() != CudaCode::OUT_OF_MEMORY && !self.ends_all_work() && !self.is_of_capture()
            }
            _ => false,
        }
    }

    /// Whether memory of a kind is exhausted, or a driver refuses it, so that there may be memory of another kind. A process
    /// without descriptors has no memory of any kind.
    pub(crate) fn concerns_the_kind(&self) -> bool {
        match self {
            Self::NoSuitableMemoryType { .. } | Self::NoVulkan { .. } => true,
            Self::NoMapping { .. } | Self::NoDmaBuf { .. } => true,
            _ => self.is_out_of_memory() || self.is_refusal() && !self.is_exhaustion(),
        }
    }

    /// Whether memory is exhausted: a heap of Vulkan's, the GPU's by CUDA, or the system's.
    #[doc(hidden)]
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Self::Allocation { .. } => true,
            Self::Cuda { code, .. } => code.value() == CudaCode::OUT_OF_MEMORY,
            Self::System { code, .. } => *code == libc::ENOMEM,
            _ => false,
        }
    }

    /// Whether Vulkan refuses the kind of import, or the descriptor.
    pub(crate) fn is_refused_import(&self) -> bool {
        let code = vk::Result::ERROR_INVALID_EXTERNAL_HANDLE;
        self.is_refusal() || matches!(self, Self::Vulkan { code: found, .. } if *found == code)
    }

    /// Whether CUDA refuses an import as it would if the memory had to be a dedicated allocation.
    pub(crate) fn asks_for_dedicated(&self) -> bool {
        let codes = [CudaCode::INVALID_VALUE, CudaCode::NOT_SUPPORTED];
        matches!(self, Self::Cuda { operation: "cuImportExternalMemory", code } if codes.contains(&code.value()))
    }

    /// Whether more is asked for than the heap has, which was refused before a driver was called: an [exhaustion](Self::is_exhaustion)
    /// in which freeing other memory does not help.
    pub(crate) fn exceeds_the_heap(&self) -> bool {
        matches!(self, Self::Allocation { operation: None, code: vk::Result::ERROR_OUT_OF_DEVICE_MEMORY, .. })
    }

    /// Whether a resource is exhausted that freeing memory may return: memory, descriptors, allocations.
    #[doc(hidden)]
    #[must_use]
    pub fn is_exhaustion(&self) -> bool {
        match self {
            Self::Vulkan { code, .. } | Self::Allocation { code, .. } => [
                vk::Result::ERROR_OUT_OF_DEVICE_MEMORY,
                vk::Result::ERROR_OUT_OF_HOST_MEMORY,
                vk::Result::ERROR_MEMORY_MAP_FAILED,
                vk::Result::ERROR_TOO_MANY_OBJECTS,
                vk::Result::ERROR_INVALID_EXTERNAL_HANDLE,
            ]
            .contains(code),
            // An import without a free descriptor fails with this code.
            Self::Cuda { operation: "cuImportExternalMemory", code } if code.value() == CudaCode::OPERATING_SYSTEM => {
                true
            }
            Self::Cuda { code, .. } => code.value() == CudaCode::OUT_OF_MEMORY,
            Self::System { code, .. } => [libc::EMFILE, libc::ENOMEM].contains(code),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_out_of_descriptors_is_an_exhaustion() {
        assert!(Error::System { operation: "dup", code: libc::EMFILE }.is_exhaustion());
        assert!(!Error::System { operation: "dup", code: libc::EBADF }.is_exhaustion());
    }

    #[test]
    fn a_shortage_is_out_of_memory_whichever_call_reports_it() {
        let by_cuda = |operation, code| Error::Cuda { operation, code: CudaCode::new(code, None) };
        for error in [
            by_cuda("cuMemAlloc", CudaCode::OUT_OF_MEMORY),
            by_cuda("cuImportExternalMemory", CudaCode::OUT_OF_MEMORY),
            Error::System { operation: "mmap", code: libc::ENOMEM },
        ] {
            assert!(error.is_out_of_memory() && error.is_exhaustion() && error.concerns_the_kind(), "{error}");
        }
        assert!(!by_cuda("cuMemAlloc", CudaCode::INVALID_VALUE).is_out_of_memory());
        assert!(!Error::System { operation: "dup", code: libc::EMFILE }.is_out_of_memory());
    }

    #[test]
    fn what_a_capture_forbids_is_no_refusal_of_the_kind() {
        let import = |code| Error::Cuda { operation: "cuImportExternalMemory", code: CudaCode::new(code, None) };
        assert!(import(CudaCode::INVALID_VALUE).is_refusal());
        assert!((900..=908).all(|code| !import(code).is_refusal() && !import(code).concerns_the_kind()));
    }

    #[test]
    fn the_sticky_errors_end_a_context_and_no_other_does() {
        let is_fatal =
            |code| Error::Cuda { operation: "cuCtxSynchronize", code: CudaCode::new(code, None) }.is_fatal_to_context();
        // The numbers in cuda.h.
        let sticky = [214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911];
        let found: Vec<_> = (0..5000).filter(|code| is_fatal(*code)).collect();
        assert_eq!(found, sticky);
    }

    #[test]
    fn the_errors_of_captures_are_900_to_908() {
        let is_of_capture =
            |code| Error::Cuda { operation: "cuEventQuery", code: CudaCode::new(code, None) }.is_of_capture();
        assert_eq!((0..5000).filter(|code| is_of_capture(*code)).collect::<Vec<_>>(), (900..=908).collect::<Vec<_>>());
    }
}
