//! CUDA's handles and addresses, which Python has as numbers.
#![forbid(unsafe_code)]

use vkgdr::cudarc::driver::sys::CUstream;

/// The null stream handle: the legacy default stream of the current context.
pub(crate) const NULL_STREAM: u64 = 0;
/// The handle `CU_STREAM_LEGACY` (cuda.h), the same stream as the null handle.
pub(crate) const LEGACY_STREAM: u64 = 1;
/// `CU_STREAM_PER_THREAD` (cuda.h), a stream to which memory cannot be bound.
pub(crate) const PER_THREAD_STREAM: u64 = 2;

/// A stream handle as CUDA's pointer type.
pub(crate) fn raw_stream(handle: u64) -> CUstream {
    std::ptr::with_exposed_provenance_mut(as_address(handle))
}

/// A device address or a handle as a pointer-sized integer.
#[expect(clippy::cast_possible_truncation, reason = "CUDA supports 64-bit systems only")]
pub(crate) const fn as_address(number: u64) -> usize {
    number as usize
}
