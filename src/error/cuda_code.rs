//! The CUDA driver's result codes, as integers.
#![forbid(unsafe_code)]

use std::fmt;
use std::ops::RangeInclusive;

use cudarc::driver::sys::CUresult;

/// The result of a CUDA driver function: the number, and the driver's name for it.
///
/// The number stays an integer, since a newer driver may return codes that this crate has never heard of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudaCode {
    value: i32,
    name: Option<&'static str>,
}

impl CudaCode {
    pub(crate) const SUCCESS: i32 = CUresult::CUDA_SUCCESS as i32;
    pub(crate) const INVALID_VALUE: i32 = CUresult::CUDA_ERROR_INVALID_VALUE as i32;
    pub(crate) const OUT_OF_MEMORY: i32 = CUresult::CUDA_ERROR_OUT_OF_MEMORY as i32;
    pub(crate) const NOT_INITIALIZED: i32 = CUresult::CUDA_ERROR_NOT_INITIALIZED as i32;
    pub(crate) const DEINITIALIZED: i32 = CUresult::CUDA_ERROR_DEINITIALIZED as i32;
    pub(crate) const NO_DEVICE: i32 = CUresult::CUDA_ERROR_NO_DEVICE as i32;
    pub(crate) const INVALID_DEVICE: i32 = CUresult::CUDA_ERROR_INVALID_DEVICE as i32;
    pub(crate) const INVALID_CONTEXT: i32 = CUresult::CUDA_ERROR_INVALID_CONTEXT as i32;
    pub(crate) const OPERATING_SYSTEM: i32 = CUresult::CUDA_ERROR_OPERATING_SYSTEM as i32;
    pub(crate) const INVALID_HANDLE: i32 = CUresult::CUDA_ERROR_INVALID_HANDLE as i32;
    pub(crate) const NOT_READY: i32 = CUresult::CUDA_ERROR_NOT_READY as i32;
    pub(crate) const CONTEXT_IS_DESTROYED: i32 = CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED as i32;
    pub(crate) const NOT_SUPPORTED: i32 = CUresult::CUDA_ERROR_NOT_SUPPORTED as i32;
    pub(crate) const STREAM_CAPTURE_UNSUPPORTED: i32 = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED as i32;
    pub(crate) const ALREADY_REGISTERED: i32 = CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED as i32;

    /// The codes of stream captures.
    pub(super) const OF_CAPTURE: RangeInclusive<i32> =
        Self::STREAM_CAPTURE_UNSUPPORTED..=CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD as i32;

    /// The codes for a context that was destroyed.
    pub(crate) const GONE: [i32; 2] = [Self::INVALID_CONTEXT, Self::CONTEXT_IS_DESTROYED];

    /// The codes after which a context does no work any more, and returns the same code from every call: "the context cannot be
    /// used", "any further CUDA work will return the same error", "the process must be terminated" (CUDA driver API, CUresult).
    pub(super) const STICKY: [i32; 15] = [
        CUresult::CUDA_ERROR_ECC_UNCORRECTABLE as i32,
        CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE as i32,
        Self::CONTAINED,
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS as i32,
        CUresult::CUDA_ERROR_LAUNCH_TIMEOUT as i32,
        CUresult::CUDA_ERROR_ASSERT as i32,
        CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR as i32,
        CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION as i32,
        CUresult::CUDA_ERROR_MISALIGNED_ADDRESS as i32,
        CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE as i32,
        CUresult::CUDA_ERROR_INVALID_PC as i32,
        CUresult::CUDA_ERROR_LAUNCH_FAILED as i32,
        Self::TENSOR_MEMORY_LEAK,
        Self::MPS_CLIENT_TERMINATED,
        Self::EXTERNAL_DEVICE,
    ];

    // Numbers of `cuda.h` for CUDA 13 that some or all of cudarc's versions of CUDA lack.
    const CONTAINED: i32 = 226;
    const TENSOR_MEMORY_LEAK: i32 = 721;
    const MPS_CLIENT_TERMINATED: i32 = 810;
    const EXTERNAL_DEVICE: i32 = 911;

    pub(crate) const fn new(value: i32, name: Option<&'static str>) -> Self {
        Self { value, name }
    }

    /// The driver's name for it, such as `CUDA_ERROR_INVALID_VALUE`; `None` for a code that the driver does not know.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        self.name
    }

    /// The number, a `CUresult`.
    #[must_use]
    pub const fn value(self) -> i32 {
        self.value
    }
}

impl fmt::Display for CudaCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name {
            Some(name) => f.write_str(name),
            None => write!(f, "unknown CUDA error {}", self.value),
        }
    }
}
