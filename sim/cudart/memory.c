// Memory: device, managed and pinned, pools, registration, the attributes of pointers, fills, external memory, and the
// descriptions of arrays' elements.
#include "runtime.h"

#include <string.h>

// cudaPointerAttributes.
typedef struct {
    int type, device;
    void *device_pointer, *host_pointer;
#if MAJOR > 12
    // -1 for memory that belongs to no part of the device, as all of it here.
    int domain;
    long reserved[7];
#endif
} Attributes;

// cudaMemoryType.
enum { UNREGISTERED, HOST, DEVICE, MANAGED };

// No bytes are a null pointer.
static int allocate(void **out, size_t size, int (*how)(uint64_t *, size_t)) {
    uint64_t address = 0;
    if (out == NULL) return INVALID_VALUE;
    int code = size == 0 ? SUCCESS : how(&address, size);
    if (code == SUCCESS) *out = POINTER(address);
    return code;
}

static int allocate_managed(void **out, size_t size, unsigned flags) {
    uint64_t address = 0;
    if (out == NULL || size == 0) return INVALID_VALUE;
    int code = driver.cuMemAllocManaged(&address, size, flags);
    if (code == SUCCESS) *out = POINTER(address);
    return code;
}

static int allocate_host(void **out, size_t size, unsigned flags) {
    void *pointer = NULL;
    if (out == NULL) return INVALID_VALUE;
    int code = size == 0 ? SUCCESS : driver.cuMemHostAlloc(&pointer, size, flags);
    if (code == SUCCESS) *out = pointer;
    return code;
}

static int allocate_rows(void **out, size_t *pitch, size_t width, size_t height) {
    uint64_t address = 0;
    if (out == NULL || pitch == NULL) return INVALID_VALUE;
    if (width == 0 || height == 0) {
        *out = NULL, *pitch = 0;
        return SUCCESS;
    }
    int code = driver.cuMemAllocPitch_v2(&address, pitch, width, height, 4);
    if (code == SUCCESS) *out = POINTER(address);
    return code;
}

static int allocate_box(Pitched *out, Extent extent) {
    size_t rows;
    if (out == NULL) return INVALID_VALUE;
    if (__builtin_mul_overflow(extent.height, extent.depth, &rows)) return OUT_OF_MEMORY;
    out->width = extent.width, out->height = extent.height;
    return allocate_rows(&out->pointer, &out->pitch, extent.width, rows);
}

CALL(cudaMalloc, (void **out, size_t size), allocate(out, size, driver.cuMemAlloc_v2))
CALL(cudaMallocManaged, (void **out, size_t size, unsigned flags), allocate_managed(out, size, flags))
CALL(cudaMallocHost, (void **out, size_t size), allocate_host(out, size, 0))
CALL(cudaHostAlloc, (void **out, size_t size, unsigned flags), allocate_host(out, size, flags))
CALL(cudaMallocPitch, (void **out, size_t *pitch, size_t width, size_t height), allocate_rows(out, pitch, width, height))
CALL(cudaMalloc3D, (Pitched * out, Extent extent), allocate_box(out, extent))
CALL(cudaFree, (void *pointer), pointer == NULL ? SUCCESS : driver.cuMemFree_v2(ADDRESS(pointer)))
CALL(cudaFreeHost, (void *pointer), pointer == NULL ? SUCCESS : driver.cuMemFreeHost(pointer))
CALL(cudaMemGetInfo, (size_t * free, size_t *total), driver.cuMemGetInfo_v2(free, total))

CALL(cudaHostRegister, (void *pointer, size_t size, unsigned flags), driver.cuMemHostRegister_v2(pointer, size, flags))
CALL(cudaHostUnregister, (void *pointer), driver.cuMemHostUnregister(pointer))
CALL(cudaHostGetFlags, (unsigned *out, void *pointer), driver.cuMemHostGetFlags(out, pointer))

