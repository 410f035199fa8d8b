// examples/cpp/tensorrt_allocator.hpp, called as TensorRT does, through its interface; compiled against TensorRT's headers and
// run by ffi/python/tests/adaptors/test_tensorrt.py. TensorRT's library does not run on the simulated GPU.
#include "tensorrt_allocator.hpp"

#include "adaptor.hpp"

#include <memory>

using allocator = nvinfer1::IGpuAllocator;

static void sizes_and_alignments(allocator &gpu, cudaStream_t stream) {
    CHECK(gpu.allocateAsync(0, 256, 0, stream) == nullptr);
    CHECK(gpu.deallocateAsync(nullptr, stream));
    for (std::uint64_t alignment : {0, 1, 256}) {
        void *memory = gpu.allocateAsync(3, alignment, 0, stream);
        CHECK(memory != nullptr && reinterpret_cast<std::uintptr_t>(memory) % 256 == 0);
        CHECK(gpu.deallocateAsync(memory, stream) && !is_live(memory));
    }
    CHECK(gpu.allocateAsync(3, std::uint64_t{1} << 46, 0, stream) == nullptr);
}

static void views(allocator &gpu, cudaStream_t stream) {
    const auto flags = nvinfer1::AllocatorFlags{1} << static_cast<int>(nvinfer1::AllocatorFlag::kRESIZABLE);
    void *first = gpu.allocateAsync(100000, 256, flags, stream), *second = gpu.allocateAsync(100000, 256, 0, stream);
    CHECK(first != second);
    check_views(first, second, 100000);
    // Not resized: TensorRT then copies by itself.
    CHECK(gpu.reallocate(first, 256, 200000) == nullptr);
    check_views(second, first, 100000);
    CHECK(gpu.deallocateAsync(first, stream) && gpu.deallocateAsync(second, stream));
}

static void freed_after_the_work_of_the_stream(allocator &gpu, cudaStream_t stream) {
    const auto device = vkgdr::device::open_primary_context();
    device.collect();
    void *memory = gpu.allocateAsync(1 << 20, 256, 0, stream);
    {
        gate busy(stream);
        CHECK(cudaMemsetAsync(memory, 7, 1 << 20, stream) == cudaSuccess);
        CHECK(gpu.deallocateAsync(memory, stream));
        CHECK(cudaStreamQuery(stream) == cudaErrorNotReady && device.collect() == 0 && !is_live(memory));
        busy.open();
        CHECK(cudaStreamSynchronize(stream) == cudaSuccess && device.collect() == 1);
    }
    for (cudaStream_t any : {cudaStreamLegacy, static_cast<cudaStream_t>(nullptr)}) {
        memory = gpu.allocateAsync(5000, 0, 0, any);
        CHECK(cudaMemsetAsync(memory, 7, 5000, any) == cudaSuccess);
        CHECK(gpu.deallocateAsync(memory, any) && !is_live(memory));
    }
    // Memory cannot be bound to this one.
    memory = gpu.allocateAsync(5000, 0, 0, cudaStreamPerThread);
    gate busy(cudaStreamPerThread);
    CHECK(cudaMemsetAsync(memory, 7, 5000, cudaStreamPerThread) == cudaSuccess);
    busy.open_later();
    CHECK(gpu.deallocateAsync(memory, cudaStreamPerThread) && !is_live(memory));
    CHECK(cudaStreamQuery(cudaStreamPerThread) == cudaSuccess);
    // It alone is waited for.
    memory = gpu.allocateAsync(5000, 0, 0, cudaStreamPerThread);
    gate elsewhere(stream);
    CHECK(gpu.deallocateAsync(memory, cudaStreamPerThread) && cudaStreamQuery(stream) == cudaErrorNotReady);
    elsewhere.open();
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
}

// The deprecated functions, which TensorRT may still call.
static void without_streams(allocator &gpu) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    void *memory = gpu.allocate(1000, 256, 0);
    CHECK(is_live(memory));
    CHECK(gpu.deallocate(memory) && !is_live(memory));
    CHECK(gpu.deallocate(nullptr) && gpu.allocate(0, 0, 0) == nullptr);
#pragma GCC diagnostic pop
}

static void shortages_and_mistakes(allocator &gpu, cudaStream_t stream) {
    for (std::uint64_t size : {std::uint64_t{1} << 50, UINT64_MAX}) {
        CHECK(gpu.allocateAsync(size, 256, 0, stream) == nullptr);
    }
    void *memory = gpu.allocateAsync(1000, 256, 0, stream), *foreign = nullptr;
    CHECK(cudaMalloc(&foreign, 1000) == cudaSuccess);
    CHECK(!gpu.deallocateAsync(foreign, stream));
    CHECK(cudaFree(foreign) == cudaSuccess);
    CHECK(!gpu.deallocateAsync(static_cast<char *>(memory) + 1, stream) && is_live(memory));
    CHECK(gpu.deallocateAsync(memory, stream) && !gpu.deallocateAsync(memory, stream));
}

// With another kind to fall back on, a shortage of the BAR is none of the device.
static void beyond_the_bar(vkgdr::device gpu, cudaStream_t stream) {
    tensorrt_allocator either(std::move(gpu), VKGDR_MEMORY_OR_DEVICE_BIT);
    std::vector<void *> all;
    int without_view = 0;
    for (int i = 0; i < 20; ++i) {
        all.push_back(either.allocateAsync(32 << 20, 256, 0, stream));
        CHECK(all.back() != nullptr);
        if (vkgdr::memory::find(all.back()).host_ptr() == nullptr) ++without_view;
    }
    CHECK(0 < without_view && without_view < 20);
    for (void *memory : all) CHECK(either.deallocateAsync(memory, stream));
}

int main(int count, char **) {
    CHECK(cudaFree(nullptr) == cudaSuccess);
    cudaStream_t stream = create_stream();
    for (std::uint32_t kind : {VKGDR_MEMORY_MAPPED, VKGDR_MEMORY_HOST}) {
        // TensorRT deletes it by its base.
        const std::unique_ptr<allocator> gpu =
            std::make_unique<tensorrt_allocator>(vkgdr::device::open_primary_context(), kind);
        sizes_and_alignments(*gpu, stream);
        views(*gpu, stream);
        freed_after_the_work_of_the_stream(*gpu, stream);
        without_streams(*gpu);
        shortages_and_mistakes(*gpu, stream);
        on_threads([&] {
            for (int i = 0; i < 20; ++i) CHECK(gpu->deallocateAsync(gpu->allocateAsync(1000 * i, 256, 0, stream), stream));
        });
    }
    if (count > 1) beyond_the_bar(vkgdr::device::open_primary_context(), stream);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    std::puts("ok");
}
