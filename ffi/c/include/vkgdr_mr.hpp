/**
 * @file
 * vkgdr's memory as a memory resource of CCCL (`cuda::mr`), for containers and algorithms that take one: those of RMM,
 * cuDF and CCCL.
 *
 * Header only, C++17. Needs CCCL 3.1 or newer (`<cuda/memory_resource>`), of the CUDA toolkit or of RMM.
 */
#ifndef VKGDR_MR_HPP
#define VKGDR_MR_HPP

#include "vkgdr.hpp"

#include <cuda/memory_resource>
#include <cuda/stream_ref>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>

/// The error for a shortage of memory, as of operator new, with the library's text.
class vkgdr_bad_alloc : public std::bad_alloc {
public:
    /// @param what  The text.
    explicit vkgdr_bad_alloc(const std::string &what) : what_(std::make_shared<const std::string>(what)) {}
    /// Shares the text, also with what it is moved from.
    vkgdr_bad_alloc(const vkgdr_bad_alloc &) = default;
    vkgdr_bad_alloc &operator=(const vkgdr_bad_alloc &) = default;
    /// The text.
    const char *what() const noexcept override { return what_->c_str(); }

private:
    // Copies of an exception must not throw.
    std::shared_ptr<const std::string> what_;
};

/**
 * Allocates memory that the CPU sees too, and frees it by its device address.
 *
 * Its pointers are device addresses: its property is `cuda::mr::device_accessible`, and it is not `host_accessible`, since the
 * CPU has an address of its own: that of host_ptr() or vkgdr_find(). Copies share the GPU's handle and the pool, which live as
 * long as the last copy; memory in use must be freed before. All functions may be called from any thread.
 */
class vkgdr_memory_resource {
public:
    /// The alignment of addresses in bytes, where no other is asked for: that of cudaMalloc().
    static constexpr std::size_t default_alignment = 256;

    /// Each allocation is one of the drivers'.
    ///
    /// @param gpu   A handle with a primary context, as of vkgdr::device::open_primary_context().
    /// @param kind  The kind of memory.
    explicit vkgdr_memory_resource(vkgdr::device gpu, vkgdr::memory_kind kind = vkgdr::memory_kind::mapped)
        : state_(std::make_shared<state>(std::move(gpu), kind)) {}

    /// Shares the handle and the pool. There is no move, which would leave a resource that can do nothing: std::move copies.
    vkgdr_memory_resource(const vkgdr_memory_resource &) = default;
    vkgdr_memory_resource &operator=(const vkgdr_memory_resource &) = default;

    /// Small allocations are lent by a pool, without a call of a driver.
    ///
    /// @param gpu   As for the constructor.
    /// @param kind  The kind of memory.
    static vkgdr_memory_resource pooled(vkgdr::device gpu, vkgdr::memory_kind kind = vkgdr::memory_kind::mapped) {
        vkgdr_memory_resource resource(std::move(gpu), kind);
        vkgdr_pool_options options{};
        options.kind = static_cast<std::uint32_t>(kind);
        options.alignment = default_alignment;
        resource.state_->pool = vkgdr::pool::create(resource.state_->gpu, options);
        return resource;
    }

    /// Allocates memory that any stream may use at once; a request for 0 bytes returns nullptr.
    ///
    /// @throw vkgdr_bad_alloc  Memory is exhausted, or no address has the alignment.
    /// @throw vkgdr::error     Any other failure.
    [[nodiscard]] void *allocate(::cuda::stream_ref, std::size_t bytes, std::size_t alignment = default_alignment) {
        return allocate_sync(bytes, alignment);
    }

