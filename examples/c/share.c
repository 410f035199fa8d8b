/* Sends a text through memory shared by the CPU and the GPU, and an answer back.
 *
 *     cc share.c -o share $(pkg-config --cflags --libs vkgdr) -ldl && ./share [TEXT]
 *
 *     $ ./share "a text for the GPU"
 *     GPU         Simulated CUDA device (llvmpipe (LLVM 15.0.6, 256 bits))
 *     CPU's view  0x7f3b2c324000
 *     GPU's view  0x7f3b2c322000
 *     GPU reads   a text for the GPU
 *     CPU reads   18 bytes of 0xa5
 *
 * The CPU writes the text through the host pointer, and CUDA reads it through the device pointer; then CUDA fills the
 * memory, and the CPU reads it. On failure it prints one line and exits with 1.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vkgdr.h>

enum { FILL = 0xa5 };

/* Prints the reason and exits: the system releases the memory. */
static void fail(const char *what, const char *why) {
    fprintf(stderr, "share: %s: %s\n", what, why ? why : "no memory");
    exit(EXIT_FAILURE);
}

static void check(const char *what, int32_t status) {
    if (status != VKGDR_SUCCESS) fail(what, vkgdr_status_string(status));
}

/* CUDA driver functions, loaded by their exported names. Programs that use the CUDA toolkit include <cuda.h> and
 * link with -lcuda instead. */
static int (*retain_primary_context)(void **context, CUdevice device);
static int (*set_current_context)(void *context);
static int (*copy_to_host)(void *target, CUdeviceptr source, size_t size);
static int (*fill)(CUdeviceptr target, unsigned char value, size_t count);

static void load(void *function, const char *name) {
    static void *libcuda;
    void *symbol;
    if (!libcuda && !(libcuda = dlopen("libcuda.so.1", RTLD_NOW))) fail("libcuda", dlerror());
    symbol = dlsym(libcuda, name);
    if (!symbol) fail("libcuda", dlerror());
    memcpy(function, &symbol, sizeof symbol);
}

static void check_cuda(const char *what, int code) {
    char text[32];
    snprintf(text, sizeof text, "CUDA error %d", code);
    if (code != 0) fail(what, text);
}

int main(int argc, char **argv) {
    const char *text = argc > 1 ? argv[1] : "written by the CPU, read by the GPU";
    size_t size = strlen(text);
    vkgdr_t gpu;
    vkgdr_memory_t memory;
    char name[256], *seen;
    void *context;
    size_t i;

    /* Memory of this handle is allocated in the primary context, which the CUDA runtime uses too. */
    if (vkgdr_open_primary_context(0, 0, &gpu) != VKGDR_SUCCESS) fail("opening the GPU", vkgdr_last_error());
    memory = vkgdr_memory_alloc(gpu, size, VKGDR_MEMORY_MAPPED);
    if (!memory) fail("allocating memory", vkgdr_last_error());
    seen = malloc(size);
    if (!seen) fail("malloc", NULL);

    check("asking for the GPU's name", vkgdr_device_get_name(gpu, name, sizeof name));
    printf("GPU         %s\n", name);
    printf("CPU's view  %p\n", vkgdr_memory_get_host_ptr(memory));
    printf("GPU's view  0x%" PRIx64 "\n", (uint64_t)vkgdr_memory_get_device_ptr(memory));

    load(&retain_primary_context, "cuDevicePrimaryCtxRetain");
    load(&set_current_context, "cuCtxSetCurrent");
    load(&copy_to_host, "cuMemcpyDtoH_v2");
    load(&fill, "cuMemsetD8_v2");
    check_cuda("cuDevicePrimaryCtxRetain", retain_primary_context(&context, 0));
    check_cuda("cuCtxSetCurrent", set_current_context(context));

    /* From the CPU to the GPU. */
    memcpy(vkgdr_memory_get_host_ptr(memory), text, size);
    check("flushing", vkgdr_memory_flush_checked(memory, 0, size));
    check_cuda("cuMemcpyDtoH", copy_to_host(seen, vkgdr_memory_get_device_ptr(memory), size));
    if (memcmp(seen, text, size) != 0) fail("the GPU", "sees other bytes than the CPU wrote");
    printf("GPU reads   %.*s\n", (int)size, seen);

    /* And back. A fill may return early; the copy of one byte waits for it. */
    check_cuda("cuMemsetD8", fill(vkgdr_memory_get_device_ptr(memory), FILL, size));
    check_cuda("cuMemcpyDtoH", copy_to_host(seen, vkgdr_memory_get_device_ptr(memory), 1));
    check("invalidating", vkgdr_memory_invalidate_checked(memory, 0, size));
    check("reading", vkgdr_memory_read(memory, 0, seen, size));
    for (i = 0; i < size; i++) {
        if ((unsigned char)seen[i] != FILL) fail("the CPU", "sees other bytes than the GPU wrote");
    }
    printf("CPU reads   %zu bytes of 0x%x\n", size, FILL);

    free(seen);
    vkgdr_memory_free(memory);
    vkgdr_close(gpu);
    return EXIT_SUCCESS;
}
