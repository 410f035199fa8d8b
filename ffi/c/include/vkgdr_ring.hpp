/**
 * @file
 * `vkgdr::ring`: messages to a running kernel, and answers. Included by vkgdr.hpp.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef VKGDR_RING_HPP
#define VKGDR_RING_HPP

#include "vkgdr_device.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

/// Messages to a kernel that keeps running, and its answers. The kernel's end is in `vkgdr_ring.cuh`. Move-only; empty
/// after it was moved from, and then every method throws. The destructor aborts the kernel; see vkgdr_ring_free().
class vkgdr::ring {
public:
    /// A time that never ends.
    static constexpr std::chrono::nanoseconds forever = std::chrono::nanoseconds::max();

    /// An empty one.
    ring() noexcept = default;
    /// Takes over a handle of the C library.
    explicit ring(vkgdr_ring_t handle) noexcept : handle_(handle) {}

    /// Allocates a ring. Allocate before a kernel runs that waits for the CPU.
    ///
    /// @param owner     The GPU. It may be destroyed before the ring.
    /// @param messages  The bytes of the longest message, and of all that are on their way.
    /// @param answers   The same for answers.
    /// @throw error     See vkgdr_ring_create().
    static ring create(const device &owner, std::size_t messages, std::size_t answers) {
        vkgdr_ring_t handle = nullptr;
        if (vkgdr_ring_create(owner.get(), messages, answers, &handle) != VKGDR_SUCCESS) {
            throw_last_error("vkgdr_ring_create");
        }
        return ring(handle);
    }

    /// The kernel's argument.
    CUdeviceptr device_ptr() const {
        if (!handle_) throw_status("vkgdr::ring::device_ptr", VKGDR_ERROR_INVALID_ARGUMENT);
        return vkgdr_ring_get_device_ptr(get());
    }

    /// Binds the ring to the stream of its kernel: the destructor then waits for no other kernel, and returns at once.
    ///
    /// @param stream  As for memory::bind_stream().
    void bind_stream(CUstream stream) const {
        check("vkgdr_ring_bind_stream", vkgdr_ring_bind_stream(get(), stream));
    }

    /// Pushes a message, and waits for room. The wait keeps the CPU busy.
    ///
    /// @param message  The bytes.
    /// @param size     Bytes.
    /// @param timeout  The longest wait; 0 for none.
    /// @return Whether there was room in time.
    /// @throw error    VKGDR_ERROR_CLOSED, VKGDR_ERROR_OUT_OF_RANGE for a message that is longer than the ring.
    bool push(const void *message, std::size_t size, std::chrono::nanoseconds timeout = forever) const {
        return in_time("vkgdr_ring_push", vkgdr_ring_push(get(), message, size, limit(timeout)));
    }

    /// Pushes messages while there is room, all under one fence. Does not wait.
    ///
    /// @param messages  The address of each message.
    /// @param sizes     The bytes of each message.
    /// @param count     Messages.
    /// @return The number of messages that were pushed, the first ones.
    /// @throw error     As push(), of the first message.
    std::size_t push_all(const void *const *messages, const std::size_t *sizes, std::size_t count) const {
        std::size_t pushed = 0;
        check("vkgdr_ring_push_all", vkgdr_ring_push_all(get(), messages, sizes, count, &pushed));
        return pushed;
    }

    /// Pops an answer, and waits for one. The wait keeps the CPU busy.
    ///
    /// @param buffer    Where the answer goes.
    /// @param capacity  Bytes of the buffer.
    /// @param size      Its length in bytes, if there was one in time.
    /// @param timeout   The longest wait; 0 for none.
    /// @return Whether there was an answer in time.
    /// @throw error     VKGDR_ERROR_CLOSED if there will be none, VKGDR_ERROR_OUT_OF_RANGE if the buffer is too short.
    bool pop(void *buffer, std::size_t capacity, std::size_t &size,
             std::chrono::nanoseconds timeout = forever) const {
        return in_time("vkgdr_ring_pop", vkgdr_ring_pop(get(), buffer, capacity, &size, limit(timeout)));
    }

    /// Ends the messages: the kernel ends once it has read all of them.
    void close() const { check("vkgdr_ring_close", vkgdr_ring_close(get())); }

    /// Ends the kernel's waits and its reading at once, and all pushes and pops.
    void abort() const { check("vkgdr_ring_abort", vkgdr_ring_abort(get())); }

    /// What has passed through the ring.
    vkgdr_ring_stats stats() const {
        vkgdr_ring_stats stats{};
        check("vkgdr_ring_get_stats", vkgdr_ring_get_stats(get(), &stats));
        return stats;
    }

    /// The handle for the C functions, still owned by this object.
    vkgdr_ring_t get() const noexcept { return handle_.get(); }
    /// Hands the handle over to the caller, for vkgdr_ring_free().
    vkgdr_ring_t release() noexcept { return handle_.release(); }
    /// Whether this object has a handle.
    explicit operator bool() const noexcept { return handle_ != nullptr; }

private:
    struct free {
        void operator()(vkgdr_ring_t handle) const noexcept { vkgdr_ring_free(handle); }
    };

    /// Whether a call was in time; other failures throw.
    static bool in_time(const char *operation, std::int32_t status) {
        if (status == VKGDR_ERROR_TIMEOUT) return false;
        check(operation, status);
        return true;
    }

    /// The C functions' number for a time; none for one that has passed.
    static std::uint64_t limit(std::chrono::nanoseconds timeout) noexcept {
        if (timeout == forever) return UINT64_MAX;
        return timeout.count() < 0 ? 0 : static_cast<std::uint64_t>(timeout.count());
    }

    std::unique_ptr<vkgdr_ring, free> handle_;
};

#endif  // VKGDR_RING_HPP
