// Libraries that a program loads itself, the driver's entry points, profiling.
#include "runtime.h"

CALL(cudaLibraryLoadData,
     (void **out, const void *code_image, int *jit_keys, void **jit_values, unsigned jit_count, int *keys, void **values,
      unsigned count),
     driver.cuLibraryLoadData(out, code_image, jit_keys, jit_values, jit_count, keys, values, count))
CALL(cudaLibraryLoadFromFile,
     (void **out, const char *path, int *jit_keys, void **jit_values, unsigned jit_count, int *keys, void **values,
      unsigned count),
     driver.cuLibraryLoadFromFile(out, path, jit_keys, jit_values, jit_count, keys, values, count))
CALL(cudaLibraryUnload, (void *library), driver.cuLibraryUnload(library))
CALL(cudaLibraryGetKernel, (void **out, void *library, const char *name), driver.cuLibraryGetKernel(out, library, name))
CALL(cudaLibraryGetKernelCount, (unsigned *out, void *library), driver.cuLibraryGetKernelCount(out, library))
CALL(cudaLibraryEnumerateKernels, (void **out, unsigned count, void *library),
     driver.cuLibraryEnumerateKernels(out, count, library))
CALL(cudaKernelSetAttributeForDevice, (void *kernel, int key, int value, int device),
     driver.cuKernelSetAttribute(key, value, kernel, device))

static int global(void **out, size_t *size, void *library, const char *name, int managed) {
    uint64_t address = 0;
    int code = managed ? driver.cuLibraryGetManaged(&address, size, library, name)
                       : driver.cuLibraryGetGlobal(&address, size, library, name);
    if (code == SUCCESS && out != NULL) *out = POINTER(address);
    return code;
}

CALL(cudaLibraryGetGlobal, (void **out, size_t *size, void *library, const char *name), global(out, size, library, name, 0))
CALL(cudaLibraryGetManaged, (void **out, size_t *size, void *library, const char *name),
     global(out, size, library, name, 1))

// CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM.
enum { OWN_STREAM = 2 };

// A name that the driver does not know is no error: the status says so, and the address is null.
static int entry_point(const char *name, void **out, int version, unsigned long long flags, int *status) {
    int found = 0;
    if (name == NULL || out == NULL) return INVALID_VALUE;
    int code = driver.cuGetProcAddress_v2(name, out, version, flags, &found);
    if (status != NULL) *status = found;
    return code;
}

#define ENTRY_POINT(suffix, choose) \
    STARTED(cudaGetDriverEntryPoint##suffix, (const char *name, void **out, unsigned long long flags, int *status), \
            entry_point(name, out, MAJOR * 1000 + (MAJOR == 12 ? 90 : 0), choose, status)) \
    STARTED(cudaGetDriverEntryPointByVersion##suffix, \
            (const char *name, void **out, unsigned version, unsigned long long flags, int *status), \
            entry_point(name, out, (int)version, choose, status))
ENTRY_POINT(, flags)
ENTRY_POINT(_ptsz, flags == 0 ? OWN_STREAM : flags)

CALL(cudaProfilerStart, (void), driver.cuProfilerStart())
CALL(cudaProfilerStop, (void), driver.cuProfilerStop())
