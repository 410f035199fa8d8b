// libnvJitLink.so.12 or .13 (MAJOR): nvJitLink by the simulated driver's linker, cuLink*. NVIDIA's own makes code for a GPU,
// which nothing here could run; this one's "cubin" is what the simulated driver loads.
//
// Linked are PTX, fat binaries and libraries of PTX. LTO-IR and every output but the cubin are refused, with the reason in
// the error log. Unlike NVIDIA's it needs a current context, from nvJitLinkCreate on.
#define _GNU_SOURCE // RTLD_DEFAULT
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

// nvJitLinkResult of nvJitLink.h.
enum {
    SUCCESS = 0,
    UNRECOGNIZED_OPTION = 1,
    MISSING_ARCH = 2,
    INVALID_INPUT = 3,
    PTX_COMPILE = 4,
    INTERNAL = 6,
    UNRECOGNIZED_INPUT = 8,
    FINALIZE = 9
};
// nvJitLinkInputType, and CUjitInputType of cuda.h.
enum { IN_CUBIN = 1, IN_PTX = 2, IN_LTOIR = 3, IN_FATBIN = 4, IN_OBJECT = 5, IN_LIBRARY = 6, IN_INDEX = 7, IN_ANY = 10 };
enum { CU_CUBIN = 0, CU_PTX = 1, CU_FATBINARY = 2, CU_OBJECT = 3, CU_LIBRARY = 4 };
// CUjit_option.
enum { CU_ERROR_LOG_BUFFER = 5, CU_ERROR_LOG_BUFFER_SIZE = 6 };

typedef struct {
    void *state;      // CUlinkState
    void *options[2]; // of the state, which writes the log's length to the second
    void *cubin;      // the driver's, until the state is destroyed
    size_t size;
    char log[4096];
} Linker;

// The driver's function.
static void *driver(const char *name) {
    void *function = dlsym(RTLD_DEFAULT, name);
    if (function == NULL) {
        // Never closed: the function must stay.
        void *library = dlopen("libcuda.so.1", RTLD_LAZY);
        function = library == NULL ? NULL : dlsym(library, name);
    }
    return function;
}

// Keeps the driver's own reason if it wrote one.
static int failed(Linker *linker, int result, const char *call, int code) {
    if (linker->log[0] == '\0') snprintf(linker->log, sizeof linker->log, "%s failed: CUDA error %d", call, code);
    return result;
}

static int refused(Linker *linker, int result, const char *reason) {
    snprintf(linker->log, sizeof linker->log, "%s", reason);
    return result;
}

static int is_option(const char *option, const char *name) {
    return strncmp(option, name, strlen(name)) == 0;
}

// Whether the option is one of NVIDIA's. What it asks for changes machine code only, which the simulator does not make.
static int is_known(const char *option) {
    static const char *const names[] = {
        "-O",        "-Xnvvm=",         "-Xptxas=",  "-arch=",     "-fma=",          "-ftz=", "-g",
        "-lineinfo", "-kernels-used",   "-lto",      "-no-cache",  "-maxrregcount=", "-time", "-optimize-unused-variables",
        "-verbose",  "-variables-used", "-prec-div", "-prec-sqrt", "-split-compile"};
    for (size_t index = 0; index < sizeof names / sizeof *names; index++)
        if (is_option(option, names[index])) return 1;
    return 0;
}

static int create(Linker **out, uint32_t count, const char **options) {
    if (out == NULL) return INVALID_INPUT;
    *out = NULL;
    int has_arch = 0;
    for (uint32_t index = 0; index < count; index++) {
        has_arch |= is_option(options[index], "-arch=");
        if (!is_known(options[index])) return UNRECOGNIZED_OPTION;
    }
    if (!has_arch) return MISSING_ARCH;
    int (*link_create)(unsigned, int *, void **, void **) = driver("cuLinkCreate_v2");
    Linker *linker = calloc(1, sizeof *linker);
    if (link_create == NULL || linker == NULL) {
        free(linker);
        return INTERNAL;
    }
    int keys[] = {CU_ERROR_LOG_BUFFER, CU_ERROR_LOG_BUFFER_SIZE};
    linker->options[0] = linker->log;
    linker->options[1] = (void *)(uintptr_t)sizeof linker->log;
    if (link_create(2, keys, linker->options, &linker->state) != 0) {
        free(linker);
        return INTERNAL;
    }
    *out = linker;
    return SUCCESS;
}

