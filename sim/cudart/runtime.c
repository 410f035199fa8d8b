// libcudart.so.12 or .13 (MAJOR): the CUDA runtime by the simulated driver. This file loads the driver, keeps each thread's
// device and last error, and answers for what is not simulated.
//
// The driver is loaded at the first call, since vkgdr-sim preloads the library into every program. Threads use the primary
// contexts of their devices, unless the program made another context current.
#define _GNU_SOURCE
#include "runtime.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "errors.h"

Driver driver;
atomic_uint runtime_resets;

// More than a machine has.
enum { MOST_DEVICES = 64 };

static pthread_once_t started = PTHREAD_ONCE_INIT;
static int start_code;
static int device_count;
// The primary contexts are retained once each, for good.
static pthread_mutex_t retaining = PTHREAD_MUTEX_INITIALIZER;

static _Thread_local int device;
static _Thread_local int last_error;

static void start(void) {
    Driver found;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    start_code = INSUFFICIENT_DRIVER;
    if (library == NULL) return;
#define FIND(name, parameters) \
    found.name = (int(*) parameters)dlsym(library, #name); \
    if (found.name == NULL) return;
    DRIVER(FIND)
#undef FIND
    driver = found;
    start_code = driver.cuInit(0);
    if (start_code == SUCCESS) start_code = driver.cuDeviceGetCount(&device_count);
    if (start_code == SUCCESS && device_count == 0) start_code = NO_DEVICE;
    if (device_count > MOST_DEVICES) device_count = MOST_DEVICES;
}

int runtime_start(void) {
    pthread_once(&started, start);
    return start_code;
}

int runtime_check_device(int number) {
    return number >= 0 && number < device_count ? SUCCESS : INVALID_DEVICE;
}

// Makes the primary context of the thread's device current. The retain that the runtime keeps survives a reset, after which
// the next one makes the context again, perhaps with another handle.
static int bind(void) {
    static char held[MOST_DEVICES];
    void *context;
    pthread_mutex_lock(&retaining);
    int code = driver.cuDevicePrimaryCtxRetain(&context, device);
    if (code == SUCCESS && held[device]) driver.cuDevicePrimaryCtxRelease_v2(device);
    if (code == SUCCESS) held[device] = 1;
    pthread_mutex_unlock(&retaining);
    return code != SUCCESS ? code : driver.cuCtxSetCurrent(context);
}

int runtime_enter(void) {
    int current, code = runtime_start();
    if (code != SUCCESS) return code;
    code = driver.cuCtxGetDevice(&current);
    return code == CONTEXT_UNINITIALIZED || code == CONTEXT_IS_DESTROYED ? bind() : code;
}

int runtime_done(int code) {
    if (code != SUCCESS) last_error = code;
    return code;
}

EXPORT int cudaPeekAtLastError(void) {
    return last_error;
}

// An error that ended the context stays: every call returns it.
EXPORT int cudaGetLastError(void) {
    int code = last_error, config, current;
    last_error = SUCCESS;
    if (code != SUCCESS && runtime_start() == SUCCESS && driver.cuCtxGetDevice(&current) == SUCCESS)
        last_error = driver.cuCtxGetCacheConfig(&config);
    return code;
}

EXPORT const char *cudaGetErrorName(int code) {
    switch (code) {
#define NAME(number, name, text) \
    case number: return #name;
        ERRORS(NAME)
#undef NAME
    default: return "unrecognized error code";
    }
}

EXPORT const char *cudaGetErrorString(int code) {
    switch (code) {
#define TEXT(number, name, text) \
    case number: return text;
        ERRORS(TEXT)
#undef TEXT
    default: return "unrecognized error code";
    }
}

// 0 devices where there is an error, too.
EXPORT int cudaGetDeviceCount(int *count) {
    if (count == NULL) return runtime_done(INVALID_VALUE);
    int code = runtime_start();
    *count = code == SUCCESS ? device_count : 0;
    return runtime_done(code);
}

static int set_device(int number) {
    int code = runtime_check_device(number);
    if (code != SUCCESS) return code;
    device = number;
    return bind();
}

STARTED(cudaSetDevice, (int number), set_device(number))

// Makes no context.
static int get_device(int *out) {
    if (out == NULL) return INVALID_VALUE;
    if (driver.cuCtxGetDevice(out) != SUCCESS) *out = device;
    return SUCCESS;
}

STARTED(cudaGetDevice, (int *out), get_device(out))

// Flags of a context that exists already are changed, too.
static int init_device(int number, unsigned device_flags, unsigned flags) {
    int code = runtime_check_device(number), kept = device;
    if (code == SUCCESS && flags > 1) code = INVALID_VALUE;
    if (code == SUCCESS && flags == 1) code = driver.cuDevicePrimaryCtxSetFlags_v2(number, device_flags);
    if (code != SUCCESS) return code;
    void *context = NULL;
    code = driver.cuCtxGetCurrent(&context);
    device = number;
    if (code == SUCCESS) code = bind();
    device = kept;
    // The thread's device stays, which may have no context yet.
    driver.cuCtxSetCurrent(context);
    return code;
}

STARTED(cudaInitDevice, (int number, unsigned device_flags, unsigned flags), init_device(number, device_flags, flags))
STARTED(cudaSetDeviceFlags, (unsigned flags), driver.cuDevicePrimaryCtxSetFlags_v2(device, flags))
CALL(cudaGetDeviceFlags, (unsigned *flags), flags == NULL ? INVALID_VALUE : driver.cuCtxGetFlags(flags))

static int reset(void) {
    int current = device;
    driver.cuCtxGetDevice(&current);
    last_error = SUCCESS;
    int code = driver.cuDevicePrimaryCtxReset_v2(current);
    atomic_fetch_add(&runtime_resets, 1);
    return code;
}

STARTED(cudaDeviceReset, (void), reset())
CALL(cudaDeviceSynchronize, (void), driver.cuCtxSynchronize())

// 0 where there is no driver.
EXPORT int cudaDriverGetVersion(int *version) {
    if (version == NULL) return runtime_done(INVALID_VALUE);
    *version = 0;
    runtime_start();
    return runtime_done(driver.cuDriverGetVersion == NULL ? SUCCESS : driver.cuDriverGetVersion(version));
}

EXPORT int cudaRuntimeGetVersion(int *version) {
    if (version == NULL) return runtime_done(INVALID_VALUE);
    *version = MAJOR == 12 ? 12090 : 13000;
    return SUCCESS;
}

int runtime_missing(const char *name, int *said) {
    const char *quiet = getenv("SIMCUDA_QUIET");
    if (!__atomic_exchange_n(said, 1, __ATOMIC_RELAXED) && (quiet == NULL || strcmp(quiet, "1") != 0))
        fprintf(stderr, "simcuda: %s is not simulated: cudaErrorNotSupported\n", name);
    return runtime_done(NOT_SUPPORTED);
}
