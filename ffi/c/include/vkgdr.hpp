/**
 * @file
 * vkgdr for C++17: handles that close themselves, and errors as exceptions.
 *
 * A thin layer over vkgdr.h, header only. Everything is in the scope `vkgdr`, which is a struct rather than a
 * namespace: the C header uses that name for a type. So `using namespace vkgdr` is not possible.
 *
 * Several threads may use an object at a time, but not while one of them moves, frees or destroys it.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef VKGDR_HPP
#define VKGDR_HPP

#include "vkgdr.h"

#if __cplusplus < 201703L
#  error "vkgdr.hpp needs C++17"
#endif

#include <algorithm>
#include <array>
#include <cerrno>
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

    /// The exception for every failure. `what()` is the text of vkgdr_last_error().
    class error : public std::runtime_error {
    public:
        /// The codes are a `vkgdr_status`, a `CUresult`, a `VkResult` and an error number of errno.h.
        error(const std::string &what, std::int32_t status, std::int32_t cuda = 0, std::int32_t vulkan = 0,
              int system = 0)
            : std::runtime_error(what), status_(status), cuda_(cuda), vulkan_(vulkan), system_(system) {}

        std::int32_t status() const noexcept { return status_; }  ///< Of `enum vkgdr_status`, never VKGDR_SUCCESS.
        std::int32_t cuda() const noexcept { return cuda_; }      ///< The `CUresult` of a driver call, else 0.
        std::int32_t vulkan() const noexcept { return vulkan_; }  ///< The `VkResult` of a driver call or a refused size, else 0.
        /// The error number of a system call, such as EAGAIN, with VKGDR_ERROR_SYSTEM; else 0.
        int system() const noexcept { return system_; }

    private:
        std::int32_t status_, cuda_, vulkan_;
        int system_;
    };

    /// What owns a handle of the C library. Move-only; empty after it was moved from.
    template <typename Object, void (*Close)(Object *)>
    class owner {
    public:
        /// An empty one.
        owner() noexcept = default;
        /// Takes over a handle of the C library.
        explicit owner(Object *handle) noexcept : handle_(handle) {}

        /// The handle for the C functions, still owned by this object.
        Object *get() const noexcept { return handle_.get(); }
        /// Hands the handle over to the caller, who closes or frees it.
        Object *release() noexcept { return handle_.release(); }
        /// Closes or frees the handle, as the destructor does.
        void reset() noexcept { handle_.reset(); }
        /// Whether this object has a handle.
        explicit operator bool() const noexcept { return handle_ != nullptr; }

    private:
        struct closer {
            void operator()(Object *handle) const noexcept { Close(handle); }
        };
        std::unique_ptr<Object, closer> handle_;
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
    /// and gets the device address of a heap by `vkgdr::memory_of(heap.get_payload()).device_ptr()`. `Pointer` is a
    /// `std::unique_ptr` of bytes whose deleter can be constructed from a unique_deleter. Throws for device memory, which
    /// has no host view.
    template <typename Pointer = unique_bytes>
    static Pointer allocate_unique(const device &gpu, std::size_t size, memory_kind kind = memory_kind::mapped);

    /// The memory behind a pointer from allocate_unique(). Throws for every other pointer, and where the program has wrapped the
    /// deleter: it must be a unique_deleter, or a std::function that holds one.
    template <typename Pointer>
    static memory &memory_of(const Pointer &pointer);

    /// The version of the library that is loaded, such as `0.2.0`.
    static const char *version() noexcept { return vkgdr_version(); }

private:
    /// Throws the last error of this thread, which a call has just set.
    static void check(std::int32_t status) {
        if (status == VKGDR_SUCCESS) return;
        const int system = errno;  // first: everything else may change it
        std::int32_t known = status, cuda = 0, vulkan = 0;
        vkgdr_last_error_codes(&known, &cuda, &vulkan);
        const std::unique_ptr<char, void (*)(void *)> text(vkgdr_last_error(), std::free);
        // Without memory for the text, that of the status.
        throw error(text ? text.get() : vkgdr_status_string(known), known, cuda, vulkan, known == VKGDR_ERROR_SYSTEM ? system : 0);
    }

    /// Returns the handle that a C function made; throws this thread's last error if that is null.
    template <typename Handle>
    static Handle checked(Handle handle) {
        if (handle == nullptr) check(VKGDR_ERROR_INTERNAL);
        return handle;
    }

    /// What a C function writes through its last parameter.
    template <typename Result, typename... Parameters, typename... Arguments>
    static Result result(std::int32_t (*function)(Parameters...), Arguments... arguments) {
        Result value{};
        check(function(arguments..., &value));
        return value;
    }
};

/// A GPU whose memory can be allocated. Move-only; empty after it was moved from, and then every method throws.
///
/// Memory keeps what it needs of the GPU, so a device may be destroyed before its memory.
class vkgdr::device : public vkgdr::owner<vkgdr, vkgdr_close> {
public:
    using owner::owner;

    /// Opens a GPU by its CUDA device number, with flags of `enum vkgdr_open_flags`; see vkgdr_open(). Needs no current
    /// context; allocations do.
    static device open(CUdevice number, std::uint32_t flags = 0) { return device(checked(vkgdr_open(number, flags))); }

    /// Opens the GPU whose CUDA context is current on this thread. Throws if no context is current.
    static device open_current_context(std::uint32_t flags = 0) {
        return open(0, flags | std::uint32_t{VKGDR_OPEN_CURRENT_CONTEXT_BIT});
    }

    /// Opens a GPU by its CUDA device number and retains its primary context, which the CUDA runtime uses. Memory is
    /// allocated in that context, and no context needs to be current.
    static device open_primary_context(CUdevice number = 0, std::uint32_t flags = 0) {
        return device(result<vkgdr_t>(vkgdr_open_primary_context, number, flags));
    }

    /// Opens a GPU on a Vulkan device of the program's own, which must outlive all memory of the handle. Call
    /// finish_deferred_frees() before that device is destroyed. See vkgdr_open_on().
    static device open_on(const vkgdr_vulkan_handles &handles, std::uint32_t flags = 0) {
        return device(result<vkgdr_t>(vkgdr_open_on, &handles, flags));
    }

    /// The Vulkan device on which this handle allocates.
    vkgdr_vulkan_handles vulkan_handles() const {
        return result<vkgdr_vulkan_handles>(vkgdr_device_get_vulkan_handles, get());
    }

    /// Waits for frees that wait for streams, see vkgdr_device_finish_deferred_frees().
    void finish_deferred_frees() const { check(vkgdr_device_finish_deferred_frees(get())); }

    /// The CUDA device number.
    CUdevice number() const { return result<CUdevice>(vkgdr_device_get_number, get()); }

    /// The name of the GPU.
    std::string name() const {
        std::array<char, 256> buffer{};  // holds every name, says the C header
        check(vkgdr_device_get_name(get(), buffer.data(), buffer.size()));
        return buffer.data();
    }

    /// The UUID of the GPU, the same in CUDA and Vulkan.
    std::array<std::uint8_t, 16> uuid() const {
        std::array<std::uint8_t, 16> uuid{};
        check(vkgdr_device_get_uuid(get(), uuid.data()));
        return uuid;
    }

    /// Whether the GPU has a kind of memory.
    bool supports(memory_kind kind) const {
        return result<bool>(vkgdr_device_supports, get(), static_cast<std::uint32_t>(kind));
    }

    /// Whether memory::map_existing() works on this GPU.
    bool supports_existing() const { return result<bool>(vkgdr_device_supports_existing, get()); }

    /// How much memory of a kind there is, in bytes. Throws if the GPU has no such memory.
    vkgdr_memory_info memory_info(memory_kind kind) const {
        return result<vkgdr_memory_info>(vkgdr_device_get_memory_info, get(), static_cast<std::uint32_t>(kind));
    }

    /// Frees memory whose free was deferred until a stream had passed it, and returns the number of allocations.
    std::size_t collect() const { return result<std::size_t>(vkgdr_device_collect, get()); }

    /// How long an allocation that runs short waits for freed memory that the device still uses. A second by default, and not
    /// at all for a negative time.
    void set_shortage_timeout(std::chrono::milliseconds longest) const {
        check(vkgdr_device_set_shortage_timeout(get(), static_cast<std::uint64_t>(std::max(longest, longest.zero()).count())));
    }

    /// From how many bytes on copies are left to the copy engine; see `struct vkgdr_copy_thresholds`.
    vkgdr_copy_thresholds copy_thresholds() const {
        return result<vkgdr_copy_thresholds>(vkgdr_copy_get_thresholds, get());
    }

    /// Sets them for all handles of this GPU: 0 leaves all that it can copy to the copy engine, SIZE_MAX nothing.
    void set_copy_thresholds(const vkgdr_copy_thresholds &to) const { check(vkgdr_copy_set_thresholds(get(), &to)); }

    /// Makes the copy engine's streams, which VKGDR_COPY_AUTO needs; see vkgdr_copy_prepare(). A
    /// context must be current, as for memory::allocate().
    void prepare_copies() const { check(vkgdr_copy_prepare(get())); }
};

/// Memory that the CPU and the device share, or a region of it. Move-only; empty after it was moved from, and
/// then the methods that can throw do, apart from free().
///
/// **It does not wait for the device.** When it is destroyed, the device must have finished with it, unless it is bound
/// to a stream. If it is, it is freed once that stream has finished its work. Any context may be current. Memory is
/// freed with its last region.
class vkgdr::memory : public vkgdr::owner<vkgdr_memory, vkgdr_memory_free> {
public:
    using owner::owner;

    /// Allocates bytes, more than 0, whose contents are undefined; see vkgdr_memory_alloc(). A CUDA context of the device
    /// must be current, unless the device was opened with device::open_primary_context(). Flags are kinds to fall back on,
    /// such as VKGDR_MEMORY_OR_HOST_BIT, and VKGDR_MEMORY_DMA_BUF_BIT, with which network cards can register the memory.
    static memory allocate(const device &gpu, std::size_t size, memory_kind kind = memory_kind::mapped,
                           std::uint32_t flags = 0) {
        return memory(checked(vkgdr_memory_alloc(gpu.get(), size, static_cast<std::uint32_t>(kind) | flags)));
    }

    /// Maps bytes of one CUDA allocation of others for the CPU, with flags of `enum vkgdr_map_flags`. The mapping does not
    /// keep the memory alive: destroy it first. See vkgdr_map_existing().
    static memory map_existing(const device &gpu, CUdeviceptr device_ptr, std::size_t size, std::uint32_t flags = 0) {
        return memory(result<vkgdr_memory_t>(vkgdr_map_existing, gpu.get(), device_ptr, size, flags));
    }

    /// The memory that contains a host or device address, as one more reference to it; empty if no memory of this library
    /// does. Writes the offset of the address in the memory, in bytes, unless `offset` is null. See vkgdr_find().
    static memory find(const void *ptr, std::size_t *offset = nullptr) noexcept {
        vkgdr_memory_t found = nullptr;
        // Without success nothing is written.
        static_cast<void>(vkgdr_find(ptr, &found, offset));
        return memory(found);
    }

    /// Whether existing memory is still the one that was mapped, see vkgdr_memory_is_current().
    bool is_current() const { return result<bool>(vkgdr_memory_is_current, get()); }
    /// A descriptor that a network card can register, for the caller to close(); see vkgdr_memory_get_dma_buf().
    vkgdr_dma_buf dma_buf() const { return result<vkgdr_dma_buf>(vkgdr_memory_get_dma_buf, get()); }

    /// The VkDeviceMemory that the memory lies in, and where, see vkgdr_memory_get_vulkan_memory().
    vkgdr_vulkan_memory vulkan_memory() const {
        return result<vkgdr_vulkan_memory>(vkgdr_memory_get_vulkan_memory, get());
    }

    /// The device address, 0 if empty.
    CUdeviceptr device_ptr() const noexcept { return vkgdr_memory_get_device_ptr(get()); }
    /// The device address as a kernel takes it, such as `memory.device_ptr<float>()`.
    template <typename Element>
    Element *device_ptr() const noexcept {
        return reinterpret_cast<Element *>(device_ptr());
    }

    /// The host address; null for device memory. **Every access by it races with the device**, which may write the same bytes at
    /// any time. The compiler does not know that, and may keep a byte in a register or delay a store. Use it only while the
    /// device does not access the bytes, with flush() and invalidate(). Reading mapped memory by it is slow. write() and read()
    /// are safe at any time.
    void *host_ptr() const noexcept { return vkgdr_memory_get_host_ptr(get()); }
    /// The host address of elements, such as `memory.host_ptr<float>()`.
    template <typename Element>
    Element *host_ptr() const noexcept {
        return static_cast<Element *>(host_ptr());
    }

    /// The requested size in bytes.
    std::size_t size() const noexcept { return vkgdr_memory_get_size(get()); }
    /// The kind of memory.
    memory_kind kind() const { return static_cast<memory_kind>(result<std::uint32_t>(vkgdr_memory_get_kind, get())); }
    /// Whether the CPU and the device see each other's writes without flushing and invalidating. Flushing then only
    /// orders the CPU's stores, which a kernel that is already running needs.
    bool is_coherent() const noexcept { return vkgdr_memory_is_coherent(get()); }
    /// The granularity of flushes in bytes: 1 where the memory is coherent.
    std::size_t non_coherent_atom_size() const noexcept { return vkgdr_memory_non_coherent_atom_size(get()); }

    /// Makes the CPU's writes to a range visible to the device. The range is rounded outwards to whole atoms; SIZE_MAX
    /// bytes reach to the end.
    void flush(std::size_t offset, std::size_t size) const { check(vkgdr_memory_flush_checked(get(), offset, size)); }
    /// Flushes all.
    void flush() const { flush(0, size()); }

    /// Makes the device's writes to a range visible to the CPU, as flush().
    void invalidate(std::size_t offset, std::size_t size) const {
        check(vkgdr_memory_invalidate_checked(get(), offset, size));
    }
    /// Invalidates all.
    void invalidate() const { invalidate(0, size()); }

    /// Copies bytes to the memory at an offset by the CPU. Does not flush. Throws for device memory, which vkgdr_copy_write()
    /// reaches.
    void write(std::size_t offset, const void *source, std::size_t size) const {
        check(vkgdr_memory_write(get(), offset, source, size));
    }
    /// Copies the elements of an array, vector, string or span to the memory. Does not flush.
    template <typename Source>
    void write(std::size_t offset, const Source &source) const {
        write(offset, std::data(source), byte_count(source));
    }

    /// Copies bytes from the memory at an offset, as write(). Does not invalidate.
    void read(std::size_t offset, void *target, std::size_t size) const {
        check(vkgdr_memory_read(get(), offset, target, size));
    }
    /// Fills an array, vector, string or span from the memory; its size is the number of elements. Does not invalidate.
    template <typename Target>
    void read(std::size_t offset, Target &&target) const {
        read(offset, std::data(target), byte_count(target));
    }

    /// Fills a range with a repeated pattern; `size` is a multiple of `pattern_size`. Does not flush.
    void fill(std::size_t offset, std::size_t size, const void *pattern, std::size_t pattern_size) const {
        check(vkgdr_memory_fill(get(), offset, size, pattern, pattern_size));
    }
    /// Sets every byte. Does not flush.
    void fill(std::uint8_t value) const { fill(0, size(), &value, 1); }

    /// Creates a region: a part of this memory, with pointers of its own. It keeps the memory alive.
    memory region(std::size_t offset, std::size_t size) const {
        return memory(result<vkgdr_memory_t>(vkgdr_memory_create_region, get(), offset, size));
    }

    /// Sends the memory to the process at the other end of a socket of family AF_UNIX. Where the socket refuses, the error
    /// has its number, error::system().
    void send(int socket) const { check(vkgdr_memory_send(socket, get())); }

    /// Receives memory that another process sent, on the same GPU opened with the same flags. Flags are of
    /// `enum vkgdr_receive_flags`.
    static memory receive(const device &gpu, int socket, std::uint32_t flags = 0) {
        return memory(result<vkgdr_memory_t>(vkgdr_memory_receive, socket, gpu.get(), flags));
    }

    /// Binds the memory to a stream: when it is destroyed, it is freed once the stream has finished the work that
    /// was submitted before. The CPU does not wait. Null is the legacy default stream. The stream is one of the memory's
    /// context and outlives the memory, see vkgdr_memory_bind_stream().
    void bind_stream(CUstream stream) const { check(vkgdr_memory_bind_stream(get(), stream)); }

    /// Frees the memory once a stream has finished the work that was submitted before, see vkgdr_memory_free_on_stream(). After
    /// an exception it is not freed.
    void free_on_stream(CUstream stream) {
        check(vkgdr_memory_free_on_stream(get(), stream));
        static_cast<void>(release());
    }

    /// Frees the memory in any case, as its destructor does, and throws the drivers' first error. Does nothing if empty.
    void free() {
        if (*this) check(vkgdr_memory_free_checked(release()));
    }

private:
    template <typename Elements>
    static std::size_t byte_count(const Elements &elements) {
        using element = std::remove_pointer_t<decltype(std::data(elements))>;
        static_assert(std::is_trivially_copyable_v<element>, "the elements are copied byte by byte");
        return std::size(elements) * sizeof(element);
    }
};

/// The deleter of pointers from allocate_unique(). Copies share the memory, which is freed when the deleter is
/// called, and at the latest with its last copy.
class vkgdr::unique_deleter {
public:
    /// Takes over the memory that the pointer points to.
    explicit unique_deleter(memory owned) : memory_(std::make_shared<memory>(std::move(owned))) {}
    /// Frees the memory, and ignores its argument.
    void operator()(std::uint8_t *) const noexcept { memory_->reset(); }
    /// The memory that the pointer points to.
    memory &get() const noexcept { return *memory_; }

private:
    std::shared_ptr<memory> memory_;
};

template <typename Pointer>
Pointer vkgdr::allocate_unique(const device &gpu, std::size_t size, memory_kind kind) {
    unique_deleter deleter(memory::allocate(gpu, size, kind));
    deleter.get().read(0, nullptr, 0);  // refuses what has no host view
    auto first = static_cast<typename Pointer::pointer>(deleter.get().host_ptr());
    return Pointer(first, typename Pointer::deleter_type(std::move(deleter)));
}

template <typename Pointer>
vkgdr::memory &vkgdr::memory_of(const Pointer &pointer) {
    const unique_deleter *deleter = nullptr;
    if constexpr (std::is_same_v<typename Pointer::deleter_type, unique_deleter>)
        deleter = &pointer.get_deleter();
    else
        deleter = pointer.get_deleter().template target<unique_deleter>();
    if (deleter && pointer) return deleter->get();
    throw error("vkgdr::memory_of: the pointer is not one of allocate_unique", VKGDR_ERROR_INVALID_ARGUMENT);
}

/// Allocates small memory in nanoseconds, without a driver call. Move-only; empty after it was moved from, and then
/// every method throws. May be destroyed before its memory.
class vkgdr::pool : public vkgdr::owner<vkgdr_pool, vkgdr_pool_close> {
public:
    using owner::owner;

    /// Creates a pool, without a block at first. A context must be current, as for memory::allocate(). Options that are 0
    /// have their defaults; this function sets `size`.
    static pool create(const device &gpu, vkgdr_pool_options options) {
        options.size = sizeof options;
        return pool(result<vkgdr_pool_t>(vkgdr_pool_create, gpu.get(), &options));
    }
    /// As the other create(), with the default options except for the kind of memory.
    static pool create(const device &gpu, memory_kind kind = memory_kind::mapped) {
        vkgdr_pool_options options{};
        options.kind = static_cast<std::uint32_t>(kind);
        return create(gpu, options);
    }

    /// Allocates memory, which returns to the pool when it is freed and is reused immediately. The device must have
    /// finished with it then, unless it is bound to a stream. The contents are undefined.
    memory allocate(std::size_t size) const { return memory(checked(vkgdr_pool_alloc(get(), size))); }

    /// Allocates memory that is bound to a stream, whose earlier work may still use it.
    memory allocate_on(std::size_t size, CUstream stream) const {
        return memory(checked(vkgdr_pool_alloc_on(get(), size, stream)));
    }

    /// Releases unused blocks until the pool has at most `keep` bytes, and returns the released bytes. The driver may wait.
    std::size_t trim(std::size_t keep = 0) const { return result<std::size_t>(vkgdr_pool_trim, get(), keep); }
    /// Releases every unused block, see vkgdr_pool_free_held().
    void free_held() const { check(vkgdr_pool_free_held(get())); }
    /// As free_held(), and from now on releases every block once it is unused.
    void stop_holding() const { check(vkgdr_pool_stop_holding(get())); }
    /// The current state of the pool.
    vkgdr_pool_stats stats() const { return result<vkgdr_pool_stats>(vkgdr_pool_get_stats, get()); }
};

/// Messages to a kernel that keeps running, and its answers. The kernel's end is in `vkgdr_ring.cuh`. Move-only; empty
/// after it was moved from, and then every method throws. The destructor aborts the kernel; see vkgdr_ring_free(). Load the
/// kernel's module before you make the ring: unloading it waits for the kernel.
class vkgdr::ring : public vkgdr::owner<vkgdr_ring, vkgdr_ring_free> {
public:
    using owner::owner;
    /// The longest time, 292 years.
    static constexpr std::chrono::nanoseconds forever = std::chrono::nanoseconds::max();

    /// Allocates a ring of so many bytes for messages, and for answers, that are on their way. Allocate before a kernel runs
    /// that waits for the CPU. The GPU may be destroyed first.
    static ring create(const device &gpu, std::size_t messages, std::size_t answers) {
        return ring(result<vkgdr_ring_t>(vkgdr_ring_create, gpu.get(), messages, answers));
    }

    /// The kernel's argument.
    CUdeviceptr device_ptr() const {
        static_cast<void>(stats());  // refuses an empty one
        return vkgdr_ring_get_device_ptr(get());
    }

    /// Binds the ring to the stream of its kernel: see vkgdr_ring_bind_stream().
    void bind_stream(CUstream stream) const { check(vkgdr_ring_bind_stream(get(), stream)); }

    /// Pushes a message, and returns whether there was room in time. The wait keeps the CPU busy. Throws once the ring is
    /// closed, and for a message that is longer than the ring.
    bool push(const void *message, std::size_t size, std::chrono::nanoseconds timeout = forever) const {
        return in_time(vkgdr_ring_push(get(), message, size, limit(timeout)));
    }

    /// Pushes messages while there is room, all under one fence, and returns the number of those pushed. Does not wait.
    std::size_t push_all(const void *const *messages, const std::size_t *sizes, std::size_t count) const {
        return result<std::size_t>(vkgdr_ring_push_all, get(), messages, sizes, count);
    }

    /// Pops an answer, and returns whether there was one in time; `size` is its bytes. The wait keeps the CPU busy. Throws
    /// once there will be none, and if the buffer is too short.
    bool pop(void *buffer, std::size_t capacity, std::size_t &size, std::chrono::nanoseconds timeout = forever) const {
        return in_time(vkgdr_ring_pop(get(), buffer, capacity, &size, limit(timeout)));
    }

    /// Ends the messages: the kernel ends once it has read all of them.
    void close() const { check(vkgdr_ring_close(get())); }
    /// Ends the kernel's waits and its reading at once, and all pushes and pops.
    void abort() const { check(vkgdr_ring_abort(get())); }
    /// What has passed through the ring.
    vkgdr_ring_stats stats() const { return result<vkgdr_ring_stats>(vkgdr_ring_get_stats, get()); }

private:
    /// Whether a call was in time; other failures throw.
    static bool in_time(std::int32_t status) {
        if (status != VKGDR_ERROR_TIMEOUT) check(status);
        return status == VKGDR_SUCCESS;
    }

    /// The C functions' number for a time; none for one that has passed.
    static std::uint64_t limit(std::chrono::nanoseconds timeout) noexcept {
        return static_cast<std::uint64_t>(std::max(timeout, timeout.zero()).count());
    }
};

#endif  // VKGDR_HPP
