// vkgdr's memory resource under CCCL's concepts and in RMM's containers and adaptors; ffi/python/tests/adaptors/test_cpp.py
// compiles this against the headers of RMM's package and runs it.
//
// librmm contains a CUDA runtime that does not start on the simulated driver. What calls that, such as resizes, copies and
// RMM's current resource, runs with the argument `gpu` only.
#include "vkgdr_mr.hpp"

#include "adaptor.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>

#include <string>
#include <utility>

using resource = vkgdr_memory_resource;

static_assert(cuda::mr::resource<resource>);
static_assert(cuda::mr::synchronous_resource<resource>);
static_assert(cuda::mr::resource_with<resource, cuda::mr::device_accessible>);
static_assert(!cuda::has_property<resource, cuda::mr::host_accessible>);
static_assert(std::is_nothrow_move_constructible_v<resource>);

static CUdeviceptr address_of(const void *pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

static void both_views(resource mr, cudaStream_t stream) {
    rmm::device_uvector<int> first(1000, stream, mr), second(1000, stream, mr);
    auto *view = static_cast<int *>(resource::host_ptr(first.data()));
    CHECK(view != nullptr);
    CHECK(resource::host_ptr(first.data() + 10) == view + 10);
    check_views(first.data(), second.data(), 4000);
}

static void freed_after_the_work_of_the_stream(resource mr, cudaStream_t stream) {
    void *kept = nullptr;
    {
        rmm::device_buffer buffer(1 << 20, stream, mr);
        kept = buffer.data();
        CHECK(cudaMemsetAsync(kept, 7, 1 << 20, stream) == cudaSuccess);
        CHECK(is_live(kept));
    }
    CHECK(!is_live(kept));
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    // The streams to which memory cannot be bound, and the default ones.
    for (cudaStream_t other : {cudaStreamPerThread, cudaStreamLegacy, static_cast<cudaStream_t>(nullptr)}) {
        void *memory = mr.allocate(other, 5000);
        CHECK(cudaMemsetAsync(memory, 7, 5000, other) == cudaSuccess);
        mr.deallocate(other, memory, 5000);
        CHECK(!is_live(memory));
    }
    // None of them waits for other streams.
    gate busy(stream);
    void *memory = mr.allocate(cudaStreamPerThread, 5000);
    mr.deallocate(cudaStreamPerThread, memory, 5000);
    CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
    busy.open();
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
}

static void sizes_and_alignments(resource mr) {
    CHECK(mr.allocate_sync(0) == nullptr);
    mr.deallocate_sync(nullptr, 0);
    mr.deallocate(cudaStream_t{nullptr}, nullptr, 0);
    for (std::size_t alignment : {1, 256, 4096}) {
        void *memory = mr.allocate_sync(3, alignment);
        CHECK(address_of(memory) % alignment == 0);
        CHECK(address_of(memory) % resource::default_alignment == 0);
        mr.deallocate_sync(memory, 3, alignment);
    }
    bool is_refused = false;
    try {
        static_cast<void>(mr.allocate_sync(3, std::size_t{1} << 46));
    } catch (const std::bad_alloc &) {
        is_refused = true;
    }
    CHECK(is_refused);
}

static void shortages(resource mr, cudaStream_t stream) {
    std::string text;
    try {
        rmm::device_buffer buffer(std::size_t{1} << 50, stream, mr);
    } catch (const std::bad_alloc &shortage) {
        text = shortage.what();
    }
    CHECK(text.find("memory") != std::string::npos);
}

static void adaptors_of_rmm(resource mr, cudaStream_t stream) {
    rmm::mr::statistics_resource_adaptor statistics(mr);
    rmm::mr::limiting_resource_adaptor limited(statistics, 1 << 20);
    {
        rmm::device_buffer a(1000, stream, statistics), b(2000, stream, limited);
        CHECK(statistics.get_bytes_counter().value >= 3000);
        CHECK(resource::host_ptr(b.data()) != nullptr);
        std::thread([&] { rmm::device_buffer moved(std::move(b)); }).join();
        bool is_refused = false;
        try {
            rmm::device_buffer d(2 << 20, stream, limited);
        } catch (const std::bad_alloc &) {
            is_refused = true;
        }
        CHECK(is_refused);
    }
    CHECK(statistics.get_bytes_counter().value == 0);
}

// What needs the runtime in librmm.
static void on_a_gpu(resource mr, cudaStream_t stream) {
    rmm::device_uvector<int> numbers(1000, stream, mr);
    numbers.set_element(999, 5, stream);
    numbers.resize(5000, stream);
    numbers.shrink_to_fit(stream);
    CHECK(numbers.element(999, stream) == 5);
    rmm::mr::pool_memory_resource pool(mr, 1 << 20, 4 << 20);
    rmm::device_buffer lent(3000, stream, pool);
    CHECK(resource::host_ptr(lent.data()) != nullptr);
    rmm::mr::set_current_device_resource(mr);
    {
        rmm::device_buffer buffer(1000, stream);
        CHECK(resource::host_ptr(buffer.data()) != nullptr);
    }
    rmm::mr::reset_current_device_resource();
}

// Moves copy, so that nothing is left that cannot be used.
static void moved_from(resource mr) {
    resource kept(std::move(mr)), assigned(kept);
    assigned = std::move(kept);
    CHECK(mr == assigned && kept == assigned);
    mr.deallocate_sync(mr.allocate_sync(3), 3);
    vkgdr_bad_alloc shortage("text");
    const vkgdr_bad_alloc other(std::move(shortage));
    CHECK(std::string(shortage.what()) == "text" && std::string(other.what()) == "text");
}

int main(int count, char **arguments) {
    const bool has_gpu = count > 1 && std::string(arguments[1]) == "gpu";
    CHECK(cudaFree(nullptr) == cudaSuccess);
    cudaStream_t stream = create_stream();
    {
        resource plain(vkgdr::device::open_primary_context());
        resource pooled = resource::pooled(vkgdr::device::open_primary_context());
        resource host(vkgdr::device::open_primary_context(), vkgdr::memory_kind::host);
        CHECK(plain == resource(plain) && plain != pooled && !(plain == host));
        for (const resource &mr : {plain, pooled, host}) {
            both_views(mr, stream);
            freed_after_the_work_of_the_stream(mr, stream);
            sizes_and_alignments(mr);
            moved_from(mr);
            shortages(mr, stream);
            adaptors_of_rmm(mr, stream);
            if (has_gpu) on_a_gpu(mr, stream);
        }
        resource device(vkgdr::device::open_primary_context(), vkgdr::memory_kind::device);
        rmm::device_buffer buffer(1000, stream, device);
        CHECK(buffer.data() != nullptr && resource::host_ptr(buffer.data()) == nullptr);
        cuda::mr::any_resource<cuda::mr::device_accessible> erased(pooled);
        void *memory = erased.allocate(cudaStream_t{stream}, 10, 256);
        erased.deallocate(cudaStream_t{stream}, memory, 10, 256);
    }
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    std::puts("ok");
}