    /// Frees memory after the work that was submitted to a stream before. Does not wait, except for the per-thread default
    /// stream, to which memory cannot be bound. A nullptr is allowed.
    ///
    /// @param stream  A stream of the GPU's primary context. Where vkgdr_find() gave references to the memory, it must live
    ///                until they are freed.
    /// @param ptr     From allocate() or allocate_sync() of this resource or of its copies.
    void deallocate(::cuda::stream_ref stream, void *ptr, std::size_t, std::size_t = default_alignment) noexcept {
        if (ptr == nullptr) return;
        vkgdr_memory_t found = nullptr;
        if (vkgdr_find(ptr, &found, nullptr) != VKGDR_SUCCESS) return;
        const auto address = reinterpret_cast<CUdeviceptr>(ptr);
        if (vkgdr_memory_bind_stream(found, reinterpret_cast<CUstream>(stream.get())) == VKGDR_SUCCESS) {
            vkgdr_memory_free_at(address);
            vkgdr_memory_free(found);
            return;
        }
        const bool is_done = is_synchronized(stream);
        // First: as the last reference it would wait for all work of the context.
        vkgdr_memory_free(found);
        // Where the stream cannot be waited for, the device may still use the memory, which then stays.
        if (is_done) vkgdr_memory_free_at(address);
    }

    /// Allocates memory; 0 bytes are at address 0.
    ///
    /// @throw vkgdr_bad_alloc  Memory is exhausted, or no address has the alignment.
    /// @throw vkgdr::error     Any other failure.
    [[nodiscard]] void *allocate_sync(std::size_t bytes, std::size_t alignment = default_alignment) {
        if (bytes == 0) return nullptr;
        try {
            vkgdr::memory memory = state_->pool && alignment <= default_alignment
                                       ? state_->pool.allocate(bytes)
                                       : vkgdr::memory::allocate(state_->gpu, bytes, state_->kind);
            const CUdeviceptr address = memory.device_ptr();
            if (alignment == 0 || address % alignment != 0) {
                throw vkgdr_bad_alloc("vkgdr: no memory is aligned to " + std::to_string(alignment) + " bytes");
            }
            static_cast<void>(memory.release());
            return reinterpret_cast<void *>(address);
        } catch (const vkgdr::error &failure) {
            if (failure.status() != VKGDR_ERROR_OUT_OF_MEMORY) throw;
            throw vkgdr_bad_alloc(failure.what());
        }
    }

    /// Frees memory with which all streams have finished. A nullptr is allowed.
    void deallocate_sync(void *ptr, std::size_t, std::size_t = default_alignment) noexcept {
        vkgdr_memory_free_at(reinterpret_cast<CUdeviceptr>(ptr));
    }

    /// The CPU's address of a byte, given its device address; nullptr for device memory, and for an address in no memory of
    /// this library. Valid until the memory is freed. Synchronize the stream before the CPU uses the bytes.
    static void *host_ptr(const void *ptr) noexcept {
        vkgdr_memory_t found = nullptr;
        std::size_t offset = 0;
        if (vkgdr_find(ptr, &found, &offset) != VKGDR_SUCCESS) return nullptr;
        auto *first = static_cast<std::byte *>(vkgdr_memory_get_host_ptr(found));
        vkgdr_memory_free(found);
        return first == nullptr ? nullptr : first + offset;
    }

    /// Whether memory allocated by one can be freed by the other.
    friend bool operator==(const vkgdr_memory_resource &a, const vkgdr_memory_resource &b) noexcept {
        return a.state_ == b.state_;
    }
    /// The opposite.
    friend bool operator!=(const vkgdr_memory_resource &a, const vkgdr_memory_resource &b) noexcept { return !(a == b); }

    /// The device can access the memory by its pointers.
    friend constexpr void get_property(const vkgdr_memory_resource &, ::cuda::mr::device_accessible) noexcept {}

private:
    struct state {
        state(vkgdr::device gpu, vkgdr::memory_kind kind) noexcept : gpu(std::move(gpu)), kind(kind) {}
        vkgdr::device gpu;
        vkgdr::memory_kind kind;
        /// Closed before the GPU; empty without a pool.
        vkgdr::pool pool;
    };

    static bool is_synchronized(::cuda::stream_ref stream) noexcept {
        try {
            stream.sync();
            return true;
        } catch (...) {
            return false;
        }
    }

    std::shared_ptr<state> state_;
};

static_assert(::cuda::mr::resource_with<vkgdr_memory_resource, ::cuda::mr::device_accessible>);

#endif  // VKGDR_MR_HPP