static int device_pointer(void **out, void *pointer, unsigned flags) {
    uint64_t address;
    if (out == NULL) return INVALID_VALUE;
    int code = driver.cuMemHostGetDevicePointer_v2(&address, pointer, flags);
    if (code == SUCCESS) *out = POINTER(address);
    return code;
}

CALL(cudaHostGetDevicePointer, (void **out, void *pointer, unsigned flags), device_pointer(out, pointer, flags))

// Memory that the driver does not know is no error: it is unregistered and no device's, and the host's address is the
// given one, which nothing has checked.
static int attributes(Attributes *out, const void *pointer) {
    // CU_POINTER_ATTRIBUTE_MEMORY_TYPE, DEVICE_ORDINAL, DEVICE_POINTER, HOST_POINTER, IS_MANAGED.
    const int keys[] = {2, 9, 3, 4, 8};
    unsigned type = 0;
    unsigned char managed = 0;
    if (out == NULL) return INVALID_VALUE;
    memset(out, 0, sizeof *out);
    void *values[] = {&type, &out->device, &out->device_pointer, &out->host_pointer, &managed};
    int code = driver.cuPointerGetAttributes(5, keys, values, ADDRESS(pointer));
    out->type = type == 0 ? UNREGISTERED : managed ? MANAGED : type == 2 ? DEVICE : HOST;
    if (code == SUCCESS && out->type == UNREGISTERED) out->host_pointer = (void *)pointer;
#if MAJOR > 12
    out->domain = -1;
#endif
    return code;
}

CALL(cudaPointerGetAttributes, (Attributes * out, const void *pointer), attributes(out, pointer))

// The forms with a location are those of CUDA 13, and have a suffix in CUDA 12.
#if MAJOR == 12
#define LOCATED(name) name##_v2
#else
#define LOCATED(name) name
#endif
#define PREFETCH(name, to) \
    EXPORT int name(const void *pointer, size_t size, Location location, unsigned flags, void *stream) { \
        int code = runtime_enter(); \
        if (code == SUCCESS) \
            code = driver.cuMemPrefetchAsync_v2(ADDRESS(pointer), size, location, flags, stream == NULL ? to : stream); \
        return runtime_done(code); \
    }
#if MAJOR == 12
// cudaMemLocation of a device's number, or of cudaCpuDeviceId, which is -1.
static Location location_of(int device) {
    return (Location){device == -1 ? 2 : 1, device};
}

ON_STREAM(cudaMemPrefetchAsync, (const void *pointer, size_t size, int device, void *stream),
          driver.cuMemPrefetchAsync_v2(ADDRESS(pointer), size, location_of(device), 0, stream))
CALL(cudaMemAdvise, (const void *pointer, size_t size, int advice, int device),
     driver.cuMemAdvise_v2(ADDRESS(pointer), size, advice, location_of(device)))
PREFETCH(cudaMemPrefetchAsync_v2, NULL)
PREFETCH(cudaMemPrefetchAsync_v2_ptsz, PER_THREAD)
#else
PREFETCH(cudaMemPrefetchAsync, NULL)
PREFETCH(cudaMemPrefetchAsync_ptsz, PER_THREAD)
#endif
CALL(LOCATED(cudaMemAdvise), (const void *pointer, size_t size, int advice, Location location),
     driver.cuMemAdvise_v2(ADDRESS(pointer), size, advice, location))

CALL(cudaMemRangeGetAttribute, (void *out, size_t size, int attribute, const void *pointer, size_t len),
     driver.cuMemRangeGetAttribute(out, size, attribute, ADDRESS(pointer), len))
CALL(cudaMemRangeGetAttributes,
     (void **outs, size_t *sizes, int *attributes, size_t count, const void *pointer, size_t len),
     driver.cuMemRangeGetAttributes(outs, sizes, attributes, count, ADDRESS(pointer), len))

