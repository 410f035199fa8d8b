/**
 * @file
 * The scope `vkgdr`: errors, constants, and what the classes share. Included by vkgdr.hpp.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef VKGDR_BASE_HPP
#define VKGDR_BASE_HPP

#include "vkgdr.h"

#if __cplusplus < 201703L
#  error "vkgdr.hpp needs C++17"
#endif

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#if __has_include(<version>)
#  include <version>
#endif
#ifdef __cpp_lib_span
#  include <span>
#endif

struct vkgdr {
    vkgdr() = delete;
    ~vkgdr() = delete;

    class device;
    class memory;
    class pool;
    class ring;
    class unique_deleter;

    /// Where memory is located, and which side can access it.
    enum class memory_kind : std::uint32_t {
        mapped = VKGDR_MEMORY_MAPPED,  ///< GPU memory that the CPU accesses through the PCIe BAR.
        host = VKGDR_MEMORY_HOST,      ///< Cached system memory that the GPU accesses over PCIe.
        device = VKGDR_MEMORY_DEVICE,  ///< GPU memory without a host view.
    };

    /// Who copies, for memory::write_with() and memory::read_with().
    enum class copy_policy : std::uint32_t {
        automatic = VKGDR_COPY_AUTO,  ///< The copy engine from the thresholds on, the CPU below them.
        cpu = VKGDR_COPY_CPU,         ///< The CPU's loads and stores.
        dma = VKGDR_COPY_DMA,         ///< The GPU's copy engine, whatever the size.
    };

    /// The exception for every failure. `what()` names the operation and, after open and allocate, the remedy.
    class error : public std::runtime_error {
    public:
        /// @param what    The message.
        /// @param status  Of `enum vkgdr_status`.
        /// @param cuda    A `CUresult`, or 0.
        /// @param vulkan  A `VkResult`, or 0.
        /// @param system  An error number of errno.h, or 0.
        error(const std::string &what, std::int32_t status, std::int32_t cuda = 0, std::int32_t vulkan = 0,
              int system = 0)
            : std::runtime_error(what), status_(status), cuda_(cuda), vulkan_(vulkan), system_(system) {}

        /// Of `enum vkgdr_status`, never VKGDR_SUCCESS.
        std::int32_t status() const noexcept { return status_; }
        /// The `CUresult`, if a CUDA driver call failed while opening or allocating, else 0.
        std::int32_t cuda() const noexcept { return cuda_; }
        /// The `VkResult`, if a Vulkan call failed while opening or allocating, else 0.
        std::int32_t vulkan() const noexcept { return vulkan_; }
        /// The error number of a system call, such as EAGAIN, with VKGDR_ERROR_SYSTEM; else 0. `errno` itself may have
        /// changed by the time that the exception is caught.
        int system() const noexcept { return system_; }

    private:
        std::int32_t status_;
        std::int32_t cuda_;
        std::int32_t vulkan_;
        int system_;
    };

    /// The bytes of memory as the CPU sees them: the part of C++20's `std::span<std::byte>` that is needed to pass
    /// them on. Does not own them. One class in every version of C++, so that files compiled as different ones fit
    /// together; from C++20 on it converts to and from `std::span<std::byte>`.
    class byte_span {
    public:
        using element_type = std::byte;          ///< As in `std::span`.
        using value_type = std::byte;            ///< As in `std::span`.
        using size_type = std::size_t;           ///< As in `std::span`.
        using difference_type = std::ptrdiff_t;  ///< As in `std::span`.
        using pointer = std::byte *;             ///< As in `std::span`.
        using reference = std::byte &;           ///< As in `std::span`.
        using iterator = std::byte *;            ///< As in `std::span`.

        constexpr byte_span() noexcept = default;
        /// @param data  The first byte.
        /// @param size  Bytes.
        constexpr byte_span(std::byte *data, std::size_t size) noexcept : data_(data), size_(size) {}
        /// @param view  What does not own its bytes, such as `std::span<std::byte>`: a container that is constant has
        ///              no bytes to write.
        template <typename View, typename Pointer = decltype(std::data(std::declval<const View &>())),
                  typename = std::enable_if_t<std::is_convertible_v<Pointer, std::byte *>>>
        constexpr byte_span(const View &view) noexcept : data_(std::data(view)), size_(std::size(view)) {}

        constexpr std::byte *data() const noexcept { return data_; }                ///< The first byte.
        constexpr std::size_t size() const noexcept { return size_; }               ///< The number of bytes.
        constexpr std::size_t size_bytes() const noexcept { return size_; }         ///< The number of bytes.
        constexpr bool empty() const noexcept { return size_ == 0; }                ///< Whether there are none.
        constexpr std::byte *begin() const noexcept { return data_; }               ///< The first byte.
        constexpr std::byte *end() const noexcept { return data_ + size_; }         ///< Past the last byte.
        constexpr std::byte &operator[](std::size_t i) const { return data_[i]; }   ///< Unchecked.

    private:
        std::byte *data_ = nullptr;
        std::size_t size_ = 0;
    };

    /// A pointer to the bytes of memory that frees the memory.
    using unique_bytes = std::unique_ptr<std::uint8_t[], std::function<void(std::uint8_t *)>>;

    /// Allocates memory that a `std::unique_ptr` to its first byte owns, the form that allocators of other libraries
    /// expect. The memory keeps the GPU open. As for class memory, freeing it does not wait for the device.
    ///
    /// An allocator for spead2 needs only
    ///
    ///     pointer allocate(std::size_t size, void *) override { return vkgdr::allocate_unique<pointer>(gpu, size); }
    ///
    /// and gets the device address of a heap by `vkgdr::memory_of(heap.get_payload()).device_ptr()`.
    ///
    /// @tparam Pointer  A `std::unique_ptr` of bytes whose deleter can be constructed from a unique_deleter.
    /// @param owner     The GPU.
    /// @param size      Bytes, more than 0.
    /// @param kind      The kind of memory.
    /// @throw error     See memory::allocate(); VKGDR_ERROR_NOT_SUPPORTED for device memory, which has no host view.
    template <typename Pointer = unique_bytes>
    static Pointer allocate_unique(const device &owner, std::size_t size, memory_kind kind = memory_kind::mapped);

    /// The memory behind a pointer from allocate_unique().
    ///
    /// @throw error  VKGDR_ERROR_INVALID_ARGUMENT for any other pointer, or if another deleter wraps the
    /// unique_deleter.
    template <typename Pointer>
    static memory &memory_of(const Pointer &pointer);

    /// The version of the library that is loaded, such as `0.2.0`.
    static const char *version() noexcept { return vkgdr_version(); }

private:
    [[noreturn]] static void throw_status(const char *operation, std::int32_t status) {
        throw error(std::string(operation) + " failed (" + vkgdr_status_string(status) + ")", status);
    }

    static void check(const char *operation, std::int32_t status) {
        if (status != VKGDR_SUCCESS) throw_status(operation, status);
    }

    /// Throws the last error of this thread.
    [[noreturn]] static void throw_last_error(const char *operation) {
        // First: everything else may change it.
        const int system = errno;
        struct free_string {
            void operator()(char *text) const noexcept { std::free(text); }
        };
        std::int32_t status = VKGDR_SUCCESS, cuda = 0, vulkan = 0;
        vkgdr_last_error_codes(&status, &cuda, &vulkan);
        const std::unique_ptr<char, free_string> text(vkgdr_last_error());
        if (text == nullptr) throw_status(operation, status != VKGDR_SUCCESS ? status : VKGDR_ERROR_INTERNAL);
        throw error(text.get(), status, cuda, vulkan, status == VKGDR_ERROR_SYSTEM ? system : 0);
    }
};

#ifdef __cpp_lib_span
/// Lets `std::span` take a temporary byte_span: the bytes are the memory's.
template <>
inline constexpr bool std::ranges::enable_borrowed_range<vkgdr::byte_span> = true;
#endif

#endif  // VKGDR_BASE_HPP