static int destroy(Linker **linker) {
    if (linker == NULL || *linker == NULL) return INVALID_INPUT;
    int (*link_destroy)(void *) = driver("cuLinkDestroy");
    if (link_destroy != NULL) link_destroy((*linker)->state);
    free(*linker);
    *linker = NULL;
    return SUCCESS;
}

// The driver's name of a type of input; -1 for types that it does not link, which the log then names.
static int type_of(Linker *linker, int type, const void *data, size_t size) {
    switch (type) {
    case IN_CUBIN: return CU_CUBIN;
    case IN_PTX: return CU_PTX;
    case IN_FATBIN: return CU_FATBINARY;
    case IN_OBJECT: return CU_OBJECT;
    case IN_LIBRARY: return CU_LIBRARY;
    case IN_ANY: return size > 8 && memcmp(data, "!<arch>\n", 8) == 0 ? CU_LIBRARY : CU_PTX;
    case IN_LTOIR: return refused(linker, -1, "the simulator links PTX, not LTO-IR");
    default: return refused(linker, -1, "unknown type of input");
    }
}

static int add_data(Linker *linker, int type, const void *data, size_t size, const char *name) {
    if (linker == NULL || data == NULL) return INVALID_INPUT;
    int known = type_of(linker, type, data, size);
    if (known < 0) return UNRECOGNIZED_INPUT;
    linker->log[0] = '\0';
    int (*link_add)(void *, int, void *, size_t, const char *, unsigned, void *, void *) = driver("cuLinkAddData_v2");
    int code = link_add == NULL ? -1 : link_add(linker->state, known, (void *)data, size, name, 0, NULL, NULL);
    return code == 0 ? SUCCESS : failed(linker, known == CU_PTX ? PTX_COMPILE : INVALID_INPUT, "cuLinkAddData", code);
}

static int add_file(Linker *linker, int type, const char *path) {
    if (linker == NULL || path == NULL) return INVALID_INPUT;
    FILE *file = fopen(path, "rb");
    if (file == NULL) return refused(linker, INVALID_INPUT, "the file cannot be opened");
    char *bytes = NULL;
    size_t size = 0, capacity = 0, read;
    do {
        if (size == capacity) {
            char *grown = realloc(bytes, capacity = capacity == 0 ? 1 << 16 : 2 * capacity);
            if (grown == NULL) break;
            bytes = grown;
        }
        read = fread(bytes + size, 1, capacity - size, file);
        size += read;
    } while (read > 0);
    int complete = feof(file);
    fclose(file);
    int result = complete ? add_data(linker, type, bytes, size, path)
                          : refused(linker, INVALID_INPUT, "the file cannot be read");
    free(bytes);
    return result;
}

static int complete(Linker *linker) {
    if (linker == NULL) return INVALID_INPUT;
    linker->log[0] = '\0';
    int (*link_complete)(void *, void **, size_t *) = driver("cuLinkComplete");
    int code = link_complete == NULL ? -1 : link_complete(linker->state, &linker->cubin, &linker->size);
    return code == 0 ? SUCCESS : failed(linker, FINALIZE, "cuLinkComplete", code);
}

static int cubin_size(Linker *linker, size_t *size) {
    if (linker == NULL || size == NULL || linker->cubin == NULL) return INVALID_INPUT;
    *size = linker->size;
    return SUCCESS;
}

static int cubin(Linker *linker, void *to) {
    if (linker == NULL || to == NULL || linker->cubin == NULL) return INVALID_INPUT;
    memcpy(to, linker->cubin, linker->size);
    return SUCCESS;
}

// Keeps the reason of a link that failed.
static int no_output(Linker *linker) {
    static const char reason[] = "the simulator's only output is a cubin";
    return linker->log[0] == '\0' ? refused(linker, INVALID_INPUT, reason) : INVALID_INPUT;
}

