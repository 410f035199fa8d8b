//! Remedies for errors, as the ends of their texts; nothing where none is known.
#![forbid(unsafe_code)]

use ash::vk;
use cudarc::driver::sys::CUresult;

use super::{Call, CudaCode, NoMapping};
use crate::MemoryKind;

/// In some drivers each live allocation holds a descriptor; in all of them an allocation or a semaphore needs one temporarily.
const OPEN_FILES: &str = ": too many open files? see ulimit -n";

/// For a system call that failed with an `errno`.
pub(super) fn system(code: i32) -> &'static str {
    match code {
        libc::EMFILE => OPEN_FILES,
        libc::ENOMEM => {
            ": too little memory or address space, or too many mappings; see free, ulimit -v and sysctl vm.max_map_count"
        }
        libc::EAFNOSUPPORT => ": memory goes over Unix sockets only",
        libc::ETOOMANYREFS => ": too much memory was sent that nobody has received; see ulimit -n",
        _ => "",
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
pub(super) fn cuda(call: Call, code: CudaCode) -> &'static str {
    match (call, code.value()) {
        (_, CudaCode::INVALID_CONTEXT) => {
            ": no usable CUDA context is current on this thread; make one current or open with open_primary_context"
        }
        (_, CudaCode::CONTEXT_IS_DESTROYED) => {
            ": the CUDA context was destroyed, or the device reset; open the GPU again for new memory"
        }
        (_, CudaCode::INVALID_DEVICE) => ": no CUDA device has this number; see nvidia-smi and CUDA_VISIBLE_DEVICES",
        (Call::StartCuda, CudaCode::NO_DEVICE) => ": no NVIDIA GPU is visible; see nvidia-smi and CUDA_VISIBLE_DEVICES",
        (Call::ImportMemory | Call::ImportSemaphore | Call::ExportDmaBuf, CudaCode::OPERATING_SYSTEM) => OPEN_FILES,
        (Call::ExportDmaBuf, CudaCode::INVALID_VALUE | CudaCode::NOT_SUPPORTED) => {
            ": the driver exports memory of cuMemAlloc (cudaMalloc) and cuMemMap only"
        }
        // What a driver says in a child, if another library initialized it in the parent.
        (Call::StartCuda, CudaCode::NOT_INITIALIZED) => {
            ": if the process was forked by one that uses CUDA: use the GPU in a child only after exec, which Python's \
             multiprocessing calls \"spawn\""
        }
        // Also when a context is made.
        (_, CudaCode::BUSY) => {
            ": another process has the GPU in exclusive mode, or its compute mode is prohibited; see nvidia-smi -q -d COMPUTE"
        }
        (Call::StartCuda, code) => start(code),
        (Call::RegisterPages, CudaCode::OUT_OF_MEMORY) => {
            ": too little memory that can be locked; see free and ulimit -l"
        }
        (_, CudaCode::OUT_OF_MEMORY) => ": too little free memory of the GPU; see nvidia-smi",
        _ => "",
    }
}

/// For a CUDA driver that does not start. The causes are those of `CUresult`'s documentation.
fn start(code: i32) -> &'static str {
    const STUB: i32 = CUresult::CUDA_ERROR_STUB_LIBRARY as i32;
    const NOT_READY: i32 = CUresult::CUDA_ERROR_SYSTEM_NOT_READY as i32;
    const MISMATCH: i32 = CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH as i32;
    const COMPAT: i32 = CUresult::CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE as i32;
    const MPS: i32 = CUresult::CUDA_ERROR_MPS_CONNECTION_FAILED as i32;
    match code {
        STUB => ": the CUDA toolkit's stub of libcuda was loaded; take its folder \"stubs\" out of LD_LIBRARY_PATH",
        CudaCode::OPERATING_SYSTEM => {
            ": the driver cannot open its devices /dev/nvidia*; do they exist, are too many files open (ulimit -n)?"
        }
        NOT_READY => ": the GPUs of an NVSwitch system wait for a service; start nvidia-fabricmanager",
        MISMATCH => {
            ": libcuda and the kernel module have different versions; reboot after an update, and see nvidia-smi; in a \
             container do not install a driver"
        }
        COMPAT => ": libcuda of the package cuda-compat does not support this GPU; take it out of LD_LIBRARY_PATH",
        MPS => ": the MPS daemon does not answer; see CUDA_MPS_PIPE_DIRECTORY and nvidia-cuda-mps-control",
        _ => ": the NVIDIA driver does not start; see nvidia-smi",
    }
}

/// For a Vulkan call that failed.
pub(super) fn vulkan(call: Call, code: vk::Result) -> &'static str {
    match (call, code) {
        (Call::StartVulkan, vk::Result::ERROR_INCOMPATIBLE_DRIVER) => ": the loader found no Vulkan driver",
        (Call::ListDevices, vk::Result::ERROR_INITIALIZATION_FAILED) => ": no Vulkan driver found a device",
        (
            Call::ExportMemory | Call::ExportSemaphore,
            vk::Result::ERROR_TOO_MANY_OBJECTS | vk::Result::ERROR_INVALID_EXTERNAL_HANDLE,
        ) => OPEN_FILES,
        // A driver whose semaphores are files (Mesa's lavapipe) returns this code also without a free descriptor.
        (Call::CreateSemaphore, vk::Result::ERROR_OUT_OF_HOST_MEMORY) => OPEN_FILES,
        _ => "",
    }
}

/// For a kind of memory that the GPU does not have, with the required property flags.
pub(super) fn memory_type(kind: MemoryKind, wanted: &str) -> &'static str {
    match kind {
        _ if wanted.contains("the resource allows") => {
            ": another location or usage of the resource may allow more types"
        }
        _ if wanted.contains("HOST_COHERENT") => ": open without REQUIRE_COHERENT; then flush and invalidate",
        MemoryKind::Mapped => ": enable Resizable BAR in the firmware, or use host memory",
        _ => "",
    }
}

/// For CUDA's memory at an address, or to be allocated where that is 0, of which there is no host view or no dma-buf.
pub(super) fn no_mapping(address: u64, reason: NoMapping) -> &'static str {
    match (address, reason) {
        (0, NoMapping::NoExport { .. }) => "; register host memory by its pointer",
        (0, NoMapping::Driver { .. } | NoMapping::NoMmap { .. }) => {
            "; use device memory with a dma-buf, or register host memory by its pointer"
        }
        (_, NoMapping::Driver { .. } | NoMapping::NoExport { .. } | NoMapping::NoMmap { .. }) => {
            "; allocate mapped memory with this library, or copy by the GPU"
        }
        _ => "",
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
