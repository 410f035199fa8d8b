// Shared by all files of the runtime: the entry of a function, its errors, and structures of pitched memory.
#ifndef RUNTIME_H
#define RUNTIME_H

#include <stdatomic.h>

#include "driver.h"

#define EXPORT __attribute__((visibility("default")))

// The codes of cudaError_t that the runtime itself returns. The driver's codes are the same numbers.
enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_CONFIGURATION = 9,
    INVALID_PITCH = 12,
    INVALID_SYMBOL = 13,
    INVALID_DIRECTION = 21,
    INSUFFICIENT_DRIVER = 35,
    MISSING_CONFIGURATION = 52,
    INVALID_FUNCTION = 98,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    CONTEXT_UNINITIALIZED = 201,
    PEER_UNSUPPORTED = 217,
    INVALID_HANDLE = 400,
    PEER_NOT_ENABLED = 705,
    CONTEXT_IS_DESTROYED = 709,
    NOT_SUPPORTED = 801
};

// cudaMemcpyKind.
enum { HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, ANY_TO_ANY };

// cudaPitchedPtr and cudaExtent.
typedef struct {
    void *pointer;
    size_t pitch, width, height;
} Pitched;
typedef struct {
    size_t width, height, depth;
} Extent;

// cudaPos.
typedef struct {
    size_t x, y, z;
} Position;

// cudaMemcpy3DParms.
typedef struct {
    void *source_array;
    Position source_position;
    Pitched source;
    void *target_array;
    Position target_position;
    Pitched target;
    Extent extent;
    int kind;
} Box;

// cudaKernelNodeParams, the driver's CUDA_KERNEL_NODE_PARAMS_v1 but for what the first member is.
typedef struct {
    const void *function;
    Dim3 grid, block;
    unsigned shared;
    void **arguments;
    void **extra;
} KernelNode;

// cudaStreamPerThread.
#define PER_THREAD ((void *)2)

// The driver's functions. All are null until `runtime_start` found them.
extern Driver driver;
// The number of resets of devices. Managed variables lie elsewhere after each.
extern atomic_uint runtime_resets;

#define ADDRESS(pointer) ((uint64_t)(uintptr_t)(pointer))
#define POINTER(address) ((void *)(uintptr_t)(address))

// Loads and initialises the driver, once.
int runtime_start(void);
// As `runtime_start`; afterwards a context is current: the thread's own, or the primary one of its device.
int runtime_enter(void);
// Keeps a failure as the thread's last error. Returns the code.
int runtime_done(int code);
// Refuses numbers of devices that do not exist. The driver is started.
int runtime_check_device(int device);
// The kernel, as the driver's, of a function of the program or of a handle of `cudaGetKernel`.
int runtime_kernel(void **kernel, const void *function);
// The parameters of a kernel's node with the driver's kernel.
int runtime_kernel_node(KernelNode *own, const KernelNode *node);
// The function of the program whose kernel, in some context, is this function of the driver; the latter itself if there is
// none.
const void *runtime_function(void *function);
// Address and size of a variable in the current context.
int runtime_variable(uint64_t *address, size_t *size, const void *host);
// On the stream, or on the legacy one with the driver's waits if `wait` is set and the stream is null.
int runtime_copy(void *to, const void *from, size_t size, int kind, void *stream, int wait);
// The driver's structure of a copy.
int runtime_box(Copy3D *out, const Box *box);
// Where a copy of bytes to or from a variable begins on the device, if it is inside and has that direction.
int runtime_in_symbol(void **out, const void *symbol, size_t size, size_t offset, int kind, int writes);
// Says once that a function is not simulated.
int runtime_missing(const char *name, int *said);

// A function that needs the driver only.
#define STARTED(name, parameters, expression) \
    EXPORT int name parameters { \
        int code = runtime_start(); \
        return runtime_done(code != SUCCESS ? code : (expression)); \
    }

// A function that needs a context.
#define CALL(name, parameters, expression) \
    EXPORT int name parameters { \
        int code = runtime_enter(); \
        return runtime_done(code != SUCCESS ? code : (expression)); \
    }

// A function with a parameter `stream`, and its form for programs whose default stream is the thread's own.
#define ON_STREAM(name, parameters, expression) \
    CALL(name, parameters, expression) \
    EXPORT int name##_ptsz parameters { \
        int code = runtime_enter(); \
        if (stream == NULL) stream = PER_THREAD; \
        return runtime_done(code != SUCCESS ? code : (expression)); \
    }

// A function that waits for its work on the default stream. The expression reads `own`: the thread's own stream, or null for
// the legacy one.
#define ON_DEFAULT(name, parameters, expression) \
    EXPORT int name parameters { \
        void *own = NULL; \
        int code = runtime_enter(); \
        return runtime_done(code != SUCCESS ? code : (expression)); \
    } \
    EXPORT int name##_ptds parameters { \
        void *own = PER_THREAD; \
        int code = runtime_enter(); \
        return runtime_done(code != SUCCESS ? code : (expression)); \
    }

#endif
