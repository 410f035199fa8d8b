// Devices: properties and attributes, limits, peers, pools.
#include <stddef.h>
#include <string.h>

#include "properties.h"
#include "runtime.h"

static int checked(int device, int code) {
    return runtime_check_device(device) != SUCCESS ? INVALID_DEVICE : code;
}

static int fill(Properties *out, int device) {
    memset(out, 0, sizeof *out);
    int code = driver.cuDeviceGetName(out->name, sizeof out->name, device);
    if (code == SUCCESS) code = driver.cuDeviceGetUuid_v2(out->uuid, device);
    if (code == SUCCESS) code = driver.cuDeviceTotalMem_v2(&out->totalGlobalMem, device);
    int value;
#define GET(attribute, member) \
    if (code == SUCCESS) code = driver.cuDeviceGetAttribute(&value, attribute, device); \
    if (code == SUCCESS) out->member = value;
#if MAJOR == 12
    PROPERTIES(GET, GET, GET, )
#else
    PROPERTIES(GET, NOTHING, GET, )
    NUMA(GET)
#endif
    return code;
}

static int properties(void *out, int device, size_t size) {
    Properties all;
    if (out == NULL) return INVALID_VALUE;
    int code = checked(device, SUCCESS);
    if (code == SUCCESS) code = fill(&all, device);
    if (code == SUCCESS) memcpy(out, &all, size);
    return code;
}

#if MAJOR == 12
// Without a suffix it has the structure of CUDA 11, which ends with reservedSharedMemPerBlock.
STARTED(cudaGetDeviceProperties, (void *out, int device),
        properties(out, device, offsetof(Properties, hostRegisterSupported)))
STARTED(cudaGetDeviceProperties_v2, (void *out, int device), properties(out, device, sizeof(Properties)))
#else
STARTED(cudaGetDeviceProperties, (void *out, int device), properties(out, device, sizeof(Properties)))
#endif

STARTED(cudaDeviceGetAttribute, (int *out, int attribute, int device),
        checked(device, driver.cuDeviceGetAttribute(out, attribute, device)))

// The first device, since all are the same.
STARTED(cudaChooseDevice, (int *out, const void *wanted),
        out == NULL || wanted == NULL ? INVALID_VALUE : (*out = 0, SUCCESS))

STARTED(cudaDeviceGetPCIBusId, (char *out, int len, int device),
        checked(device, driver.cuDeviceGetPCIBusId(out, len, device)))
STARTED(cudaDeviceGetByPCIBusId, (int *out, const char *id), driver.cuDeviceGetByPCIBusId(out, id))

STARTED(cudaDeviceCanAccessPeer, (int *out, int device, int peer),
        driver.cuDeviceCanAccessPeer(out, device, peer))
STARTED(cudaDeviceGetP2PAttribute, (int *out, int attribute, int device, int peer),
        driver.cuDeviceGetP2PAttribute(out, attribute, device, peer))
CALL(cudaDeviceEnablePeerAccess, (int peer, unsigned flags),
     flags != 0 ? INVALID_VALUE : checked(peer, PEER_UNSUPPORTED))
CALL(cudaDeviceDisablePeerAccess, (int peer), checked(peer, PEER_NOT_ENABLED))

CALL(cudaDeviceGetStreamPriorityRange, (int *least, int *greatest),
     driver.cuCtxGetStreamPriorityRange(least, greatest))
CALL(cudaDeviceGetLimit, (size_t *out, int limit), driver.cuCtxGetLimit(out, limit))
CALL(cudaDeviceSetLimit, (int limit, size_t value), driver.cuCtxSetLimit(limit, value))
CALL(cudaDeviceGetCacheConfig, (int *out), driver.cuCtxGetCacheConfig(out))
CALL(cudaDeviceSetCacheConfig, (int config), driver.cuCtxSetCacheConfig(config))
CALL(cudaDeviceGetSharedMemConfig, (int *out), driver.cuCtxGetSharedMemConfig(out))
CALL(cudaDeviceSetSharedMemConfig, (int config), driver.cuCtxSetSharedMemConfig(config))

STARTED(cudaDeviceGetDefaultMemPool, (void **out, int device), driver.cuDeviceGetDefaultMemPool(out, device))
STARTED(cudaDeviceGetMemPool, (void **out, int device), driver.cuDeviceGetMemPool(out, device))
STARTED(cudaDeviceSetMemPool, (int device, void *pool), driver.cuDeviceSetMemPool(device, pool))
