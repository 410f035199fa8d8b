//! Remedies for errors, where known.
#![forbid(unsafe_code)]

use ash::vk;

use super::CudaCode;
use crate::MemoryKind;

/// In some drivers each live allocation holds a descriptor; in all of them an allocation or a semaphore needs one temporarily.
const OPEN_FILES: &str = "too many open files? see ulimit -n";

/// For a system call that failed with an `errno`.
pub(super) fn system(code: i32) -> Option<&'static str> {
    match code {
        libc::EMFILE => Some(OPEN_FILES),
        libc::EAFNOSUPPORT => Some("memory goes over Unix sockets only"),
        _ => None,
    }
}

/// For a driver's library that is missing.
pub(super) fn library(library: &str) -> &'static str {
    if library.contains("vulkan") {
        "install the Vulkan loader (Debian and Ubuntu: libvulkan1)"
    } else {
        "install the NVIDIA driver"
    }
}

/// For a CUDA driver call that failed.
pub(super) fn cuda(operation: &str, code: CudaCode) -> Option<&'static str> {
    match (operation, code.value()) {
        (_, CudaCode::INVALID_CONTEXT) => {
            Some("no usable CUDA context is current on this thread; make one current or open with open_primary_context")
        }
        (_, CudaCode::CONTEXT_IS_DESTROYED) => {
            Some("the CUDA context was destroyed, or the device reset; open the GPU again for new memory")
        }
        (_, CudaCode::INVALID_DEVICE) => {
            Some("no CUDA device has this number; see nvidia-smi and CUDA_VISIBLE_DEVICES")
        }
        ("cuInit", CudaCode::NO_DEVICE) => Some("no NVIDIA GPU is visible; see nvidia-smi and CUDA_VISIBLE_DEVICES"),
        (
            "cuImportExternalMemory" | "cuImportExternalSemaphore" | "cuMemGetHandleForAddressRange",
            CudaCode::OPERATING_SYSTEM,
        ) => Some(OPEN_FILES),
        ("cuMemGetHandleForAddressRange", CudaCode::INVALID_VALUE | CudaCode::NOT_SUPPORTED) => {
            Some("the driver exports memory of cuMemAlloc (cudaMalloc) and cuMemMap only")
        }
        // What a driver says in a child, if another library initialized it in the parent.
        ("cuInit", CudaCode::NOT_INITIALIZED) => Some(
            "if the process was forked by one that uses CUDA: use the GPU in a child only after exec, which Python's \
             multiprocessing calls \"spawn\"",
        ),
        ("cuInit", _) => Some("the NVIDIA driver does not start; see nvidia-smi"),
        _ => None,
    }
}

/// For a Vulkan call that failed.
pub(super) fn vulkan(operation: &str, code: vk::Result) -> Option<&'static str> {
    match (operation, code) {
        ("vkCreateInstance", vk::Result::ERROR_INCOMPATIBLE_DRIVER) => Some("the loader found no Vulkan driver"),
        ("vkEnumeratePhysicalDevices", vk::Result::ERROR_INITIALIZATION_FAILED) => {
            Some("no Vulkan driver found a device")
        }
        (
            "vkGetMemoryFdKHR" | "vkGetSemaphoreFdKHR",
            vk::Result::ERROR_TOO_MANY_OBJECTS | vk::Result::ERROR_INVALID_EXTERNAL_HANDLE,
        ) => Some(OPEN_FILES),
        // A driver whose semaphores are files (Mesa's lavapipe) returns this code also without a free descriptor.
        ("vkCreateSemaphore", vk::Result::ERROR_OUT_OF_HOST_MEMORY) => Some(OPEN_FILES),
        _ => None,
    }
}

/// For a kind of memory that the GPU does not have, with the required property flags.
pub(super) fn memory_type(kind: MemoryKind, wanted: &str) -> Option<&'static str> {
    match kind {
        _ if wanted.contains("the resource allows") => {
            Some("another location or usage of the resource may allow more types")
        }
        _ if wanted.contains("HOST_COHERENT") => Some("open without REQUIRE_COHERENT; then flush and invalidate"),
        MemoryKind::Mapped => Some("enable Resizable BAR in the firmware, or use host memory"),
        _ => None,
    }
}

/// For a shortage of memory.
pub(super) fn exhaustion(code: vk::Result, kind: MemoryKind, asked: u64, heap: u64, free: Option<u64>) -> &'static str {
    /// A BAR that was not resized exposes 256 MiB (NVIDIA's BAR1 default), of which the driver reserves a part.
    const UNRESIZED_BAR: u64 = 256 << 20;
    let small_bar = kind == MemoryKind::Mapped && heap <= UNRESIZED_BAR;
    let files = free.is_none() && asked <= heap / 2;
    match code {
        vk::Result::ERROR_TOO_MANY_OBJECTS => "; the driver allows no more allocations: make fewer, larger ones",
        vk::Result::ERROR_OUT_OF_HOST_MEMORY => "",
        // A driver that keeps memory in files (Mesa's lavapipe) returns this code also without a free descriptor.
        vk::Result::ERROR_OUT_OF_DEVICE_MEMORY if small_bar && files => {
            "; enable Resizable BAR in the firmware to map more, or, if too many files are open, raise ulimit -n"
        }
        _ if small_bar => "; enable Resizable BAR in the firmware to map more",
        vk::Result::ERROR_OUT_OF_DEVICE_MEMORY if files => {
            "; other allocations use the heap, or too many files are open: see ulimit -n"
        }
        _ => "",
    }
}
