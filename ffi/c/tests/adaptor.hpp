// What the tests of the C++ adaptors share.
#ifndef ADAPTOR_HPP
#define ADAPTOR_HPP

#include <cuda_runtime_api.h>
#include <vkgdr.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

inline void check(bool condition, const char *text, const char *file, int line) {
    if (condition) return;
    std::fprintf(stderr, "%s:%d: not so: %s\n", file, line, text);
    std::exit(1);
}
#define CHECK(condition) check((condition), #condition, __FILE__, __LINE__)

inline bool is_live(const void *ptr) { return static_cast<bool>(vkgdr::memory::find(ptr)); }

inline cudaStream_t create_stream() {
    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    return stream;
}

// What the CPU writes at one device address it reads at another, to which the device has copied it.
inline void check_views(void *from, void *to, std::size_t size) {
    std::size_t offset = 1;
    auto source = vkgdr::memory::find(from, &offset), target = vkgdr::memory::find(to);
    CHECK(offset == 0 && source.size() >= size && target.size() >= size);
    auto *written = static_cast<std::uint8_t *>(source.host_ptr());
    for (std::size_t i = 0; i < size; ++i) written[i] = static_cast<std::uint8_t>(i % 251);
    source.flush();
    CHECK(cudaMemcpy(to, from, size, cudaMemcpyDeviceToDevice) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess);
    target.invalidate();
    const auto *seen = static_cast<const std::uint8_t *>(target.host_ptr());
    for (std::size_t i = 0; i < size; ++i) CHECK(seen[i] == i % 251);
}

// Keeps a stream busy until it is opened, here or by a thread.
class gate {
public:
    explicit gate(cudaStream_t stream) { CHECK(cudaLaunchHostFunc(stream, wait, &is_open_) == cudaSuccess); }
    ~gate() {
        if (opener_.joinable()) opener_.join();
    }
    void open() { is_open_ = true; }
    void open_later() {
        opener_ = std::thread([this] {
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            open();
        });
    }

private:
    static void wait(void *is_open) {
        while (!*static_cast<std::atomic<bool> *>(is_open)) std::this_thread::yield();
    }
    std::atomic<bool> is_open_{false};
    std::thread opener_;
};

template <typename Action>
void on_threads(Action action) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) threads.emplace_back(action);
    for (std::thread &thread : threads) thread.join();
}

#endif  // ADAPTOR_HPP