static int no_size(Linker *linker, size_t *size) {
    if (linker == NULL || size == NULL) return INVALID_INPUT;
    *size = 0;
    return no_output(linker);
}

// Sizes count the end of the text.
static int error_log_size(Linker *linker, size_t *size) {
    if (linker == NULL || size == NULL) return INVALID_INPUT;
    *size = strlen(linker->log) + 1;
    return SUCCESS;
}

static int error_log(Linker *linker, char *to) {
    if (linker == NULL || to == NULL) return INVALID_INPUT;
    strcpy(to, linker->log);
    return SUCCESS;
}

static int info_log_size(Linker *linker, size_t *size) {
    if (linker == NULL || size == NULL) return INVALID_INPUT;
    *size = 1;
    return SUCCESS;
}

static int info_log(Linker *linker, char *to) {
    if (linker == NULL || to == NULL) return INVALID_INPUT;
    *to = '\0';
    return SUCCESS;
}

// 12.2, the newest version with which numba-cuda makes PTX: from 12.3 on it makes LTO-IR.
static int version(unsigned *major, unsigned *minor) {
    if (major == NULL || minor == NULL) return INVALID_INPUT;
    *major = 12;
    *minor = 2;
    return SUCCESS;
}

// The header renames each function to that of its own version, such as __nvJitLinkCreate_12_9.
#define NAME2(name, minor, major) __##name##_##major##_##minor
#define NAME(name, minor, major) NAME2(name, minor, major)
#define ONE(name, minor, parameters, call) \
    EXPORT int NAME(name, minor, MAJOR) parameters { return call; }
#define EACH(name, parameters, call) \
    EXPORT int name parameters { return call; } \
    ONE(name, 0, parameters, call) ONE(name, 1, parameters, call) ONE(name, 2, parameters, call) \
    ONE(name, 3, parameters, call) ONE(name, 4, parameters, call) ONE(name, 5, parameters, call) \
    ONE(name, 6, parameters, call) ONE(name, 7, parameters, call) ONE(name, 8, parameters, call) \
    ONE(name, 9, parameters, call)

EACH(nvJitLinkCreate, (Linker **out, uint32_t count, const char **options), create(out, count, options))
EACH(nvJitLinkDestroy, (Linker **linker), destroy(linker))
EACH(nvJitLinkAddData, (Linker *linker, int type, const void *data, size_t size, const char *name),
     add_data(linker, type, data, size, name))
EACH(nvJitLinkAddFile, (Linker *linker, int type, const char *path), add_file(linker, type, path))
EACH(nvJitLinkComplete, (Linker *linker), complete(linker))
EACH(nvJitLinkGetLinkedCubinSize, (Linker *linker, size_t *size), cubin_size(linker, size))
EACH(nvJitLinkGetLinkedCubin, (Linker *linker, void *to), cubin(linker, to))
EACH(nvJitLinkGetLinkedPtxSize, (Linker *linker, size_t *size), no_size(linker, size))
EACH(nvJitLinkGetLinkedPtx, (Linker *linker, void *to), linker == NULL || to == NULL ? INVALID_INPUT : no_output(linker))
EACH(nvJitLinkGetLinkedLTOIRSize, (Linker *linker, size_t *size), no_size(linker, size))
EACH(nvJitLinkGetLinkedLTOIR, (Linker *linker, void *to), linker == NULL || to == NULL ? INVALID_INPUT : no_output(linker))
EACH(nvJitLinkGetErrorLogSize, (Linker *linker, size_t *size), error_log_size(linker, size))
EACH(nvJitLinkGetErrorLog, (Linker *linker, char *to), error_log(linker, to))
EACH(nvJitLinkGetInfoLogSize, (Linker *linker, size_t *size), info_log_size(linker, size))
EACH(nvJitLinkGetInfoLog, (Linker *linker, char *to), info_log(linker, to))
EXPORT int nvJitLinkVersion(unsigned *major, unsigned *minor) { return version(major, minor); }
// cuda.core takes this symbol for a version that it can use.
EXPORT int __nvJitLinkVersion(unsigned *major, unsigned *minor) { return version(major, minor); }
