/**
 * @file
 * vkgdr for C++17: handles that close themselves, and errors as exceptions.
 *
 * A thin layer over vkgdr.h, header only. Everything is in the scope `vkgdr`, which is a struct rather than a
 * namespace: the C header uses that name for a type. So `using namespace vkgdr` is not possible.
 *
 * Objects may be used by several threads at a time, but not while one of them moves, frees or destroys the object.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef VKGDR_HPP
#define VKGDR_HPP

#include "vkgdr.h"

#if __cplusplus < 201703L
#  error "vkgdr.hpp needs C++17"
#endif

#include <array>
#include <chrono>
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

/// The scope of everything here. It has no objects: a `vkgdr_t` points at something else.
struct vkgdr {
    vkgdr() = delete;
    ~vkgdr() = delete;

    class device;
    class memory;
    class pool;
    class ring;

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
        error(const std::string &what, std::int32_t status, std::int32_t cuda = 0, std::int32_t vulkan = 0)
            : std::runtime_error(what), status_(status), cuda_(cuda), vulkan_(vulkan) {}

        /// Of `enum vkgdr_status`, never VKGDR_SUCCESS.
        std::int32_t status() const noexcept { return status_; }
        /// The `CUresult`, if a CUDA driver call failed while opening or allocating, else 0.
        std::int32_t cuda() const noexcept { return cuda_; }
        /// The `VkResult`, if a Vulkan call failed while opening or allocating, else 0.
        std::int32_t vulkan() const noexcept { return vulkan_; }

    private:
        std::int32_t status_;
        std::int32_t cuda_;
        std::int32_t vulkan_;
    };

    /// A GPU whose memory can be allocated. Move-only; empty after it was moved from, and then every method throws.
    ///
    /// Memory keeps what it needs of the GPU, so a device may be destroyed before its memory.
    class device {
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
        /// handle; call finish_frees() before it is destroyed.
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

        /// Waits for frees that wait for streams, see vkgdr_device_finish_frees().
        void finish_frees() const { check("vkgdr_device_finish_frees", vkgdr_device_finish_frees(get())); }

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

        /// Measures from how many bytes on the copy engine is faster, and sets the thresholds so; see
        /// vkgdr_copy_calibrate(). A context must be current, as for memory::allocate().
        ///
        /// @return The thresholds.
        /// @throw error  VKGDR_ERROR_NOT_SUPPORTED if the GPU has no mapped memory, or the drivers' error.
        vkgdr_copy_thresholds calibrate() const {
            vkgdr_copy_thresholds thresholds{};
            check("vkgdr_copy_calibrate", vkgdr_copy_calibrate(get(), &thresholds));
            return thresholds;
        }

        /// How many copies the CPU and the copy engine made.
        vkgdr_copy_stats copy_stats() const {
            vkgdr_copy_stats stats{};
            check("vkgdr_copy_get_stats", vkgdr_copy_get_stats(get(), &stats));
            return stats;
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

#ifdef __cpp_lib_span
    /// The bytes of memory as the CPU sees them.
    using byte_span = std::span<std::byte>;
#else
    /// The bytes of memory as the CPU sees them: the part of C++20's `std::span<std::byte>` that is needed to pass
    /// them on. Does not own them.
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
#endif

    /// Memory that the CPU and the device share, or a region of it. Move-only; empty after it was moved from, and
    /// then the methods that can throw do.
    ///
    /// **It does not wait for the device.** When it is destroyed, the device must have finished with it, unless it is
    /// bound to a stream: then it is freed once that stream has finished its work. Any context may be current. Memory
    /// is freed with its last region.
    class memory {
    public:
        /// An empty one.
        memory() noexcept = default;
        /// Takes over memory of the C library.
        explicit memory(vkgdr_memory_t handle) noexcept : handle_(handle) {}

        /// Allocates memory. A CUDA context of the device must be current, unless the device was opened with
        /// device::open_primary_context(). The contents are undefined.
        ///
        /// @param owner  The GPU.
        /// @param size   Bytes, more than 0.
        /// @param kind   The kind of memory.
        /// @param others Kinds to fall back on, VKGDR_MEMORY_OR_HOST_BIT or VKGDR_MEMORY_OR_DEVICE_BIT or both; kind()
        ///               tells which it is. With VKGDR_MEMORY_DMA_BUF_BIT network cards can register the memory.
        /// @throw error  See vkgdr_memory_alloc().
        static memory allocate(const device &owner, std::size_t size, memory_kind kind = memory_kind::mapped,
                               std::uint32_t others = 0) {
            memory allocated(vkgdr_memory_alloc(owner.get(), size, static_cast<std::uint32_t>(kind) | others));
            if (!allocated) throw_last_error("vkgdr_memory_alloc");
            return allocated;
        }

        /// Maps CUDA memory that others allocated for the CPU. The mapping does not keep the memory alive: destroy it
        /// first. See vkgdr_map_existing().
        ///
        /// @param owner       The GPU.
        /// @param device_ptr  The address of the first byte.
        /// @param size        Bytes, more than 0, all in one allocation.
        /// @param flags       Of `enum vkgdr_map_flags`.
        /// @throw error       See vkgdr_map_existing().
        static memory map_existing(const device &owner, CUdeviceptr device_ptr, std::size_t size,
                                   std::uint32_t flags = 0) {
            vkgdr_memory_t mapped = nullptr;
            if (vkgdr_map_existing(owner.get(), device_ptr, size, flags, &mapped) != VKGDR_SUCCESS) {
                throw_last_error("vkgdr_map_existing");
            }
            return memory(mapped);
        }

        /// Whether existing memory is still the one that was mapped, see vkgdr_memory_is_current().
        bool is_current() const {
            bool current = false;
            check("vkgdr_memory_is_current", vkgdr_memory_is_current(get(), &current));
            return current;
        }

        /// A descriptor that a network card can register, for the caller to close().
        ///
        /// @throw error  VKGDR_ERROR_NOT_SUPPORTED unless the memory is of VKGDR_MEMORY_DMA_BUF_BIT or map_existing().
        vkgdr_dma_buf dma_buf() const {
            vkgdr_dma_buf exported{};
            if (vkgdr_memory_get_dma_buf(get(), &exported) != VKGDR_SUCCESS) {
                throw_last_error("vkgdr_memory_get_dma_buf");
            }
            return exported;
        }

        /// The VkDeviceMemory that the memory lies in, and where, see vkgdr_memory_get_vulkan_memory().
        vkgdr_vulkan_memory vulkan_memory() const {
            vkgdr_vulkan_memory place{};
            check("vkgdr_memory_get_vulkan_memory", vkgdr_memory_get_vulkan_memory(get(), &place));
            return place;
        }

        /// The device address, 0 if empty.
        CUdeviceptr device_ptr() const noexcept { return vkgdr_memory_get_device_ptr(get()); }

        /// The host address; null for device memory. See bytes() about races with the device.
        void *host_ptr() const noexcept { return vkgdr_memory_get_host_ptr(get()); }

        /// The requested size in bytes.
        std::size_t size() const noexcept { return vkgdr_memory_get_size(get()); }

        /// The kind of memory.
        memory_kind kind() const {
            std::uint32_t kind = 0;
            check("vkgdr_memory_get_kind", vkgdr_memory_get_kind(get(), &kind));
            return static_cast<memory_kind>(kind);
        }

        /// Whether the CPU and the device see each other's writes without flushing and invalidating. Flushing then only
        /// orders the CPU's stores, which a kernel that is already running needs.
        bool is_coherent() const noexcept { return vkgdr_memory_is_coherent(get()); }

        /// The granularity of flushes in bytes: 1 where the memory is coherent.
        std::size_t non_coherent_atom_size() const noexcept { return vkgdr_memory_non_coherent_atom_size(get()); }

        /// The bytes as the CPU sees them, without a copy.
        ///
        /// **Every access races with the device**, which may write the same bytes at any time without the compiler's
        /// knowledge: the compiler may keep a byte in a register, or delay a store. Use this only while the device is
        /// known not to access the range, as after a synchronisation; flush() and invalidate() as with any access.
        /// write() and read() are safe at any time. Reading mapped memory in this way is slow.
        ///
        /// @tparam Span  A type that is constructed from a `std::byte *` and a size; by default byte_span, which is
        ///               `std::span<std::byte>` from C++20 on.
        /// @throw error  VKGDR_ERROR_NOT_SUPPORTED for device memory.
        template <typename Span = byte_span>
        Span bytes() const {
            if (!handle_) throw_status("vkgdr::memory::bytes", VKGDR_ERROR_INVALID_ARGUMENT);
            auto *first = static_cast<std::byte *>(host_ptr());
            if (first == nullptr) throw_status("vkgdr::memory::bytes", VKGDR_ERROR_NOT_SUPPORTED);
            return Span(first, size());
        }

        /// Makes the CPU's writes to a range visible to the device. The range is rounded outwards to whole atoms.
        ///
        /// @param offset  The first byte.
        /// @param size    Bytes.
        /// @throw error   VKGDR_ERROR_OUT_OF_RANGE if the range is not within the memory, or the driver's error.
        void flush(std::size_t offset, std::size_t size) const {
            check("vkgdr_memory_flush", vkgdr_memory_flush_checked(get(), offset, size));
        }
        /// Flushes all.
        void flush() const { flush(0, size()); }

        /// Makes the device's writes to a range visible to the CPU. The range is rounded outwards to whole atoms.
        ///
        /// @param offset  The first byte.
        /// @param size    Bytes.
        /// @throw error   As flush().
        void invalidate(std::size_t offset, std::size_t size) const {
            check("vkgdr_memory_invalidate", vkgdr_memory_invalidate_checked(get(), offset, size));
        }
        /// Invalidates all.
        void invalidate() const { invalidate(0, size()); }

        /// Copies bytes to the memory. Does not flush. Returns when the copy is done; vkgdr.h says when the GPU's copy
        /// engine makes it, and in which order with the device's other work.
        ///
        /// @param offset  The first byte in the memory.
        /// @param source  The bytes to copy; may be null if `size` is 0.
        /// @param size    Bytes.
        /// @throw error   VKGDR_ERROR_OUT_OF_RANGE, or VKGDR_ERROR_NOT_SUPPORTED for device memory.
        void write(std::size_t offset, const void *source, std::size_t size) const {
            check("vkgdr_memory_write", vkgdr_memory_write(get(), offset, source, size));
        }

        /// Copies the elements of an array, vector, string or span to the memory. Does not flush.
        ///
        /// @param offset  The first byte in the memory.
        /// @param source  The elements.
        /// @throw error   As the other write().
        template <typename Source>
        void write(std::size_t offset, const Source &source) const {
            write(offset, std::data(source), byte_count(source));
        }

        /// Copies bytes from the memory. Does not invalidate.
        ///
        /// @param offset  The first byte in the memory.
        /// @param target  Where the bytes go; may be null if `size` is 0.
        /// @param size    Bytes.
        /// @throw error   As write().
        void read(std::size_t offset, void *target, std::size_t size) const {
            check("vkgdr_memory_read", vkgdr_memory_read(get(), offset, target, size));
        }

        /// Fills an array, vector, string or span from the memory. Does not invalidate.
        ///
        /// @param offset  The first byte in the memory.
        /// @param target  Where the elements go; its size is their number.
        /// @throw error   As write().
        template <typename Target>
        void read(std::size_t offset, Target &&target) const {
            read(offset, std::data(target), byte_count(target));
        }

        /// As write(), by the side that the policy names; to device memory, too, unless the CPU is to copy.
        ///
        /// @param policy  Who copies.
        /// @param offset  The first byte in the memory.
        /// @param source  The bytes to copy; may be null if `size` is 0.
        /// @param size    Bytes.
        /// @throw error   As write(), and VKGDR_ERROR_CUDA from the copy engine.
        void write_with(copy_policy policy, std::size_t offset, const void *source, std::size_t size) const {
            const auto value = static_cast<std::uint32_t>(policy);
            check("vkgdr_copy_write", vkgdr_copy_write(get(), offset, source, size, value));
        }

        /// As the other write_with(), of the elements of an array, vector, string or span.
        template <typename Source>
        void write_with(copy_policy policy, std::size_t offset, const Source &source) const {
            write_with(policy, offset, std::data(source), byte_count(source));
        }

        /// As read(), by the side that the policy names; from device memory, too, unless the CPU is to copy.
        ///
        /// @param policy  Who copies.
        /// @param offset  The first byte in the memory.
        /// @param target  Where the bytes go; may be null if `size` is 0.
        /// @param size    Bytes.
        /// @throw error   As write_with().
        void read_with(copy_policy policy, std::size_t offset, void *target, std::size_t size) const {
            const auto value = static_cast<std::uint32_t>(policy);
            check("vkgdr_copy_read", vkgdr_copy_read(get(), offset, target, size, value));
        }

        /// As the other read_with(), to the elements of an array, vector, string or span.
        template <typename Target>
        void read_with(copy_policy policy, std::size_t offset, Target &&target) const {
            read_with(policy, offset, std::data(target), byte_count(target));
        }

        /// Fills a range with a repeated pattern. Does not flush.
        ///
        /// @param offset        The first byte.
        /// @param size          Bytes; a multiple of `pattern_size`.
        /// @param pattern       The pattern.
        /// @param pattern_size  Bytes of the pattern, more than 0.
        /// @throw error         As write(), and VKGDR_ERROR_INVALID_ARGUMENT for sizes that do not fit.
        void fill(std::size_t offset, std::size_t size, const void *pattern, std::size_t pattern_size) const {
            check("vkgdr_memory_fill", vkgdr_memory_fill(get(), offset, size, pattern, pattern_size));
        }

        /// Sets every byte. Does not flush.
        ///
        /// @param value  The byte.
        /// @throw error  As write().
        void fill(std::uint8_t value) const { fill(0, size(), &value, 1); }

        /// Creates a region: a part of this memory, with pointers of its own. It keeps the memory alive.
        ///
        /// @param offset  The first byte.
        /// @param size    Bytes.
        /// @throw error   VKGDR_ERROR_OUT_OF_RANGE if the range is not within this memory.
        memory region(std::size_t offset, std::size_t size) const {
            vkgdr_memory_t part = nullptr;
            check("vkgdr_memory_create_region", vkgdr_memory_create_region(get(), offset, size, &part));
            return memory(part);
        }

        /// Sends the memory to the process at the other end of a Unix socket.
        ///
        /// @param socket  A connected socket of family AF_UNIX.
        /// @throw error   See vkgdr_memory_send(): VKGDR_ERROR_SYSTEM with `errno` if the socket refused.
        void send(int socket) const {
            if (vkgdr_memory_send(socket, get()) != VKGDR_SUCCESS) throw_last_error("vkgdr_memory_send");
        }

        /// Receives memory that another process sent.
        ///
        /// @param owner   The same GPU as the sender's, opened with the same flags.
        /// @param socket  A connected socket of family AF_UNIX.
        /// @param flags   Of `enum vkgdr_receive_flags`.
        /// @throw error   See vkgdr_memory_receive().
        static memory receive(const device &owner, int socket, std::uint32_t flags = 0) {
            vkgdr_memory_t received = nullptr;
            if (vkgdr_memory_receive(socket, owner.get(), flags, &received) != VKGDR_SUCCESS)
                throw_last_error("vkgdr_memory_receive");
            return memory(received);
        }

        /// Binds the memory to a stream: when it is destroyed, it is freed once the stream has finished the work that
        /// was submitted before. The CPU does not wait.
        ///
        /// @param stream  A stream of the memory's context, null for its legacy default stream. It must stay alive
        ///                until the memory is freed or bound to another stream.
        /// @throw error   VKGDR_ERROR_INVALID_ARGUMENT for a region or a foreign stream.
        void bind_stream(CUstream stream) const {
            check("vkgdr_memory_bind_stream", vkgdr_memory_bind_stream(get(), stream));
        }

        /// Frees the memory once a stream has finished the work that was submitted before. Does not wait, unless the
        /// memory was bound to another stream before: then it waits for the whole context.
        ///
        /// @param stream  A stream of the memory's context, null for its legacy default stream.
        /// @throw error   As bind_stream(); the memory is not freed then.
        void free_on_stream(CUstream stream) {
            check("vkgdr_memory_free_on_stream", vkgdr_memory_free_on_stream(get(), stream));
            static_cast<void>(handle_.release());
        }

        /// Frees the memory, as its destructor does, and reports the drivers' error. Does nothing if empty.
        ///
        /// @throw error  The drivers' first error. The memory is freed in any case.
        void free() {
            if (handle_) check("vkgdr_memory_free", vkgdr_memory_free_checked(handle_.release()));
        }

        /// Frees the memory, as its destructor does.
        void reset() noexcept { handle_.reset(); }

        /// The memory for the C functions, still owned by this object.
        vkgdr_memory_t get() const noexcept { return handle_.get(); }
        /// Hands the memory over to the caller, for vkgdr_memory_free().
        vkgdr_memory_t release() noexcept { return handle_.release(); }
        /// Whether this object has memory.
        explicit operator bool() const noexcept { return handle_ != nullptr; }

    private:
        template <typename Elements>
        static std::size_t byte_count(const Elements &elements) {
            using element = std::remove_pointer_t<decltype(std::data(elements))>;
            static_assert(std::is_trivially_copyable_v<element>, "the elements are copied byte by byte");
            return std::size(elements) * sizeof(element);
        }

        struct release_memory {
            void operator()(vkgdr_memory_t handle) const noexcept { vkgdr_memory_free(handle); }
        };
        std::unique_ptr<vkgdr_memory, release_memory> handle_;
    };

    /// Allocates small memory in nanoseconds, without a driver call. Move-only; empty after it was moved from, and then
    /// every method throws. May be destroyed before its memory.
    class pool {
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

    /// Messages to a kernel that keeps running, and its answers. The kernel's end is in `vkgdr_ring.cuh`. Move-only; empty
    /// after it was moved from, and then every method throws. The destructor aborts the kernel and waits for it.
    class ring {
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

    /// The deleter of pointers from allocate_unique(). Copies share the memory, which is freed when the deleter is
    /// called, and at the latest with its last copy.
    class unique_deleter {
    public:
        /// @param owned  The memory that the pointer points to.
        explicit unique_deleter(memory owned) : memory_(std::make_shared<memory>(std::move(owned))) {}
        /// Frees the memory, and ignores its argument.
        void operator()(std::uint8_t *) const noexcept { memory_->reset(); }
        /// The memory that the pointer points to.
        memory &get() const noexcept { return *memory_; }

    private:
        std::shared_ptr<memory> memory_;
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
    static Pointer allocate_unique(const device &owner, std::size_t size, memory_kind kind = memory_kind::mapped) {
        if (kind == memory_kind::device) throw_status("vkgdr::allocate_unique", VKGDR_ERROR_NOT_SUPPORTED);
        unique_deleter deleter(memory::allocate(owner, size, kind));
        auto first = static_cast<typename Pointer::pointer>(deleter.get().host_ptr());
        return Pointer(first, typename Pointer::deleter_type(std::move(deleter)));
    }

    /// The memory behind a pointer from allocate_unique().
    ///
    /// @throw error  VKGDR_ERROR_INVALID_ARGUMENT for any other pointer, or if another deleter wraps the
    /// unique_deleter.
    template <typename Pointer>
    static memory &memory_of(const Pointer &pointer) {
        const auto *deleter = pointer.get_deleter().template target<unique_deleter>();
        if (deleter == nullptr) throw_status("vkgdr::memory_of", VKGDR_ERROR_INVALID_ARGUMENT);
        return deleter->get();
    }

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
        struct free_string {
            void operator()(char *text) const noexcept { std::free(text); }
        };
        std::int32_t status = VKGDR_SUCCESS, cuda = 0, vulkan = 0;
        vkgdr_last_error_codes(&status, &cuda, &vulkan);
        const std::unique_ptr<char, free_string> text(vkgdr_last_error());
        if (text == nullptr) throw_status(operation, status != VKGDR_SUCCESS ? status : VKGDR_ERROR_INTERNAL);
        throw error(text.get(), status, cuda, vulkan);
    }
};

#endif  // VKGDR_HPP
