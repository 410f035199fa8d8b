//! `vkgdr_status`, the result of the functions that vkgdr 0.1 lacks, its texts, and `vkgdr_version`.
#![expect(unsafe_code, reason = "exports a C symbol")]

use std::ffi::{CStr, c_char};

use vkgdr_rs::{Error, NoMapping};

/// The results of the functions that vkgdr 0.1 does not have, as `int32_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub enum vkgdr_status {
    /// Success.
    VKGDR_SUCCESS = 0,
    /// A null pointer, unknown flags, a size of 0, an unknown copy policy, or an impossible option of a pool. A length
    /// that is not a multiple of its pattern, or a region where whole memory is required. A stream that cannot be used,
    /// or an address at which CUDA has no memory that can be mapped.
    VKGDR_ERROR_INVALID_ARGUMENT = 1,
    /// A range that is not within the memory, or a message that is longer than its ring or than the buffer for it.
    VKGDR_ERROR_OUT_OF_RANGE = 2,
    /// The GPU has no such memory, or the memory does not support the operation, such as host access to device memory.
    /// Or this process is a child that was forked after the GPU was opened.
    VKGDR_ERROR_NOT_SUPPORTED = 3,
    /// There is not enough memory of that kind, it cannot be mapped, or there are too many allocations.
    VKGDR_ERROR_OUT_OF_MEMORY = 4,
    /// libcuda, libvulkan, a function or an extension is missing.
    VKGDR_ERROR_DRIVER_MISSING = 5,
    /// Vulkan does not know the CUDA device, CUDA does not know the Vulkan device, or the current context or the memory is
    /// on another device.
    VKGDR_ERROR_NO_DEVICE = 6,
    /// A CUDA driver call failed.
    VKGDR_ERROR_CUDA = 7,
    /// A Vulkan call failed.
    VKGDR_ERROR_VULKAN = 8,
    /// A bug in this library, or a ring whose words no correct kernel has written.
    VKGDR_ERROR_INTERNAL = 9,
    /// A system call failed. The reason is in `errno`.
    VKGDR_ERROR_SYSTEM = 10,
    /// The process at the other end of a socket closed it.
    VKGDR_ERROR_DISCONNECTED = 11,
    /// Received memory does not fit, or its sender is another user's process.
    VKGDR_ERROR_REFUSED = 12,
    /// No memory of this library contains the address.
    VKGDR_ERROR_NOT_FOUND = 13,
    /// A ring was closed or aborted.
    VKGDR_ERROR_CLOSED = 14,
    /// A ring had no room, or no answer, in time.
    VKGDR_ERROR_TIMEOUT = 15,
}

use vkgdr_status as Status;

impl From<&Error> for Status {
    fn from(error: &Error) -> Self {
        match error {
            Error::Library { .. } | Error::Symbol { .. } | Error::Extension { .. } => Self::VKGDR_ERROR_DRIVER_MISSING,
            Error::NoVulkan { error, .. } => Self::from(&**error),
            error if error.is_out_of_memory() => Self::VKGDR_ERROR_OUT_OF_MEMORY,
            error if error.is_unexported() => Self::VKGDR_ERROR_NOT_SUPPORTED,
            Error::Cuda { .. } => Self::VKGDR_ERROR_CUDA,
            Error::Vulkan { .. } => Self::VKGDR_ERROR_VULKAN,
            Error::NoMatchingDevice { .. } | Error::NoCudaDevice { .. } | Error::WrongDevice { .. } => {
                Self::VKGDR_ERROR_NO_DEVICE
            }
            Error::NoSuitableMemoryType { .. }
            | Error::NoHostView { .. }
            | Error::NoExport { .. }
            | Error::UnsuitableDevice { .. }
            | Error::NoDmaBuf { .. } => Self::VKGDR_ERROR_NOT_SUPPORTED,
            Error::NoMapping { reason, .. } => match reason {
                NoMapping::Driver { .. } | NoMapping::NoExport { .. } | NoMapping::NoMmap { .. } => {
                    Self::VKGDR_ERROR_NOT_SUPPORTED
                }
                NoMapping::OtherDevice { .. } => Self::VKGDR_ERROR_NO_DEVICE,
                _ => Self::VKGDR_ERROR_INVALID_ARGUMENT,
            },
            Error::OutOfRange { .. } | Error::ReversedRange { .. } | Error::MessageTooLong { .. } => {
                Self::VKGDR_ERROR_OUT_OF_RANGE
            }
            Error::RingClosed => Self::VKGDR_ERROR_CLOSED,
            Error::RingTimeout { .. } => Self::VKGDR_ERROR_TIMEOUT,
            Error::UnknownFlags { .. }
            | Error::ZeroSize { .. }
            | Error::Misaligned { .. }
            | Error::Freed
            | Error::ForeignStream
            | Error::PerThreadStream
            | Error::HostToHost
            | Error::PoolOption { .. }
            | Error::ReadOnly => Self::VKGDR_ERROR_INVALID_ARGUMENT,
            Error::Forked | Error::Pooled => Self::VKGDR_ERROR_NOT_SUPPORTED,
            Error::System { .. } => Self::VKGDR_ERROR_SYSTEM,
            Error::Disconnected => Self::VKGDR_ERROR_DISCONNECTED,
            Error::Refused { .. } | Error::OtherUser { .. } => Self::VKGDR_ERROR_REFUSED,
            _ => Self::VKGDR_ERROR_INTERNAL,
        }
    }
}

const TEXTS: [&CStr; 16] = [
    c"success",
    c"invalid argument",
    c"out of range",
    c"not supported",
    c"out of memory",
    c"a driver is missing",
    c"no matching device",
    c"a CUDA driver call failed",
    c"a Vulkan call failed",
    c"internal error",
    c"a system call failed",
    c"the other process closed the connection",
    c"received memory was refused",
    c"no memory of vkgdr contains the address",
    c"the ring is closed",
    c"the ring timed out",
];

/// A short description of a status.
///
/// @param status  A `vkgdr_status`.
/// @return A static string, never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn vkgdr_status_string(status: i32) -> *const c_char {
    usize::try_from(status).ok().and_then(|index| TEXTS.get(index)).unwrap_or(&c"unknown status").as_ptr()
}

/// The version of this library, such as `0.2.0`: a static string.
#[unsafe(no_mangle)]
pub extern "C" fn vkgdr_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
