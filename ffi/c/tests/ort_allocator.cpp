// examples/cpp/ort_allocator.hpp under ONNX Runtime's library; ffi/python/tests/adaptors/test_onnxruntime.py compiles and runs
// this. CUDA's execution provider does not run on the simulated GPU: no session is made.
#include "ort_allocator.hpp"

#include "adaptor.hpp"

#include <array>

static Ort::Value tensor(ort_allocator &allocator, std::int64_t rows) {
    const std::array<std::int64_t, 2> shape{rows, 1000};
    return Ort::Value::CreateTensor<float>(&allocator, shape.data(), shape.size());
}

static void functions(ort_allocator &allocator) {
    CHECK(allocator.version == ORT_API_VERSION);
    const Ort::ConstMemoryInfo info(allocator.Info(&allocator));
    CHECK(info.GetAllocatorName() == "Cuda" && info.GetDeviceType() == OrtMemoryInfoDeviceType_GPU);
    CHECK(info.GetDeviceId() == 0 && info.GetMemoryType() == OrtMemTypeDefault);
    CHECK(allocator.Alloc(&allocator, 0) == nullptr);
    allocator.Free(&allocator, nullptr);
    for (auto *allocate : {allocator.Alloc, allocator.Reserve}) {
        void *first = allocate(&allocator, 3), *second = allocate(&allocator, 3000);
        CHECK(first != second && reinterpret_cast<std::uintptr_t>(first) % 256 == 0);
        check_views(first, second, 3);
        allocator.Free(&allocator, first);
        allocator.Free(&allocator, second);
        CHECK(!is_live(first) && !is_live(second));
    }
}

static void tensors(ort_allocator &allocator) {
    void *address = nullptr;
    {
        Ort::Value first = tensor(allocator, 7), second = tensor(allocator, 7);
        CHECK(first.GetTensorMemoryInfo().GetAllocatorName() == "Cuda");
        address = first.GetTensorMutableRawData();
        CHECK(is_live(address));
        check_views(address, second.GetTensorMutableRawData(), 28000);
        // ONNX Runtime frees a tensor on whatever thread drops it.
        std::thread([&] { const Ort::Value dropped(std::move(first)); }).join();
        CHECK(!is_live(address));
        Ort::Value empty = tensor(allocator, 0);
    }
}

static void freed_after_the_work_of_all_streams(ort_allocator &allocator, cudaStream_t stream) {
    void *memory = allocator.Alloc(&allocator, 1 << 20);
    gate busy(stream);
    CHECK(cudaMemsetAsync(memory, 7, 1 << 20, stream) == cudaSuccess);
    busy.open_later();
    allocator.Free(&allocator, memory);
    CHECK(cudaStreamQuery(stream) == cudaSuccess && !is_live(memory));
}

static void shortages(ort_allocator &allocator) {
    CHECK(allocator.Alloc(&allocator, std::size_t{1} << 50) == nullptr);
    CHECK(allocator.Alloc(&allocator, SIZE_MAX) == nullptr);
    // ONNX Runtime takes a nullptr for the address of a tensor.
    const Ort::Value huge = tensor(allocator, std::int64_t{1} << 38);
    CHECK(huge.GetTensorRawData() == nullptr);
}

// In an environment, for all sessions with `session.use_env_allocators`.
static void registered(ort_allocator &allocator) {
    Ort::Env env;
    Ort::ThrowOnError(Ort::GetApi().RegisterAllocator(env, &allocator));
    Ort::ThrowOnError(Ort::GetApi().UnregisterAllocator(env, allocator.Info(&allocator)));
    const Ort::Status again(Ort::GetApi().UnregisterAllocator(env, allocator.Info(&allocator)));
    CHECK(!again.IsOK());
}

int main() {
    CHECK(cudaFree(nullptr) == cudaSuccess);
    cudaStream_t stream = create_stream();
    {
        const auto open = [] { return vkgdr::device::open_primary_context(); };
        ort_allocator mapped(open()), host(open(), VKGDR_MEMORY_HOST);
        for (ort_allocator *allocator : {&mapped, &host}) {
            functions(*allocator);
            tensors(*allocator);
            freed_after_the_work_of_all_streams(*allocator, stream);
            shortages(*allocator);
            registered(*allocator);
            on_threads([&] {
                for (int i = 0; i < 20; ++i) tensor(*allocator, i);
            });
        }
    }
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    std::puts("ok");
}
