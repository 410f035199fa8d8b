/**
 * @file
 * `vkgdr::pool`: small memory without driver calls. Included by vkgdr.hpp.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef VKGDR_POOL_HPP
#define VKGDR_POOL_HPP

#include "vkgdr_memory.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

/// Allocates small memory in nanoseconds, without a driver call. Move-only; empty after it was moved from, and then
/// every method throws. May be destroyed before its memory.
class vkgdr::pool {
public:
    /// An empty one.
    pool() noexcept = default;
    /// Takes over a pool of the C library.
    explicit pool(vkgdr_pool_t handle) noexcept : handle_(handle) {}

    /// Creates a pool, without a block at first. A context must be current, as for memory::allocate().
    ///
    /// @param owner    The GPU.
    /// @param options  The options; members that are 0 have their defaults. `size` is set by this function.
    /// @throw error    See vkgdr_pool_create().
    static pool create(const device &owner, vkgdr_pool_options options) {
        vkgdr_pool_t handle = nullptr;
        options.size = sizeof options;
        if (vkgdr_pool_create(owner.get(), &options, &handle) != VKGDR_SUCCESS) {
            throw_last_error("vkgdr_pool_create");
        }
        return pool(handle);
    }

    /// As the other create(), with the default options except for the kind of memory.
    static pool create(const device &owner, memory_kind kind = memory_kind::mapped) {
        vkgdr_pool_options options{};
        options.kind = static_cast<std::uint32_t>(kind);
        return create(owner, options);
    }

    /// Allocates memory, which returns to the pool when it is freed and is reused immediately: the device must have
    /// finished with it, unless it is bound to a stream. The contents are undefined.
    ///
    /// @param size   Bytes, more than 0.
    /// @throw error  See vkgdr_pool_alloc().
    memory allocate(std::size_t size) const {
        memory allocated(vkgdr_pool_alloc(get(), size));
        if (!allocated) throw_last_error("vkgdr_pool_alloc");
        return allocated;
    }

    /// Allocates memory that is bound to a stream, whose earlier work may still use it.
    ///
    /// @param size    Bytes, more than 0.
    /// @param stream  As for memory::bind_stream().
    /// @throw error   See vkgdr_pool_alloc_on().
    memory allocate_on(std::size_t size, CUstream stream) const {
        memory allocated(vkgdr_pool_alloc_on(get(), size, stream));
        if (!allocated) throw_last_error("vkgdr_pool_alloc_on");
        return allocated;
    }

    /// Releases unused blocks until the pool has at most `keep` bytes. Does not wait.
    ///
    /// @param keep  Bytes.
    /// @return The released bytes.
    std::size_t trim(std::size_t keep = 0) const {
        std::size_t freed = 0;
        check("vkgdr_pool_trim", vkgdr_pool_trim(get(), keep, &freed));
        return freed;
    }

    /// Waits for the pool's context and releases every unused block.
    void free_held() const { check("vkgdr_pool_free_held", vkgdr_pool_free_held(get())); }

    /// As free_held(), and from now on releases every block as soon as it is unused.
    void stop_holding() const { check("vkgdr_pool_stop_holding", vkgdr_pool_stop_holding(get())); }

    /// The current state of the pool.
    vkgdr_pool_stats stats() const {
        vkgdr_pool_stats stats{};
        check("vkgdr_pool_get_stats", vkgdr_pool_get_stats(get(), &stats));
        return stats;
    }

    /// The handle for the C functions, still owned by this object.
    vkgdr_pool_t get() const noexcept { return handle_.get(); }
    /// Hands the handle over to the caller, for vkgdr_pool_close().
    vkgdr_pool_t release() noexcept { return handle_.release(); }
    /// Whether this object has a handle.
    explicit operator bool() const noexcept { return handle_ != nullptr; }

private:
    struct close {
        void operator()(vkgdr_pool_t handle) const noexcept { vkgdr_pool_close(handle); }
    };
    std::unique_ptr<vkgdr_pool, close> handle_;
};

#endif  // VKGDR_POOL_HPP