// Pools. Their structures are the driver's.
static int allocate_async(void **out, size_t size, void *pool, void *stream) {
    uint64_t address = 0;
    int code = SUCCESS;
    if (out == NULL) return INVALID_VALUE;
    if (size > 0 && pool == NULL) code = driver.cuMemAllocAsync(&address, size, stream);
    if (size > 0 && pool != NULL) code = driver.cuMemAllocFromPoolAsync(&address, size, pool, stream);
    if (code == SUCCESS) *out = POINTER(address);
    return code;
}

ON_STREAM(cudaMallocAsync, (void **out, size_t size, void *stream), allocate_async(out, size, NULL, stream))
ON_STREAM(cudaMallocFromPoolAsync, (void **out, size_t size, void *pool, void *stream),
          pool == NULL ? INVALID_VALUE : allocate_async(out, size, pool, stream))
ON_STREAM(cudaFreeAsync, (void *pointer, void *stream),
          pointer == NULL ? SUCCESS : driver.cuMemFreeAsync(ADDRESS(pointer), stream))
STARTED(cudaMemPoolCreate, (void **out, const void *properties), driver.cuMemPoolCreate(out, properties))
STARTED(cudaMemPoolDestroy, (void *pool), driver.cuMemPoolDestroy(pool))
STARTED(cudaMemPoolTrimTo, (void *pool, size_t keep), driver.cuMemPoolTrimTo(pool, keep))
STARTED(cudaMemPoolGetAttribute, (void *pool, int key, void *out), driver.cuMemPoolGetAttribute(pool, key, out))
STARTED(cudaMemPoolSetAttribute, (void *pool, int key, void *value), driver.cuMemPoolSetAttribute(pool, key, value))
STARTED(cudaMemPoolSetAccess, (void *pool, const void *list, size_t count), driver.cuMemPoolSetAccess(pool, list, count))
STARTED(cudaMemPoolGetAccess, (int *out, void *pool, Location *location), driver.cuMemPoolGetAccess(out, pool, location))
#if MAJOR > 12
STARTED(cudaMemGetDefaultMemPool, (void **out, Location *location, int type),
        driver.cuMemGetDefaultMemPool(out, location, type))
STARTED(cudaMemGetMemPool, (void **out, Location *location, int type), driver.cuMemGetMemPool(out, location, type))
STARTED(cudaMemSetMemPool, (Location * location, int type, void *pool), driver.cuMemSetMemPool(location, type, pool))
#endif

// Fills. Those of rows and boxes are fills of rows.
static int fill(void *to, int value, size_t size, void *stream, int wait) {
    unsigned char byte = (unsigned char)value;
    if (!wait) return driver.cuMemsetD8Async(ADDRESS(to), byte, size, stream);
    if (stream == NULL) return driver.cuMemsetD8_v2(ADDRESS(to), byte, size);
    int code = driver.cuMemsetD8Async(ADDRESS(to), byte, size, stream);
    return code == SUCCESS ? driver.cuStreamSynchronize(stream) : code;
}

static int fill_rows(void *to, size_t pitch, int value, size_t width, size_t height, void *stream, int wait) {
    unsigned char byte = (unsigned char)value;
    if (!wait) return driver.cuMemsetD2D8Async(ADDRESS(to), pitch, byte, width, height, stream);
    if (stream == NULL) return driver.cuMemsetD2D8_v2(ADDRESS(to), pitch, byte, width, height);
    int code = driver.cuMemsetD2D8Async(ADDRESS(to), pitch, byte, width, height, stream);
    return code == SUCCESS ? driver.cuStreamSynchronize(stream) : code;
}

static int fill_box(Pitched to, int value, Extent extent, void *stream, int wait) {
    int code = SUCCESS;
    size_t slice, last;
    if (extent.width == 0 || extent.height == 0 || extent.depth == 0) return SUCCESS;
    if (extent.height > to.height && extent.depth > 1) return INVALID_VALUE;
    if (__builtin_mul_overflow(to.pitch, to.height, &slice)) return INVALID_VALUE;
    if (__builtin_mul_overflow(slice, extent.depth - 1, &last)) return INVALID_VALUE;
    for (size_t z = 0; z < extent.depth && code == SUCCESS; z++)
        code = fill_rows((char *)to.pointer + z * slice, to.pitch, value, extent.width, extent.height, stream, wait);
    return code;
}

