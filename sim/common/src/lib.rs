//! What the simulated CUDA driver and the Vulkan layers share, which are two libraries in one process.
//!
//! | module | contents |
//! |---|---|
//! | [`trace`] | the calls of both, a line each, in one file |
//! | [`label`] | properties of exported memory, behind its descriptor |
//! | [`payload`] | semaphores and events that several drivers and processes share |
//! | [`faults`] | which calls must fail |
//! | [`memfd`], [`stderr`] | files in memory, lines for the user |

pub mod faults;
pub mod label;
pub mod memfd;
pub mod payload;
pub mod stderr;
pub mod trace;

/// Vulkan's functions that the fault layer can make fail: those that it intercepts and that return a `VkResult`.
pub const FALLIBLE: [&str; 18] = [
    "vkCreateInstance",
    "vkEnumeratePhysicalDevices",
    "vkEnumerateDeviceExtensionProperties",
    "vkCreateDevice",
    "vkCreateBuffer",
    "vkCreateImage",
    "vkBindBufferMemory",
    "vkBindImageMemory",
    "vkAllocateMemory",
    "vkMapMemory",
    "vkFlushMappedMemoryRanges",
    "vkInvalidateMappedMemoryRanges",
    "vkGetMemoryFdKHR",
    "vkCreateSemaphore",
    "vkGetSemaphoreFdKHR",
    "vkImportSemaphoreFdKHR",
    "vkSignalSemaphore",
    "vkWaitSemaphores",
];
