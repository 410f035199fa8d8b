//! Result codes of the CUDA driver as the integers that it returns, for tests that inject or expect them.

use cudarc::driver::sys::CUresult;

macro_rules! codes {
    ($($name:ident = $token:ident;)+) => {
        $(
            #[doc = concat!("`", stringify!($token), "`")]
            pub const $name: i32 = CUresult::$token as i32;
        )+
    };
}

codes! {
    INVALID_VALUE = CUDA_ERROR_INVALID_VALUE;
    OUT_OF_MEMORY = CUDA_ERROR_OUT_OF_MEMORY;
    NO_DEVICE = CUDA_ERROR_NO_DEVICE;
    INVALID_CONTEXT = CUDA_ERROR_INVALID_CONTEXT;
    OPERATING_SYSTEM = CUDA_ERROR_OPERATING_SYSTEM;
    INVALID_HANDLE = CUDA_ERROR_INVALID_HANDLE;
    NOT_READY = CUDA_ERROR_NOT_READY;
    ILLEGAL_ADDRESS = CUDA_ERROR_ILLEGAL_ADDRESS;
    CONTEXT_IS_DESTROYED = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    HOST_MEMORY_ALREADY_REGISTERED = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    NOT_SUPPORTED = CUDA_ERROR_NOT_SUPPORTED;
    SYSTEM_DRIVER_MISMATCH = CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    ASSERT = CUDA_ERROR_ASSERT;
    STREAM_CAPTURE_UNSUPPORTED = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    CAPTURED_EVENT = CUDA_ERROR_CAPTURED_EVENT;
    UNKNOWN = CUDA_ERROR_UNKNOWN;
}

/// Result codes of Vulkan.
pub mod vulkan {
    use vkgdr::ash::vk::Result;

    macro_rules! codes {
        ($($name:ident = $token:ident;)+) => {
            $(
                #[doc = concat!("`VK_", stringify!($token), "`")]
                pub const $name: i32 = Result::$token.as_raw();
            )+
        };
    }

    codes! {
        OUT_OF_HOST_MEMORY = ERROR_OUT_OF_HOST_MEMORY;
        OUT_OF_DEVICE_MEMORY = ERROR_OUT_OF_DEVICE_MEMORY;
        INITIALIZATION_FAILED = ERROR_INITIALIZATION_FAILED;
        MEMORY_MAP_FAILED = ERROR_MEMORY_MAP_FAILED;
        TOO_MANY_OBJECTS = ERROR_TOO_MANY_OBJECTS;
        FORMAT_NOT_SUPPORTED = ERROR_FORMAT_NOT_SUPPORTED;
        INVALID_EXTERNAL_HANDLE = ERROR_INVALID_EXTERNAL_HANDLE;
    }
}
