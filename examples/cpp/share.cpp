// Sends a text through memory shared by the CPU and the GPU, and an answer back.
//
//     c++ -std=c++17 share.cpp -o share $(pkg-config --cflags --libs vkgdr) -ldl && ./share [TEXT]
//
//     $ ./share "a text for the GPU"
//     GPU         Simulated CUDA device (llvmpipe (LLVM 15.0.6, 256 bits))
//     CPU's view  0x7f40b3d8d000
//     GPU's view  0x7f40b3d8b000
//     GPU reads   a text for the GPU
//     CPU reads   18 bytes of 0xa5
//
// The CPU writes the text through the host pointer, and CUDA reads it through the device pointer; then CUDA fills a
// second buffer, a std::unique_ptr, and the CPU reads it. On failure it prints one line and exits with 1.

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>

#include <vkgdr.hpp>

namespace {

constexpr std::uint8_t fill_value = 0xa5;

// A CUDA driver function, loaded by its exported name. Programs that use the CUDA toolkit include <cuda.h> and link
// with -lcuda instead.
template <typename... Parameters>
class cuda_function {
public:
    explicit cuda_function(const char *name) : name_(name) {
        void *libcuda = dlopen("libcuda.so.1", RTLD_NOW);
        void *symbol = libcuda ? dlsym(libcuda, name) : nullptr;
        if (symbol == nullptr) throw std::runtime_error(dlerror());
        function_ = reinterpret_cast<int (*)(Parameters...)>(symbol);
    }

    void operator()(Parameters... arguments) const {
        const int code = function_(arguments...);
        if (code != 0) throw std::runtime_error(name_ + " failed (CUDA error " + std::to_string(code) + ")");
    }

private:
    std::string name_;
    int (*function_)(Parameters...);
};

void share(const std::string &text) {
    // Memory of this GPU is allocated in the primary context, which the CUDA runtime uses too.
    auto gpu = vkgdr::device::open_primary_context();
    auto memory = vkgdr::memory::allocate(gpu, text.size());
    std::cout << "GPU         " << gpu.name() << '\n'
              << "CPU's view  " << memory.host_ptr() << '\n'
              << "GPU's view  0x" << std::hex << memory.device_ptr() << std::dec << '\n';

    const cuda_function<void **, CUdevice> retain_primary_context("cuDevicePrimaryCtxRetain");
    const cuda_function<void *> set_current_context("cuCtxSetCurrent");
    const cuda_function<void *, CUdeviceptr, std::size_t> copy_to_host("cuMemcpyDtoH_v2");
    const cuda_function<CUdeviceptr, unsigned char, std::size_t> fill("cuMemsetD8_v2");
    void *context = nullptr;
    retain_primary_context(&context, gpu.number());
    set_current_context(context);

    // From the CPU to the GPU.
    memory.write(0, text);
    memory.flush();
    std::string seen(text.size(), ' ');
    copy_to_host(seen.data(), memory.device_ptr(), seen.size());
    if (seen != text) throw std::runtime_error("the GPU sees other bytes than the CPU wrote");
    std::cout << "GPU reads   " << seen << '\n';

    // And back, through cached memory, which the CPU reads fast. The pointer owns the memory, which keeps the GPU open.
    const auto size = text.size();
    const auto answer = vkgdr::allocate_unique(gpu, size, vkgdr::memory_kind::host);
    const auto &shared = vkgdr::memory_of(answer);
    fill(shared.device_ptr(), fill_value, size);
    copy_to_host(seen.data(), shared.device_ptr(), 1);  // waits for the fill
    shared.invalidate();
    const auto is_filled = [](std::uint8_t byte) { return byte == fill_value; };
    if (!std::all_of(answer.get(), answer.get() + size, is_filled)) {
        throw std::runtime_error("the CPU sees other bytes than the GPU wrote");
    }
    std::cout << "CPU reads   " << size << " bytes of 0x" << std::hex << unsigned{fill_value} << std::dec << '\n';
}

}  // namespace

int main(int argc, char **argv) {
    try {
        share(argc > 1 ? argv[1] : "written by the CPU, read by the GPU");
        return EXIT_SUCCESS;
    } catch (const std::exception &error) {  // vkgdr::error also has the drivers' codes
        std::cerr << "share: " << error.what() << '\n';
        return EXIT_FAILURE;
    }
}
