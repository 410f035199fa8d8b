// Kernels and variables that nvcc compiled into a program: registration, launches, attributes. Copies of variables are in
// symbol.c.
//
// A fat binary is loaded when one of its kernels or variables is first used. A refusal of the binary itself, as of one that
// has machine code only, is kept and returned for all of them.
#include "runtime.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

// A managed variable: the pointer to it through which the program reads and writes it.
typedef struct Managed {
    void **pointer;
    const char *name;
    size_t size;
    // The number of resets when the pointer was set.
    unsigned resets;
    struct Managed *next;
} Managed;

typedef struct {
    const void *image;
    // Held while the binary is loaded, which may wait for kernels. The library and the code are written before `tried`, and
    // not changed afterwards.
    pthread_mutex_t loading;
    void *library;
    int code;
    atomic_int tried, gone;
    Managed *managed;
} Binary;

// A kernel by its host function, or a variable by its address on the host.
typedef struct Symbol {
    const void *host;
    const char *name;
    Binary *binary;
    _Atomic(void *) kernel;
    size_t size;
    int is_variable;
    struct Symbol *next;
} Symbol;

enum { INITIAL_BUCKETS = 1024 };

// Libraries register tens of thousands of kernels when they are loaded. The mutex is of the table, and is never held over a
// call of the driver. Symbols and binaries are never freed.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static Symbol **buckets;
static size_t bucket_count, symbol_count;

static size_t bucket_of(const void *host, size_t count) {
    return ((uintptr_t)host >> 4) * 0x9e3779b97f4a7c15u >> 20 & (count - 1);
}

// The symbol, whose binary is registered.
static Symbol *find(const void *host) {
    pthread_mutex_lock(&mutex);
    Symbol *symbol = bucket_count == 0 ? NULL : buckets[bucket_of(host, bucket_count)];
    while (symbol != NULL && (symbol->host != host || symbol->binary->gone)) symbol = symbol->next;
    pthread_mutex_unlock(&mutex);
    return symbol;
}

static int grow(void) {
    size_t count = bucket_count == 0 ? INITIAL_BUCKETS : 4 * bucket_count;
    Symbol **grown = calloc(count, sizeof *grown);
    if (grown == NULL) return 0;
    for (size_t old = 0; old < bucket_count; old++)
        for (Symbol *symbol = buckets[old], *next; symbol != NULL; symbol = next) {
            size_t bucket = bucket_of(symbol->host, count);
            next = symbol->next;
            symbol->next = grown[bucket];
            grown[bucket] = symbol;
        }
    free(buckets);
    buckets = grown, bucket_count = count;
    return 1;
}

static void add(Binary *binary, const void *host, const char *name, size_t size, int is_variable) {
    Symbol *symbol = binary == NULL ? NULL : calloc(1, sizeof *symbol);
    if (symbol == NULL) return;
    *symbol = (Symbol){.host = host, .name = name, .binary = binary, .size = size, .is_variable = is_variable};
    pthread_mutex_lock(&mutex);
    if (symbol_count >= bucket_count && !grow() && bucket_count == 0) {
        free(symbol);
    } else {
        Symbol **bucket = &buckets[bucket_of(host, bucket_count)];
        symbol->next = *bucket;
        *bucket = symbol;
        symbol_count++;
    }
    pthread_mutex_unlock(&mutex);
}

EXPORT void **__cudaRegisterFatBinary(void *image) {
    Binary *binary = calloc(1, sizeof *binary);
    if (binary != NULL) {
        binary->image = image;
        pthread_mutex_init(&binary->loading, NULL);
    }
    return (void **)binary;
}

EXPORT void __cudaRegisterFatBinaryEnd(void **binary) {
    (void)binary;
}

// The binary stays, since its symbols are found by way of it. Programs unregister at their end, when the driver may be gone,
// and forked children, too, which may find the mutex held by a thread that they do not have.
EXPORT void __cudaUnregisterFatBinary(void **handle) {
    Binary *binary = (Binary *)handle;
    if (binary != NULL) atomic_store(&binary->gone, 1);
}

