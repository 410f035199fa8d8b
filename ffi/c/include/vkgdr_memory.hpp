/**
 * @file
 * `vkgdr::memory`: memory and regions of it, and pointers that own memory. Included by vkgdr.hpp.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef VKGDR_MEMORY_HPP
#define VKGDR_MEMORY_HPP

#include "vkgdr_device.hpp"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

/// Memory that the CPU and the device share, or a region of it. Move-only; empty after it was moved from, and
/// then the methods that can throw do.
///
/// **It does not wait for the device.** When it is destroyed, the device must have finished with it, unless it is
/// bound to a stream: then it is freed once that stream has finished its work. Any context may be current. Memory
/// is freed with its last region.
class vkgdr::memory {
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

    /// The memory that contains an address, as one more reference to it; empty if no memory of this library does. See
    /// vkgdr_find().
    ///
    /// @param ptr     A host or device address of any byte.
    /// @param offset  Where the offset of the address in the memory is written, in bytes; may be null.
    static memory find(const void *ptr, std::size_t *offset = nullptr) noexcept {
        vkgdr_memory_t found = nullptr;
        // Without success nothing is written.
        static_cast<void>(vkgdr_find(ptr, &found, offset));
        return memory(found);
    }

    /// Whether existing memory is still the one that was mapped, see vkgdr_memory_is_current().
    bool is_current() const {
        bool current = false;
        check("vkgdr_memory_is_current", vkgdr_memory_is_current(get(), &current));
        return current;
    }

    /// A descriptor that a network card can register, for the caller to close().
    ///
    /// @throw error  VKGDR_ERROR_NOT_SUPPORTED for other memory than vkgdr_memory_get_dma_buf() names.
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
    /// @tparam Span  A type that is constructed from a `std::byte *` and a size; by default byte_span, which converts
    ///               to `std::span<std::byte>`.
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
    /// @param size    Bytes; SIZE_MAX for all up to the end.
    /// @throw error   VKGDR_ERROR_OUT_OF_RANGE if the range is not within the memory, or the driver's error.
    void flush(std::size_t offset, std::size_t size) const {
        check("vkgdr_memory_flush", vkgdr_memory_flush_checked(get(), offset, size));
    }
    /// Flushes all.
    void flush() const { flush(0, size()); }

    /// Makes the device's writes to a range visible to the CPU. The range is rounded outwards to whole atoms.
    ///
    /// @param offset  The first byte.
    /// @param size    Bytes; SIZE_MAX for all up to the end.
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
    /// @throw error   VKGDR_ERROR_OUT_OF_RANGE, VKGDR_ERROR_NOT_SUPPORTED for device memory, or VKGDR_ERROR_CUDA where the
    ///                copy engine copies.
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
    /// @throw error   As write().
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
    /// @throw error   See vkgdr_memory_send(): VKGDR_ERROR_SYSTEM if the socket refused, with error::system().
    void send(int socket) const {
        if (vkgdr_memory_send(socket, get()) != VKGDR_SUCCESS) throw_last_error("vkgdr_memory_send");
    }

    /// Receives memory that another process sent.
    ///
    /// @param owner   The same GPU as the sender's, opened with the same flags.
    /// @param socket  A connected socket of family AF_UNIX.
    /// @param flags   Of `enum vkgdr_receive_flags`.
    /// @throw error   See vkgdr_memory_receive(): VKGDR_ERROR_SYSTEM as of send().
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
    ///                until the memory is freed or bound to another stream, and until calls for it that other
    ///                threads began before have returned.
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

/// The deleter of pointers from allocate_unique(). Copies share the memory, which is freed when the deleter is
/// called, and at the latest with its last copy.
class vkgdr::unique_deleter {
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

template <typename Pointer>
Pointer vkgdr::allocate_unique(const device &owner, std::size_t size, memory_kind kind) {
    if (kind == memory_kind::device) throw_status("vkgdr::allocate_unique", VKGDR_ERROR_NOT_SUPPORTED);
    unique_deleter deleter(memory::allocate(owner, size, kind));
    auto first = static_cast<typename Pointer::pointer>(deleter.get().host_ptr());
    return Pointer(first, typename Pointer::deleter_type(std::move(deleter)));
}

template <typename Pointer>
vkgdr::memory &vkgdr::memory_of(const Pointer &pointer) {
    const auto *deleter = pointer.get_deleter().template target<unique_deleter>();
    if (deleter == nullptr) throw_status("vkgdr::memory_of", VKGDR_ERROR_INVALID_ARGUMENT);
    return deleter->get();
}

#endif  // VKGDR_MEMORY_HPP
