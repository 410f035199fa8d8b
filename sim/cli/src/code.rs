//! The drivers' result codes, by number or by name.

use crate::fault::Driver;

/// Those of `CUresult` that a program may have to cope with (CUDA driver API, "Data types used by CUDA driver").
const CUDA: &[(&str, i32)] = &[
    ("CUDA_ERROR_INVALID_VALUE", 1),
    ("CUDA_ERROR_OUT_OF_MEMORY", 2),
    ("CUDA_ERROR_NOT_INITIALIZED", 3),
    ("CUDA_ERROR_NO_DEVICE", 100),
    ("CUDA_ERROR_INVALID_DEVICE", 101),
    ("CUDA_ERROR_INVALID_CONTEXT", 201),
    ("CUDA_ERROR_OPERATING_SYSTEM", 304),
    ("CUDA_ERROR_INVALID_HANDLE", 400),
    ("CUDA_ERROR_ILLEGAL_ADDRESS", 700),
    ("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", 701),
    ("CUDA_ERROR_LAUNCH_FAILED", 719),
    ("CUDA_ERROR_NOT_PERMITTED", 800),
    ("CUDA_ERROR_NOT_SUPPORTED", 801),
    ("CUDA_ERROR_UNKNOWN", 999),
];

/// Those of `VkResult` (Vulkan specification, "Return Codes").
const VULKAN: &[(&str, i32)] = &[
    ("VK_ERROR_OUT_OF_HOST_MEMORY", -1),
    ("VK_ERROR_OUT_OF_DEVICE_MEMORY", -2),
    ("VK_ERROR_INITIALIZATION_FAILED", -3),
    ("VK_ERROR_DEVICE_LOST", -4),
    ("VK_ERROR_MEMORY_MAP_FAILED", -5),
    ("VK_ERROR_LAYER_NOT_PRESENT", -6),
    ("VK_ERROR_EXTENSION_NOT_PRESENT", -7),
    ("VK_ERROR_FEATURE_NOT_PRESENT", -8),
    ("VK_ERROR_INCOMPATIBLE_DRIVER", -9),
    ("VK_ERROR_TOO_MANY_OBJECTS", -10),
    ("VK_ERROR_UNKNOWN", -13),
    ("VK_ERROR_INVALID_EXTERNAL_HANDLE", -1_000_072_003),
];

/// The driver's code that the text means.
pub(crate) fn parse(driver: Driver, text: &str) -> Result<i32, String> {
    let names = match driver {
        Driver::Cuda => CUDA,
        Driver::Vulkan => VULKAN,
    };
    if let Some((_, code)) = names.iter().find(|(name, _)| *name == text) {
        return Ok(*code);
    }
    let Ok(code) = text.parse::<i32>() else {
        let known: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        return Err(format!("'{text}' is not a number, nor one of\n  {}", known.join("\n  ")));
    };
    match driver {
        Driver::Cuda if code <= 0 => Err(format!("a code of a CUDA error is positive, not {code}")),
        Driver::Vulkan if code >= 0 => Err(format!("a code of a Vulkan error is negative, not {code}")),
        _ => Ok(code),
    }
}
