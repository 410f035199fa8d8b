//! The two drivers, and their result codes, by number or by name.

use ash::vk;
use cudarc::driver::sys::CUresult;

/// A driver that the simulator replaces or wraps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Driver {
    Cuda,
    Vulkan,
}

macro_rules! cuda {
    ($($token:ident)+) => { &[$((stringify!($token), CUresult::$token as i32)),+] };
}

macro_rules! vulkan {
    ($($token:ident)+) => { &[$((concat!("VK_", stringify!($token)), vk::Result::$token.as_raw())),+] };
}

/// The `CUresult`s that a program may have to cope with.
const CUDA: &[(&str, i32)] = cuda! {
    CUDA_ERROR_INVALID_VALUE
    CUDA_ERROR_OUT_OF_MEMORY
    CUDA_ERROR_NOT_INITIALIZED
    CUDA_ERROR_NO_DEVICE
    CUDA_ERROR_INVALID_DEVICE
    CUDA_ERROR_INVALID_CONTEXT
    CUDA_ERROR_OPERATING_SYSTEM
    CUDA_ERROR_INVALID_HANDLE
    CUDA_ERROR_ILLEGAL_ADDRESS
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
    CUDA_ERROR_LAUNCH_FAILED
    CUDA_ERROR_NOT_PERMITTED
    CUDA_ERROR_NOT_SUPPORTED
    CUDA_ERROR_UNKNOWN
};

/// The `VkResult`s that a program may have to cope with.
const VULKAN: &[(&str, i32)] = vulkan! {
    ERROR_OUT_OF_HOST_MEMORY
    ERROR_OUT_OF_DEVICE_MEMORY
    ERROR_INITIALIZATION_FAILED
    ERROR_DEVICE_LOST
    ERROR_MEMORY_MAP_FAILED
    ERROR_LAYER_NOT_PRESENT
    ERROR_EXTENSION_NOT_PRESENT
    ERROR_FEATURE_NOT_PRESENT
    ERROR_INCOMPATIBLE_DRIVER
    ERROR_TOO_MANY_OBJECTS
    ERROR_UNKNOWN
    ERROR_INVALID_EXTERNAL_HANDLE
};

impl Driver {
    /// The driver that a function belongs to, by the prefix of its name.
    pub(crate) fn of(function: &str) -> Option<Self> {
        match function {
            _ if function.starts_with("cu") => Some(Self::Cuda),
            _ if function.starts_with("vk") => Some(Self::Vulkan),
            _ => None,
        }
    }

    /// The driver's result code for a name or a number.
    pub(crate) fn code(self, text: &str) -> Result<i32, String> {
        let names = match self {
            Self::Cuda => CUDA,
            Self::Vulkan => VULKAN,
        };
        if let Some((_, code)) = names.iter().find(|(name, _)| *name == text) {
            return Ok(*code);
        }
        let Ok(code) = text.parse::<i32>() else {
            let known: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
            return Err(format!("'{text}' is not a number, nor one of\n  {}", known.join("\n  ")));
        };
        match self {
            Self::Cuda if code <= 0 => Err(format!("a code of a CUDA error is positive, not {code}")),
            Self::Vulkan if code >= 0 => Err(format!("a code of a Vulkan error is negative, not {code}")),
            _ => Ok(code),
        }
    }
}