ON_DEFAULT(cudaMemset, (void *to, int value, size_t size), fill(to, value, size, own, 1))
ON_STREAM(cudaMemsetAsync, (void *to, int value, size_t size, void *stream), fill(to, value, size, stream, 0))
ON_DEFAULT(cudaMemset2D, (void *to, size_t pitch, int value, size_t width, size_t height),
           fill_rows(to, pitch, value, width, height, own, 1))
ON_STREAM(cudaMemset2DAsync, (void *to, size_t pitch, int value, size_t width, size_t height, void *stream),
          fill_rows(to, pitch, value, width, height, stream, 0))
ON_DEFAULT(cudaMemset3D, (Pitched to, int value, Extent extent), fill_box(to, value, extent, own, 1))
ON_STREAM(cudaMemset3DAsync, (Pitched to, int value, Extent extent, void *stream), fill_box(to, value, extent, stream, 0))

// The runtime's structures begin as the driver's do.
static int import(void **out, const ExternalHandle *handle) {
    ExternalHandle whole = {0};
    if (out == NULL || handle == NULL) return INVALID_VALUE;
    whole.type = handle->type, whole.size = handle->size, whole.flags = handle->flags;
    memcpy(whole.handle, handle->handle, sizeof whole.handle);
    return driver.cuImportExternalMemory(out, &whole);
}

static int map(void **out, void *memory, const ExternalBuffer *buffer) {
    ExternalBuffer whole = {0};
    uint64_t address;
    if (out == NULL || buffer == NULL) return INVALID_VALUE;
    whole.offset = buffer->offset, whole.size = buffer->size, whole.flags = buffer->flags;
    int code = driver.cuExternalMemoryGetMappedBuffer(&address, memory, &whole);
    if (code == SUCCESS) *out = POINTER(address);
    return code;
}

CALL(cudaImportExternalMemory, (void **out, const ExternalHandle *handle), import(out, handle))
CALL(cudaExternalMemoryGetMappedBuffer, (void **out, void *memory, const ExternalBuffer *buffer),
     map(out, memory, buffer))
CALL(cudaDestroyExternalMemory, (void *memory), driver.cuDestroyExternalMemory(memory))

static int open_shared(void **out, IpcHandle handle, unsigned flags) {
    uint64_t address;
    if (out == NULL) return INVALID_VALUE;
    int code = driver.cuIpcOpenMemHandle_v2(&address, handle, flags);
    if (code == SUCCESS) *out = POINTER(address);
    return code;
}

CALL(cudaIpcGetMemHandle, (IpcHandle * out, void *pointer), driver.cuIpcGetMemHandle(out, ADDRESS(pointer)))
CALL(cudaIpcOpenMemHandle, (void **out, IpcHandle handle, unsigned flags), open_shared(out, handle, flags))
CALL(cudaIpcCloseMemHandle, (void *pointer), driver.cuIpcCloseMemHandle(ADDRESS(pointer)))
CALL(cudaIpcGetEventHandle, (IpcHandle * out, void *event), driver.cuIpcGetEventHandle(out, event))
CALL(cudaIpcOpenEventHandle, (void **out, IpcHandle handle), driver.cuIpcOpenEventHandle(out, handle))

// cudaChannelFormatDesc: the bits of four members, and their format.
typedef struct {
    int x, y, z, w, format;
} Channel;

// A value, which needs no driver and cannot fail: the header's templates call it.
EXPORT Channel cudaCreateChannelDesc(int x, int y, int z, int w, int format) {
    return (Channel){x, y, z, w, format};
}
