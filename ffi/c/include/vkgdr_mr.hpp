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

#include <new>

/// The error for a shortage of memory, as of operator new, with the library's text.
class vkgdr_bad_alloc : public std::bad_alloc {
public:
    /// With a text.
    explicit vkgdr_bad_alloc(const std::string &what) : text_(what) {}
    /// The text.
    const char *what() const noexcept override { return text_.what(); }

private:
    const std::runtime_error text_;  // whose copies do not throw; const, so that a move copies
};

/// Allocates memory that the CPU sees too, and frees it by its device address.
///
/// Its pointers are device addresses: its property is `cuda::mr::device_accessible`. It is not `host_accessible`, since the CPU
/// has an address of its own: that of host_ptr() or vkgdr_find(). Copies share the GPU's handle and the pool, which live as
/// long as the last copy; memory in use must be freed before. All functions may be called from any thread.
class vkgdr_memory_resource {
public:
    /// The alignment of addresses in bytes, where no other is asked for: that of cudaMalloc().
    static constexpr std::size_t default_alignment = 256;

    /// Each allocation is one of the drivers'. The handle has a primary context, as of vkgdr::device::open_primary_context().
    explicit vkgdr_memory_resource(vkgdr::device gpu, vkgdr::memory_kind kind = vkgdr::memory_kind::mapped)
        : state_(std::make_shared<state>(state{std::move(gpu), kind, {}})) {}

    /// Shares the handle and the pool. There is no move, which would leave a resource that can do nothing: std::move copies.
    vkgdr_memory_resource(const vkgdr_memory_resource &) = default;
    vkgdr_memory_resource &operator=(const vkgdr_memory_resource &) = default;

    /// Small allocations are lent by a pool, without a call of a driver; otherwise as the constructor.
    static vkgdr_memory_resource pooled(vkgdr::device gpu, vkgdr::memory_kind kind = vkgdr::memory_kind::mapped) {
        vkgdr_memory_resource resource(std::move(gpu), kind);
        vkgdr_pool_options options{};
        options.kind = static_cast<std::uint32_t>(kind);
        options.alignment = default_alignment;
        resource.state_->pool = vkgdr::pool::create(resource.state_->gpu, options);
        return resource;
    }

    /// Allocates memory that any stream may use at once; as allocate_sync().
    [[nodiscard]] void *allocate(::cuda::stream_ref, std::size_t bytes, std::size_t alignment = default_alignment) {
        return allocate_sync(bytes, alignment);
    }

    /// Frees memory of this resource or of its copies after the work that was submitted to a stream of the primary context
    /// before. Does not wait, except for the per-thread default stream, to which memory cannot be bound. A nullptr is allowed.
    /// Where vkgdr_find() gave references to the memory, the stream must live until they are freed.
    void deallocate(::cuda::stream_ref stream, void *ptr, std::size_t, std::size_t = default_alignment) noexcept {
        auto found = vkgdr::memory::find(ptr);
        if (!found) return;
        const bool follows = vkgdr_memory_bind_stream(found.get(), reinterpret_cast<CUstream>(stream.get())) == VKGDR_SUCCESS;
        const bool may_free = follows || is_synchronized(stream);
        // First: as the last reference it would wait for all work of the context.
        if (!follows) found.reset();
        // Where the stream cannot be waited for, the device may still use the memory, which then stays.
        if (may_free) vkgdr_memory_free_at(reinterpret_cast<CUdeviceptr>(ptr));
    }

    /// Allocates memory; 0 bytes are a nullptr. Throws vkgdr_bad_alloc if memory is exhausted or no address has the alignment,
    /// and vkgdr::error for any other failure.
    [[nodiscard]] void *allocate_sync(std::size_t bytes, std::size_t alignment = default_alignment) {
        if (bytes == 0) return nullptr;
        try {
            vkgdr::memory memory = state_->pool && alignment <= default_alignment
                                       ? state_->pool.allocate(bytes)
                                       : vkgdr::memory::allocate(state_->gpu, bytes, state_->kind);
            void *address = memory.device_ptr<void>();
            if (alignment == 0 || memory.device_ptr() % alignment != 0) {
                throw vkgdr_bad_alloc("vkgdr: no memory is aligned to " + std::to_string(alignment) + " bytes");
            }
            static_cast<void>(memory.release());
            return address;
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
        std::size_t offset = 0;
        const auto found = vkgdr::memory::find(ptr, &offset);
        auto *first = found.host_ptr<std::byte>();
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

#endif  // VKGDR_MR_HPP
