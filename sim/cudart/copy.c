// Copies of bytes, rows and boxes. Those of arrays are not simulated.
#include "runtime.h"

#include <string.h>

// CUmemorytype.
enum { HOST = 1, DEVICE = 2, UNIFIED = 4 };

int runtime_copy(void *to, const void *from, size_t size, int kind, void *stream, int wait) {
    uint64_t target = ADDRESS(to), source = ADDRESS(from);
    int code, now = wait && stream == NULL;
    switch (kind) {
    case HOST_TO_HOST:
    case ANY_TO_ANY:
        code = now ? driver.cuMemcpy(target, source, size) : driver.cuMemcpyAsync(target, source, size, stream);
        break;
    case HOST_TO_DEVICE:
        code = now ? driver.cuMemcpyHtoD_v2(target, from, size)
                   : driver.cuMemcpyHtoDAsync_v2(target, from, size, stream);
        break;
    case DEVICE_TO_HOST:
        code = now ? driver.cuMemcpyDtoH_v2(to, source, size) : driver.cuMemcpyDtoHAsync_v2(to, source, size, stream);
        break;
    case DEVICE_TO_DEVICE:
        code = now ? driver.cuMemcpyDtoD_v2(target, source, size)
                   : driver.cuMemcpyDtoDAsync_v2(target, source, size, stream);
        break;
    default: return INVALID_DIRECTION;
    }
    return code == SUCCESS && wait && !now ? driver.cuStreamSynchronize(stream) : code;
}

ON_DEFAULT(cudaMemcpy, (void *to, const void *from, size_t size, int kind), runtime_copy(to, from, size, kind, own, 1))
ON_STREAM(cudaMemcpyAsync, (void *to, const void *from, size_t size, int kind, void *stream),
          runtime_copy(to, from, size, kind, stream, 0))

// All devices are in one memory.
static int copy_peer(void *to, int device, const void *from, int source, size_t size, void *stream, int wait) {
    int code = runtime_check_device(device);
    if (code == SUCCESS) code = runtime_check_device(source);
    return code == SUCCESS ? runtime_copy(to, from, size, DEVICE_TO_DEVICE, stream, wait) : code;
}

CALL(cudaMemcpyPeer, (void *to, int device, const void *from, int source, size_t size),
     copy_peer(to, device, from, source, size, NULL, 1))
CALL(cudaMemcpyPeerAsync, (void *to, int device, const void *from, int source, size_t size, void *stream),
     copy_peer(to, device, from, source, size, stream, 0))

static Side side(int memory, const void *pointer, size_t pitch, size_t height, Position position) {
    Side side = {.x = position.x, .y = position.y, .z = position.z, .memory = memory, .pitch = pitch, .height = height};
    if (memory == HOST) side.host = pointer;
    else side.device = ADDRESS(pointer);
    return side;
}

int runtime_box(Copy3D *out, const Box *box) {
    static const int from[] = {UNIFIED, HOST, DEVICE, DEVICE, UNIFIED}, to[] = {UNIFIED, DEVICE, HOST, DEVICE, UNIFIED};
    if (box == NULL) return INVALID_VALUE;
    if (box->kind < HOST_TO_HOST || box->kind > ANY_TO_ANY) return INVALID_DIRECTION;
    if (box->source_array != NULL || box->target_array != NULL) return NOT_SUPPORTED;
    const Pitched *a = &box->source, *b = &box->target;
    *out = (Copy3D){.source = side(from[box->kind], a->pointer, a->pitch, a->height, box->source_position),
                    .target = side(to[box->kind], b->pointer, b->pitch, b->height, box->target_position),
                    .width = box->extent.width,
                    .height = box->extent.height,
                    .depth = box->extent.depth};
    return SUCCESS;
}

static int copy_box(const Box *box, void *stream, int wait) {
    Copy3D copy;
    int code = runtime_box(&copy, box);
    if (code != SUCCESS) return code;
    if (wait && stream == NULL) return driver.cuMemcpy3D_v2(&copy);
    code = driver.cuMemcpy3DAsync_v2(&copy, stream);
    return code == SUCCESS && wait ? driver.cuStreamSynchronize(stream) : code;
}

static int copy_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind,
                     void *stream, int wait) {
    if (width > to_pitch || width > from_pitch) return INVALID_PITCH;
    Box box = {.source = {(void *)from, from_pitch, width, height},
               .target = {to, to_pitch, width, height},
               .extent = {width, height, 1},
               .kind = kind};
    return copy_box(&box, stream, wait);
}

ON_DEFAULT(cudaMemcpy2D,
           (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind),
           copy_rows(to, to_pitch, from, from_pitch, width, height, kind, own, 1))
ON_STREAM(cudaMemcpy2DAsync,
          (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind,
           void *stream),
          copy_rows(to, to_pitch, from, from_pitch, width, height, kind, stream, 0))
ON_DEFAULT(cudaMemcpy3D, (const Box *box), copy_box(box, own, 1))
ON_STREAM(cudaMemcpy3DAsync, (const Box *box, void *stream), copy_box(box, stream, 0))
