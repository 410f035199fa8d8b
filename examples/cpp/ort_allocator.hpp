// ONNX Runtime's tensors in memory that the CPU sees too: an OrtAllocator over vkgdr. C++17; needs ONNX Runtime's C++ headers
// and the CUDA runtime's. Copy it into your project.
//
//     ort_allocator allocator(vkgdr::device::open_primary_context());
//     auto tensor = Ort::Value::CreateTensor<float>(&allocator, shape, 2);
//     auto memory = vkgdr::memory::find(tensor.GetTensorRawData());  // its host_ptr() is the CPU's view
//
// Bind such tensors as inputs and outputs of a session with CUDA's execution provider, by Ort::IoBinding.
#ifndef ORT_ALLOCATOR_HPP
#define ORT_ALLOCATOR_HPP

#include <cuda_runtime_api.h>
#include <onnxruntime_cxx_api.h>
#include <vkgdr.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

/// Allocates tensors on a GPU. All functions may be called from any thread. It must outlive its tensors, and the sessions
/// of an environment in which it is registered.
class ort_allocator : public OrtAllocator {
public:
    /// @param gpu    A handle with a primary context, the context of ONNX Runtime.
    /// @param flags  Of `enum vkgdr_memory_flags`. With VKGDR_MEMORY_OR_DEVICE_BIT, memory beyond the BAR has no host view.
    /// @throw Ort::Exception  ONNX Runtime cannot describe the memory.
    explicit ort_allocator(vkgdr::device gpu, std::uint32_t flags = VKGDR_MEMORY_MAPPED)
        // Members that are not set below are optional, and null.
        : OrtAllocator{},
          gpu_(std::move(gpu)),
          flags_(flags),
          info_("Cuda", OrtDeviceAllocator, gpu_.number(), OrtMemTypeDefault) {
        // The members that ONNX Runtime reads: those of the headers with which this was compiled.
        version = ORT_API_VERSION;
        Alloc = Reserve = [](OrtAllocator *self, std::size_t size) {
            return static_cast<ort_allocator *>(self)->allocate(size);
        };
        Free = [](OrtAllocator *self, void *ptr) { static_cast<ort_allocator *>(self)->free(ptr); };
        Info = [](const OrtAllocator *self) -> const OrtMemoryInfo * {
            return static_cast<const ort_allocator *>(self)->info_;
        };
    }

    /// ONNX Runtime keeps its address.
    ort_allocator(const ort_allocator &) = delete;
    ort_allocator &operator=(const ort_allocator &) = delete;

private:
    // Returns a device address, a multiple of 256. A nullptr is a shortage or a size of 0: no exception may cross C.
    void *allocate(std::size_t size) const noexcept {
        return reinterpret_cast<void *>(vkgdr_memory_get_device_ptr(vkgdr_memory_alloc(gpu_.get(), size, flags_)));
    }

    // ONNX Runtime names no stream, so this waits for all of them, as cudaFree() does. Where waiting fails, the device may still
    // use the memory, which then stays.
    void free(void *ptr) const noexcept {
        int current = 0;
        if (ptr == nullptr || cudaGetDevice(&current) != cudaSuccess) return;
        const bool is_idle = cudaSetDevice(gpu_.number()) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess;
        cudaSetDevice(current);
        if (is_idle) vkgdr_memory_free_at(reinterpret_cast<CUdeviceptr>(ptr));
    }

    vkgdr::device gpu_;
    std::uint32_t flags_;
    Ort::MemoryInfo info_;
};

#endif  // ORT_ALLOCATOR_HPP
