/**
 * @file
 * `vkgdr::device`: a GPU. Included by vkgdr.hpp.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef VKGDR_DEVICE_HPP
#define VKGDR_DEVICE_HPP

#include "vkgdr_base.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

/// A GPU whose memory can be allocated. Move-only; empty after it was moved from, and then every method throws.
///
/// Memory keeps what it needs of the GPU, so a device may be destroyed before its memory.
class vkgdr::device {
public:
    /// An empty one.
    device() noexcept = default;
    /// Takes over a handle of the C library.
    explicit device(vkgdr_t handle) noexcept : handle_(handle) {}

    /// Opens a GPU. Needs no current context; allocations do. A GPU without mapped memory is opened only with
    /// VKGDR_OPEN_MAPPED_OPTIONAL_BIT.
    ///
    /// @param number  The CUDA device number.
    /// @param flags   Of `enum vkgdr_open_flags`.
    /// @throw error   See vkgdr_open().
    static device open(CUdevice number, std::uint32_t flags = 0) {
        device opened(vkgdr_open(number, flags));
        if (!opened) throw_last_error("vkgdr_open");
        return opened;
    }

    /// Opens the GPU of the CUDA context that is current on this thread.
    ///
    /// @param flags  Of `enum vkgdr_open_flags`.
    /// @throw error  As open(), and with CUDA_ERROR_INVALID_CONTEXT if no context is current.
    static device open_current_context(std::uint32_t flags = 0) {
        return open(0, flags | std::uint32_t{VKGDR_OPEN_CURRENT_CONTEXT_BIT});
    }

    /// Opens a GPU and retains its primary context, which the CUDA runtime uses. Memory is allocated in that
    /// context, and no context needs to be current.
    ///
    /// @param number  The CUDA device number.
    /// @param flags   Of `enum vkgdr_open_flags`.
    /// @throw error   See vkgdr_open_primary_context().
    static device open_primary_context(CUdevice number = 0, std::uint32_t flags = 0) {
        vkgdr_t handle = nullptr;
        if (vkgdr_open_primary_context(number, flags, &handle) != VKGDR_SUCCESS) {
            throw_last_error("vkgdr_open_primary_context");
        }
        return device(handle);
    }

    /// Opens a GPU on a Vulkan device that the program made, see vkgdr_open_on(). The device must outlive all memory of the
    /// handle; call finish_deferred_frees() before it is destroyed.
    ///
    /// @param handles  The Vulkan device.
    /// @param flags    Of `enum vkgdr_open_flags`.
    /// @throw error    See vkgdr_open_on().
    static device open_on(const vkgdr_vulkan_handles &handles, std::uint32_t flags = 0) {
        vkgdr_t handle = nullptr;
        if (vkgdr_open_on(&handles, flags, &handle) != VKGDR_SUCCESS) throw_last_error("vkgdr_open_on");
        return device(handle);
    }

    /// The Vulkan device on which this handle allocates.
    vkgdr_vulkan_handles vulkan_handles() const {
        vkgdr_vulkan_handles handles{};
        check("vkgdr_device_get_vulkan_handles", vkgdr_device_get_vulkan_handles(get(), &handles));
        return handles;
    }

    /// Waits for frees that wait for streams, see vkgdr_device_finish_deferred_frees().
    void finish_deferred_frees() const { check("vkgdr_device_finish_deferred_frees", vkgdr_device_finish_deferred_frees(get())); }

    /// The CUDA device number.
    CUdevice number() const {
        CUdevice number = 0;
        check("vkgdr_device_get_number", vkgdr_device_get_number(get(), &number));
        return number;
    }

    /// The name of the GPU.
    std::string name() const {
        std::array<char, 256> buffer{};  // holds every name, says the C header
        check("vkgdr_device_get_name", vkgdr_device_get_name(get(), buffer.data(), buffer.size()));
        return buffer.data();
    }

    /// The UUID of the GPU, the same in CUDA and Vulkan.
    std::array<std::uint8_t, 16> uuid() const {
        std::array<std::uint8_t, 16> uuid{};
        check("vkgdr_device_get_uuid", vkgdr_device_get_uuid(get(), uuid.data()));
        return uuid;
    }

    /// Whether the GPU has a kind of memory.
    bool supports(memory_kind kind) const {
        bool supported = false;
        check("vkgdr_device_supports",
              vkgdr_device_supports(get(), static_cast<std::uint32_t>(kind), &supported));
        return supported;
    }

    /// Whether memory::map_existing() works on this GPU.
    bool supports_existing() const {
        bool supported = false;
        check("vkgdr_device_supports_existing", vkgdr_device_supports_existing(get(), &supported));
        return supported;
    }

    /// How much memory of a kind there is, in bytes.
    ///
    /// @throw error  VKGDR_ERROR_NOT_SUPPORTED if the GPU has no such memory.
    vkgdr_memory_info memory_info(memory_kind kind) const {
        vkgdr_memory_info info{};
        check("vkgdr_device_get_memory_info",
              vkgdr_device_get_memory_info(get(), static_cast<std::uint32_t>(kind), &info));
        return info;
    }

    /// Frees memory whose free was deferred until a stream had passed it; see vkgdr_device_collect().
    ///
    /// @return The number of freed allocations.
    std::size_t collect() const {
        std::size_t count = 0;
        check("vkgdr_device_collect", vkgdr_device_collect(get(), &count));
        return count;
    }

    /// From how many bytes on copies are left to the copy engine; see `struct vkgdr_copy_thresholds`.
    vkgdr_copy_thresholds copy_thresholds() const {
        vkgdr_copy_thresholds thresholds{};
        check("vkgdr_copy_get_thresholds", vkgdr_copy_get_thresholds(get(), &thresholds));
        return thresholds;
    }

    /// Sets from how many bytes on copies are left to the copy engine, for all handles of this GPU.
    ///
    /// @param thresholds  In bytes; 0 leaves every copy to the copy engine, SIZE_MAX none.
    void set_copy_thresholds(const vkgdr_copy_thresholds &thresholds) const {
        check("vkgdr_copy_set_thresholds", vkgdr_copy_set_thresholds(get(), &thresholds));
    }

    /// Makes the copy engine's pinned memory and streams, which VKGDR_COPY_AUTO needs; see vkgdr_copy_prepare(). A
    /// context must be current, as for memory::allocate().
    ///
    /// @throw error  The drivers' error.
    void prepare_copies() const {
        check("vkgdr_copy_prepare", vkgdr_copy_prepare(get()));
    }

    /// The handle for the C functions, still owned by this object.
    vkgdr_t get() const noexcept { return handle_.get(); }
    /// Hands the handle over to the caller, for vkgdr_close().
    vkgdr_t release() noexcept { return handle_.release(); }
    /// Whether this object has a handle.
    explicit operator bool() const noexcept { return handle_ != nullptr; }

private:
    struct close {
        void operator()(vkgdr_t handle) const noexcept { vkgdr_close(handle); }
    };
    std::unique_ptr<vkgdr, close> handle_;
};

#endif  // VKGDR_DEVICE_HPP