EXPORT void __cudaRegisterFunction(void **binary, const char *host, char *device, const char *name, int limit, void *tid,
                                   void *bid, Dim3 *block, Dim3 *grid, int *warp) {
    (void)device, (void)limit, (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
    add((Binary *)binary, host, name, 0, 0);
}

EXPORT void __cudaRegisterVar(void **binary, char *host, char *device, const char *name, int ext, size_t size, int constant,
                              int global) {
    (void)device, (void)ext, (void)constant, (void)global;
    add((Binary *)binary, host, name, size, 1);
}

// Programs register while they start, or while the library with the binary is loaded.
EXPORT void __cudaRegisterManagedVar(void **handle, void **pointer, char *device, const char *name, int ext, size_t size,
                                     int constant, int global) {
    (void)device, (void)ext, (void)constant, (void)global;
    Binary *binary = (Binary *)handle;
    Managed *managed = binary == NULL ? NULL : calloc(1, sizeof *managed);
    if (managed == NULL) return;
    *managed = (Managed){.pointer = pointer, .name = name, .size = size, .next = binary->managed};
    binary->managed = managed;
}

// Whether a code of the driver says that it will never load the binary.
static int is_final(int code) {
    enum { INVALID_IMAGE = 200, NO_BINARY = 209, INVALID_PTX = 218, UNSUPPORTED_VERSION = 222 };
    return code == SUCCESS || code == INVALID_IMAGE || code == NO_BINARY || code == INVALID_PTX ||
           code == UNSUPPORTED_VERSION || code == NOT_SUPPORTED;
}

// Loads the binary, unless it is loaded or refused. The driver calls no code of the program.
static int load(Binary *binary) {
    if (binary->tried) return binary->code;
    pthread_mutex_lock(&binary->loading);
    int code = binary->code;
    if (!binary->tried) {
        code = driver.cuLibraryLoadData(&binary->library, binary->image, NULL, NULL, 0, NULL, NULL, 0);
        binary->code = code;
        binary->tried = is_final(code);
    }
    pthread_mutex_unlock(&binary->loading);
    return code;
}

// Loads the binary, and sets the pointers to the managed variables, which are symbols by their addresses, too.
static int find_managed(Binary *binary) {
    int code = load(binary);
    unsigned resets = runtime_resets;
    pthread_mutex_lock(&binary->loading);
    for (Managed *managed = binary->managed; code == SUCCESS && managed != NULL; managed = managed->next) {
        uint64_t address;
        if (*managed->pointer != NULL && managed->resets == resets) continue;
        code = driver.cuLibraryGetManaged(&address, NULL, binary->library, managed->name);
        if (code != SUCCESS) break;
        // The symbol of an address before a reset stays, as that of memory that is gone.
        if (*managed->pointer != (void *)address) add(binary, (void *)address, managed->name, managed->size, 1);
        *managed->pointer = (void *)address;
        managed->resets = resets;
    }
    pthread_mutex_unlock(&binary->loading);
    return code;
}

// Loads the binary for a kernel, which may use its managed variables.
static int load_for_kernel(Binary *binary) {
    return binary->managed == NULL || runtime_resets == 0 ? load(binary) : find_managed(binary);
}

// What a program calls before it first uses a managed variable.
EXPORT char __cudaInitModule(void **handle) {
    Binary *binary = (Binary *)handle;
    if (binary == NULL || binary->managed == NULL) return 1;
    int code = runtime_enter();
    runtime_done(code != SUCCESS ? code : find_managed(binary));
    return 1;
}

int runtime_kernel(void **kernel, const void *function) {
    Symbol *symbol = find(function);
    int code = INVALID_FUNCTION;
    if (symbol != NULL && !symbol->is_variable) {
        code = load_for_kernel(symbol->binary);
        void *found = symbol->kernel;
        // Threads that ask at the same time are given the same handle.
        if (code == SUCCESS && found == NULL) {
            code = driver.cuLibraryGetKernel(&found, symbol->binary->library, symbol->name);
            if (code == SUCCESS) symbol->kernel = found;
        }
        *kernel = found;
    }
    size_t count;
    // A handle of cudaGetKernel is as good as a function.
    if (symbol == NULL && function != NULL && driver.cuKernelGetParamCount((void *)function, &count) == SUCCESS) {
        *kernel = (void *)function;
        code = SUCCESS;
    }
    return code;
}

// A loaded kernel of that name, after `skip` others: binaries may have kernels of one name that are private to each.
static Symbol *named(const char *name, size_t skip) {
    pthread_mutex_lock(&mutex);
    Symbol *symbol = NULL;
    for (size_t bucket = 0; bucket < bucket_count && symbol == NULL; bucket++)
        for (symbol = buckets[bucket]; symbol != NULL; symbol = symbol->next)
            if (symbol->kernel != NULL && !symbol->binary->gone && strcmp(symbol->name, name) == 0 && skip-- == 0) break;
    pthread_mutex_unlock(&mutex);
    return symbol;
}

const void *runtime_function(void *function) {
    const char *name;
    Symbol *symbol = NULL;
    void *own = NULL;
    if (driver.cuFuncGetName(&name, function) != SUCCESS) return function;
    for (size_t skip = 0; own != function && (symbol = named(name, skip)) != NULL; skip++)
        if (driver.cuKernelGetFunction(&own, symbol->kernel) != SUCCESS) own = NULL;
    return symbol == NULL ? function : symbol->host;
}

int runtime_variable(uint64_t *address, size_t *size, const void *host) {
    Symbol *symbol = find(host);
    if (symbol == NULL || !symbol->is_variable) return INVALID_SYMBOL;
    int code = load(symbol->binary);
    return code != SUCCESS ? code : driver.cuLibraryGetGlobal(address, size, symbol->binary->library, symbol->name);
}

// Launches. A block of no threads, and more than there can be, is a configuration of its own code.
static int check(Dim3 grid, Dim3 block) {
    uint64_t threads = (uint64_t)block.x * block.y;
    int empty = grid.x == 0 || grid.y == 0 || grid.z == 0 || block.x == 0 || block.y == 0 || block.z == 0;
    int large = grid.y > 65535 || grid.z > 65535 || grid.x > INT32_MAX || block.x > 1024 || block.y > 1024 || block.z > 64;
    return empty || large || threads * block.z > 1024 ? INVALID_CONFIGURATION : SUCCESS;
}

// Fails for a stream of another context than the current one, of which the default streams are (CUDA programming guide, "Stream
// and Event Behavior").
static int check_stream(void *stream) {
    void *own = NULL, *current = NULL;
    int code = (uintptr_t)stream <= (uintptr_t)PER_THREAD ? SUCCESS : driver.cuStreamGetCtx(stream, &own);
    if (code == SUCCESS && own != NULL) code = driver.cuCtxGetCurrent(&current);
    return code == SUCCESS && own != current ? INVALID_HANDLE : code;
}

static int launch(const void *function, Dim3 grid, Dim3 block, void **arguments, size_t shared, void *stream, int cooperative) {
    void *kernel;
    int code = check(grid, block);
    if (code == SUCCESS && shared > UINT32_MAX) code = INVALID_VALUE;
    if (code == SUCCESS) code = check_stream(stream);
    if (code == SUCCESS) code = runtime_kernel(&kernel, function);
    if (code != SUCCESS) return code;
    if (cooperative)
        return driver.cuLaunchCooperativeKernel(kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, (unsigned)shared,
                                                stream, arguments);
    return driver.cuLaunchKernel(kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, (unsigned)shared, stream, arguments,
                                 NULL);
}

ON_STREAM(cudaLaunchKernel, (const void *function, Dim3 grid, Dim3 block, void **arguments, size_t shared, void *stream),
          launch(function, grid, block, arguments, shared, stream, 0))
ON_STREAM(cudaLaunchCooperativeKernel,
          (const void *function, Dim3 grid, Dim3 block, void **arguments, size_t shared, void *stream),
          launch(function, grid, block, arguments, shared, stream, 1))

// What nvcc writes for <<<>>>: a handle that is asked for once, which may stand for a kernel that cannot be loaded.
EXPORT int __cudaGetKernel(void **kernel, const void *function) {
    if (kernel == NULL) return runtime_done(INVALID_VALUE);
    *kernel = (void *)function;
    return SUCCESS;
}

ON_STREAM(__cudaLaunchKernel, (void *kernel, Dim3 grid, Dim3 block, void **arguments, size_t shared, void *stream),
          launch(kernel, grid, block, arguments, shared, stream, 0))

// cudaLaunchConfig_t, whose shared memory is wider than the driver's.
typedef struct {
    Dim3 grid, block;
    size_t shared;
    void *stream;
    void *attributes;
    unsigned count;
} RuntimeConfig;

static int launch_extended(const RuntimeConfig *config, const void *function, void **arguments, void *stream) {
    void *kernel;
    int code = config->shared > UINT32_MAX ? INVALID_VALUE : check(config->grid, config->block);
    if (code == SUCCESS) code = check_stream(stream);
    if (code == SUCCESS) code = runtime_kernel(&kernel, function);
    if (code != SUCCESS) return code;
    LaunchConfig own = {config->grid, config->block, (unsigned)config->shared, stream, config->attributes, config->count};
    return driver.cuLaunchKernelEx(&own, kernel, arguments, NULL);
}

CALL(cudaLaunchKernelExC, (const RuntimeConfig *config, const void *function, void **arguments),
     config == NULL ? INVALID_VALUE : launch_extended(config, function, arguments, config->stream))
CALL(cudaLaunchKernelExC_ptsz, (const RuntimeConfig *config, const void *function, void **arguments),
     config == NULL ? INVALID_VALUE
                    : launch_extended(config, function, arguments, config->stream == NULL ? PER_THREAD : config->stream))

// The configurations of <<<>>> that wait for their launches, of each thread.
enum { DEEPEST = 16 };
static _Thread_local struct {
    Dim3 grid, block;
    size_t shared;
    void *stream;
} pushed[DEEPEST];
static _Thread_local unsigned depth;

EXPORT unsigned __cudaPushCallConfiguration(Dim3 grid, Dim3 block, size_t shared, void *stream) {
    if (depth == DEEPEST) return (unsigned)runtime_done(OUT_OF_MEMORY);
    pushed[depth].grid = grid, pushed[depth].block = block, pushed[depth].shared = shared, pushed[depth].stream = stream;
    depth++;
    return SUCCESS;
}

EXPORT int __cudaPopCallConfiguration(Dim3 *grid, Dim3 *block, size_t *shared, void **stream) {
    if (depth == 0) return runtime_done(MISSING_CONFIGURATION);
    depth--;
    *grid = pushed[depth].grid, *block = pushed[depth].block, *shared = pushed[depth].shared, *stream = pushed[depth].stream;
    return SUCCESS;
}

// cudaFuncAttributes; the members are functions' attributes of the driver, by number.
typedef struct {
    size_t shared, constant, local;
    int values[13];
    int reserved[16];
} FunctionAttributes;

static int attributes(FunctionAttributes *out, const void *function) {
    // The most threads, registers, versions, cache mode, dynamic shared memory, carve-out, cluster.
    static const int keys[13] = {0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 14};
    int sizes[3];
    void *kernel;
    if (out == NULL) return INVALID_VALUE;
    memset(out, 0, sizeof *out);
    int code = runtime_kernel(&kernel, function);
    for (int index = 0; index < 3 && code == SUCCESS; index++)
        code = driver.cuFuncGetAttribute(&sizes[index], index + 1, kernel);
    for (int index = 0; index < 13 && code == SUCCESS; index++)
        code = driver.cuFuncGetAttribute(&out->values[index], keys[index], kernel);
    if (code == SUCCESS) out->shared = sizes[0], out->constant = sizes[1], out->local = sizes[2];
    return code;
}

CALL(cudaFuncGetAttributes, (FunctionAttributes * out, const void *function), attributes(out, function))

// A function that passes a function's kernel on to the driver.
#define OF_KERNEL(name, parameters, expression) \
    EXPORT int name parameters { \
        void *kernel; \
        int code = runtime_enter(); \
        if (code == SUCCESS) code = runtime_kernel(&kernel, function); \
        return runtime_done(code != SUCCESS ? code : (expression)); \
    }

OF_KERNEL(cudaFuncSetAttribute, (const void *function, int key, int value), driver.cuFuncSetAttribute(kernel, key, value))
OF_KERNEL(cudaFuncSetCacheConfig, (const void *function, int config), driver.cuFuncSetCacheConfig(kernel, config))
OF_KERNEL(cudaFuncSetSharedMemConfig, (const void *function, int config), driver.cuFuncSetSharedMemConfig(kernel, config))
OF_KERNEL(cudaFuncGetName, (const char **out, const void *function), driver.cuKernelGetName(out, kernel))
OF_KERNEL(cudaFuncGetParamInfo, (const void *function, size_t index, size_t *offset, size_t *size),
          driver.cuKernelGetParamInfo(kernel, index, offset, size))
#if MAJOR > 12
OF_KERNEL(cudaFuncGetParamCount, (const void *function, size_t *out), driver.cuKernelGetParamCount(kernel, out))
#endif
OF_KERNEL(cudaGetFuncBySymbol, (void **out, const void *function), driver.cuKernelGetFunction(out, kernel))
OF_KERNEL(cudaGetKernel, (void **out, const void *function), out == NULL ? INVALID_VALUE : (*out = kernel, SUCCESS))
OF_KERNEL(cudaOccupancyMaxActiveBlocksPerMultiprocessor, (int *out, const void *function, int block, size_t shared),
          driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out, kernel, block, shared, 0))
OF_KERNEL(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
          (int *out, const void *function, int block, size_t shared, unsigned flags),
          driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out, kernel, block, shared, flags))
OF_KERNEL(cudaOccupancyAvailableDynamicSMemPerBlock, (size_t *out, const void *function, int blocks, int block),
          driver.cuOccupancyAvailableDynamicSMemPerBlock(out, kernel, blocks, block))
