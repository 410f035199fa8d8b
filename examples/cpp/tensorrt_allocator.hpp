// TensorRT's memory as memory that the CPU sees too: an IGpuAsyncAllocator over vkgdr. C++17; needs TensorRT's headers and
// the CUDA runtime's. Copy it into your project.
//
//     tensorrt_allocator allocator(vkgdr::device::open_primary_context(), VKGDR_MEMORY_OR_DEVICE_BIT);
//     runtime->setGpuAllocator(&allocator);
//
// Inputs and outputs need no allocator: pass memory.device_ptr() to IExecutionContext::setTensorAddress().
#ifndef TENSORRT_ALLOCATOR_HPP
#define TENSORRT_ALLOCATOR_HPP

#include <NvInferRuntime.h>
#include <vkgdr.hpp>

#include <cstdint>
#include <utility>

/// Allocates for TensorRT on a GPU. All functions may be called from any thread. It must outlive all that uses it.
class tensorrt_allocator final : public nvinfer1::IGpuAsyncAllocator {
public:
    /// @param gpu    A handle with a primary context, the context of TensorRT.
    /// @param flags  Of `enum vkgdr_memory_flags`. With VKGDR_MEMORY_OR_DEVICE_BIT, memory beyond the BAR has no host view.
    explicit tensorrt_allocator(vkgdr::device gpu, std::uint32_t flags = VKGDR_MEMORY_MAPPED) noexcept
        : gpu_(std::move(gpu)), flags_(flags) {}

    /// Returns a device address that any stream may use at once, a multiple of 256. A nullptr is a size of 0, a shortage, or an
    /// alignment that no address has.
    void *allocateAsync(std::uint64_t size, std::uint64_t alignment, nvinfer1::AllocatorFlags,
                        cudaStream_t) noexcept override {
        if (size == 0) return nullptr;
        vkgdr::memory memory(vkgdr_memory_alloc(gpu_.get(), size, flags_));
        const CUdeviceptr address = memory.device_ptr();
        if (alignment != 0 && address % alignment != 0) return nullptr;
        static_cast<void>(memory.release());
        return reinterpret_cast<void *>(address);
    }

    /// Frees memory after the work that was submitted to a stream before. Does not wait, except for the per-thread default
    /// stream, to which memory cannot be bound. False for other memory.
    bool deallocateAsync(void *ptr, cudaStream_t stream) noexcept override {
        if (ptr == nullptr) return true;
        {
            const auto found = vkgdr::memory::find(ptr);
            const bool follows = vkgdr_memory_bind_stream(found.get(), stream) == VKGDR_SUCCESS;
            // Where the stream cannot be waited for, the device may still use the memory, which then stays.
            if (!follows && cudaStreamSynchronize(stream) != cudaSuccess) return false;
        }
        // After the end of `found`, which as the last reference would wait for all work of the context.
        return vkgdr_memory_free_at(reinterpret_cast<CUdeviceptr>(ptr)) == VKGDR_SUCCESS;
    }

private:
    vkgdr::device gpu_;
    std::uint32_t flags_;
};

#endif  // TENSORRT_ALLOCATOR_HPP
