// The functions of the CUDA driver that the runtime uses: result, name, parameters. Handles are pointers, addresses on the
// device are integers.
#ifndef DRIVER_H
#define DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    unsigned x, y, z;
} Dim3;

// CUmemLocation and cudaMemLocation.
typedef struct {
    int type, id;
} Location;

// One side of a CUDA_MEMCPY3D.
typedef struct {
    size_t x, y, z, level;
    unsigned memory;
    const void *host;
    uint64_t device;
    void *array;
    void *reserved;
    size_t pitch, height;
} Side;

// CUDA_MEMCPY3D.
typedef struct {
    Side source, target;
    size_t width, height, depth;
} Copy3D;

// CUDA_EXTERNAL_MEMORY_HANDLE_DESC; the runtime's structure of CUDA 12 ends with the flags.
typedef struct {
    unsigned type;
    uint64_t handle[2];
    unsigned long long size;
    unsigned flags;
    unsigned reserved[16];
} ExternalHandle;

// CUDA_EXTERNAL_MEMORY_BUFFER_DESC; likewise.
typedef struct {
    unsigned long long offset, size;
    unsigned flags;
    unsigned reserved[16];
} ExternalBuffer;

// CUipcMemHandle and cudaIpcMemHandle_t, passed by value.
typedef struct {
    char bytes[64];
} IpcHandle;

// CUlaunchConfig.
typedef struct {
    Dim3 grid, block;
    unsigned shared;
    void *stream;
    void *attributes;
    unsigned count;
} LaunchConfig;

typedef void (*HostFunction)(void *);
typedef void (*StreamCallback)(void *, int, void *);

// clang-format off
#define DRIVER(X) \
    X(cuInit, (unsigned)) \
    X(cuDriverGetVersion, (int *)) \
    X(cuGetProcAddress_v2, (const char *, void **, int, uint64_t, int *)) \
    X(cuDeviceGetCount, (int *)) \
    X(cuDeviceGetName, (char *, int, int)) \
    X(cuDeviceGetUuid_v2, (void *, int)) \
    X(cuDeviceTotalMem_v2, (size_t *, int)) \
    X(cuDeviceGetAttribute, (int *, int, int)) \
    X(cuDeviceGetPCIBusId, (char *, int, int)) \
    X(cuDeviceGetByPCIBusId, (int *, const char *)) \
    X(cuDeviceCanAccessPeer, (int *, int, int)) \
    X(cuDeviceGetP2PAttribute, (int *, int, int, int)) \
    X(cuDeviceGetDefaultMemPool, (void **, int)) \
    X(cuDeviceGetMemPool, (void **, int)) \
    X(cuDeviceSetMemPool, (int, void *)) \
    X(cuDevicePrimaryCtxRetain, (void **, int)) \
    X(cuDevicePrimaryCtxReset_v2, (int)) \
    X(cuDevicePrimaryCtxRelease_v2, (int)) \
    X(cuDevicePrimaryCtxSetFlags_v2, (int, unsigned)) \
    X(cuCtxGetCurrent, (void **)) \
    X(cuCtxSetCurrent, (void *)) \
    X(cuCtxGetDevice, (int *)) \
    X(cuCtxGetFlags, (unsigned *)) \
    X(cuCtxSynchronize, (void)) \
    X(cuCtxGetLimit, (size_t *, int)) \
    X(cuCtxSetLimit, (int, size_t)) \
    X(cuCtxGetCacheConfig, (int *)) \
    X(cuCtxSetCacheConfig, (int)) \
    X(cuCtxGetSharedMemConfig, (int *)) \
    X(cuCtxSetSharedMemConfig, (int)) \
    X(cuCtxGetStreamPriorityRange, (int *, int *)) \
    X(cuStreamCreateWithPriority, (void **, unsigned, int)) \
    X(cuStreamDestroy_v2, (void *)) \
    X(cuStreamSynchronize, (void *)) \
    X(cuStreamQuery, (void *)) \
    X(cuStreamWaitEvent, (void *, void *, unsigned)) \
    X(cuStreamAddCallback, (void *, StreamCallback, void *, unsigned)) \
    X(cuLaunchHostFunc, (void *, HostFunction, void *)) \
    X(cuStreamGetFlags, (void *, unsigned *)) \
    X(cuStreamGetCtx, (void *, void **)) \
    X(cuStreamGetPriority, (void *, int *)) \
    X(cuStreamGetId, (void *, unsigned long long *)) \
    X(cuStreamGetDevice, (void *, int *)) \
    X(cuStreamAttachMemAsync, (void *, uint64_t, size_t, unsigned)) \
    X(cuStreamIsCapturing, (void *, int *)) \
    X(cuStreamBeginCapture_v2, (void *, int)) \
    X(cuStreamEndCapture, (void *, void **)) \
    X(cuStreamGetCaptureInfo_v3, (void *, int *, unsigned long long *, void **, const void **, const void **, size_t *)) \
    X(cuThreadExchangeStreamCaptureMode, (int *)) \
    X(cuEventCreate, (void **, unsigned)) \
    X(cuEventRecordWithFlags, (void *, void *, unsigned)) \
    X(cuEventQuery, (void *)) \
    X(cuEventSynchronize, (void *)) \
    X(cuEventElapsedTime, (float *, void *, void *)) \
    X(cuEventDestroy_v2, (void *)) \
    X(cuMemGetInfo_v2, (size_t *, size_t *)) \
    X(cuMemAlloc_v2, (uint64_t *, size_t)) \
    X(cuMemAllocPitch_v2, (uint64_t *, size_t *, size_t, size_t, unsigned)) \
    X(cuMemAllocManaged, (uint64_t *, size_t, unsigned)) \
    X(cuMemFree_v2, (uint64_t)) \
    X(cuMemHostAlloc, (void **, size_t, unsigned)) \
    X(cuMemFreeHost, (void *)) \
    X(cuMemHostRegister_v2, (void *, size_t, unsigned)) \
    X(cuMemHostUnregister, (void *)) \
    X(cuMemHostGetDevicePointer_v2, (uint64_t *, void *, unsigned)) \
    X(cuMemHostGetFlags, (unsigned *, void *)) \
    X(cuPointerGetAttributes, (unsigned, const int *, void **, uint64_t)) \
    X(cuMemPrefetchAsync_v2, (uint64_t, size_t, Location, unsigned, void *)) \
    X(cuMemAdvise_v2, (uint64_t, size_t, int, Location)) \
    X(cuMemRangeGetAttribute, (void *, size_t, int, uint64_t, size_t)) \
    X(cuMemRangeGetAttributes, (void **, size_t *, int *, size_t, uint64_t, size_t)) \
    X(cuMemAllocAsync, (uint64_t *, size_t, void *)) \
    X(cuMemAllocFromPoolAsync, (uint64_t *, size_t, void *, void *)) \
    X(cuMemFreeAsync, (uint64_t, void *)) \
    X(cuMemPoolCreate, (void **, const void *)) \
    X(cuMemPoolDestroy, (void *)) \
    X(cuMemPoolTrimTo, (void *, size_t)) \
    X(cuMemPoolGetAttribute, (void *, int, void *)) \
    X(cuMemPoolSetAttribute, (void *, int, void *)) \
    X(cuMemPoolSetAccess, (void *, const void *, size_t)) \
    X(cuMemPoolGetAccess, (int *, void *, const Location *)) \
    X(cuMemGetDefaultMemPool, (void **, const Location *, int)) \
    X(cuMemGetMemPool, (void **, const Location *, int)) \
    X(cuMemSetMemPool, (const Location *, int, void *)) \
    X(cuMemcpy, (uint64_t, uint64_t, size_t)) \
    X(cuMemcpyHtoD_v2, (uint64_t, const void *, size_t)) \
    X(cuMemcpyDtoH_v2, (void *, uint64_t, size_t)) \
    X(cuMemcpyDtoD_v2, (uint64_t, uint64_t, size_t)) \
    X(cuMemcpyAsync, (uint64_t, uint64_t, size_t, void *)) \
    X(cuMemcpyHtoDAsync_v2, (uint64_t, const void *, size_t, void *)) \
    X(cuMemcpyDtoHAsync_v2, (void *, uint64_t, size_t, void *)) \
    X(cuMemcpyDtoDAsync_v2, (uint64_t, uint64_t, size_t, void *)) \
    X(cuMemcpy3D_v2, (const Copy3D *)) \
    X(cuMemcpy3DAsync_v2, (const Copy3D *, void *)) \
    X(cuMemsetD8_v2, (uint64_t, unsigned char, size_t)) \
    X(cuMemsetD8Async, (uint64_t, unsigned char, size_t, void *)) \
    X(cuMemsetD2D8_v2, (uint64_t, size_t, unsigned char, size_t, size_t)) \
    X(cuMemsetD2D8Async, (uint64_t, size_t, unsigned char, size_t, size_t, void *)) \
    X(cuIpcGetMemHandle, (IpcHandle *, uint64_t)) \
    X(cuIpcOpenMemHandle_v2, (uint64_t *, IpcHandle, unsigned)) \
    X(cuIpcCloseMemHandle, (uint64_t)) \
    X(cuIpcGetEventHandle, (IpcHandle *, void *)) \
    X(cuIpcOpenEventHandle, (void **, IpcHandle)) \
    X(cuImportExternalMemory, (void **, const ExternalHandle *)) \
    X(cuExternalMemoryGetMappedBuffer, (uint64_t *, void *, const ExternalBuffer *)) \
    X(cuDestroyExternalMemory, (void *)) \
    X(cuLibraryLoadData, (void **, const void *, int *, void **, unsigned, int *, void **, unsigned)) \
    X(cuLibraryLoadFromFile, (void **, const char *, int *, void **, unsigned, int *, void **, unsigned)) \
    X(cuLibraryUnload, (void *)) \
    X(cuLibraryGetKernel, (void **, void *, const char *)) \
    X(cuLibraryGetKernelCount, (unsigned *, void *)) \
    X(cuLibraryEnumerateKernels, (void **, unsigned, void *)) \
    X(cuLibraryGetGlobal, (uint64_t *, size_t *, void *, const char *)) \
    X(cuLibraryGetManaged, (uint64_t *, size_t *, void *, const char *)) \
    X(cuKernelGetFunction, (void **, void *)) \
    X(cuKernelGetName, (const char **, void *)) \
    X(cuKernelGetParamInfo, (void *, size_t, size_t *, size_t *)) \
    X(cuKernelGetParamCount, (void *, size_t *)) \
    X(cuKernelSetAttribute, (int, int, void *, int)) \
    X(cuFuncGetAttribute, (int *, int, void *)) \
    X(cuFuncGetName, (const char **, void *)) \
    X(cuFuncSetAttribute, (void *, int, int)) \
    X(cuFuncSetCacheConfig, (void *, int)) \
    X(cuFuncSetSharedMemConfig, (void *, int)) \
    X(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **)) \
    X(cuLaunchCooperativeKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **)) \
    X(cuLaunchKernelEx, (const LaunchConfig *, void *, void **, void **)) \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, (int *, void *, int, size_t, unsigned)) \
    X(cuOccupancyAvailableDynamicSMemPerBlock, (size_t *, void *, int, int)) \
    X(cuGraphCreate, (void **, unsigned)) \
    X(cuGraphDestroy, (void *)) \
    X(cuGraphClone, (void **, void *)) \
    X(cuGraphNodeFindInClone, (void **, void *, void *)) \
    X(cuGraphGetNodes, (void *, void **, size_t *)) \
    X(cuGraphGetRootNodes, (void *, void **, size_t *)) \
    X(cuGraphNodeGetType, (void *, int *)) \
    X(cuGraphDestroyNode, (void *)) \
    X(cuGraphAddKernelNode, (void **, void *, void *const *, size_t, const void *)) \
    X(cuGraphAddMemsetNode, (void **, void *, void *const *, size_t, const void *, void *)) \
    X(cuGraphAddHostNode, (void **, void *, void *const *, size_t, const void *)) \
    X(cuGraphAddChildGraphNode, (void **, void *, void *const *, size_t, void *)) \
    X(cuGraphAddEmptyNode, (void **, void *, void *const *, size_t)) \
    X(cuGraphAddEventRecordNode, (void **, void *, void *const *, size_t, void *)) \
    X(cuGraphAddEventWaitNode, (void **, void *, void *const *, size_t, void *)) \
    X(cuGraphKernelNodeSetParams, (void *, const void *)) \
    X(cuGraphMemsetNodeSetParams, (void *, const void *)) \
    X(cuGraphExecKernelNodeSetParams, (void *, void *, const void *)) \
    X(cuGraphExecMemsetNodeSetParams, (void *, void *, const void *, void *)) \
    X(cuGraphAddMemcpyNode, (void **, void *, void *const *, size_t, const Copy3D *, void *)) \
    X(cuGraphMemcpyNodeSetParams, (void *, const Copy3D *)) \
    X(cuGraphExecMemcpyNodeSetParams, (void *, void *, const Copy3D *, void *)) \
    X(cuGraphKernelNodeGetParams, (void *, void *)) \
    X(cuGraphMemsetNodeGetParams, (void *, void *)) \
    X(cuGraphHostNodeGetParams, (void *, void *)) \
    X(cuGraphHostNodeSetParams, (void *, const void *)) \
    X(cuGraphExecHostNodeSetParams, (void *, void *, const void *)) \
    X(cuGraphChildGraphNodeGetGraph, (void *, void **)) \
    X(cuGraphExecChildGraphNodeSetParams, (void *, void *, void *)) \
    X(cuGraphEventRecordNodeGetEvent, (void *, void **)) \
    X(cuGraphEventRecordNodeSetEvent, (void *, void *)) \
    X(cuGraphEventWaitNodeGetEvent, (void *, void **)) \
    X(cuGraphEventWaitNodeSetEvent, (void *, void *)) \
    X(cuGraphExecEventRecordNodeSetEvent, (void *, void *, void *)) \
    X(cuGraphExecEventWaitNodeSetEvent, (void *, void *, void *)) \
    X(cuGraphAddNode_v2, (void **, void *, void *const *, const void *, size_t, const void *)) \
    X(cuGraphNodeSetParams, (void *, const void *)) \
    X(cuGraphExecNodeSetParams, (void *, void *, const void *)) \
    X(cuUserObjectCreate, (void **, void *, HostFunction, unsigned, unsigned)) \
    X(cuUserObjectRetain, (void *, unsigned)) \
    X(cuUserObjectRelease, (void *, unsigned)) \
    X(cuGraphRetainUserObject, (void *, void *, unsigned, unsigned)) \
    X(cuGraphReleaseUserObject, (void *, void *, unsigned)) \
    X(cuGraphAddDependencies_v2, (void *, void *const *, void *const *, const void *, size_t)) \
    X(cuGraphRemoveDependencies_v2, (void *, void *const *, void *const *, const void *, size_t)) \
    X(cuGraphGetEdges_v2, (void *, void **, void **, void *, size_t *)) \
    X(cuGraphNodeGetDependencies_v2, (void *, void **, void *, size_t *)) \
    X(cuGraphNodeGetDependentNodes_v2, (void *, void **, void *, size_t *)) \
    X(cuStreamUpdateCaptureDependencies_v2, (void *, void **, const void *, size_t, unsigned)) \
    X(cuStreamBeginCaptureToGraph, (void *, void *, void *const *, const void *, size_t, int)) \
    X(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long)) \
    X(cuGraphInstantiateWithParams, (void **, void *, void *)) \
    X(cuGraphInstantiateWithParams_ptsz, (void **, void *, void *)) \
    X(cuGraphExecDestroy, (void *)) \
    X(cuGraphExecGetFlags, (void *, unsigned long long *)) \
    X(cuGraphExecUpdate_v2, (void *, void *, void *)) \
    X(cuGraphNodeGetEnabled, (void *, void *, unsigned *)) \
    X(cuGraphNodeSetEnabled, (void *, void *, unsigned)) \
    X(cuGraphLaunch, (void *, void *)) \
    X(cuGraphUpload, (void *, void *)) \
    X(cuProfilerStart, (void)) \
    X(cuProfilerStop, (void))
// clang-format on

typedef struct {
#define FIELD(name, parameters) int(*name) parameters;
    DRIVER(FIELD)
#undef FIELD
} Driver;

#endif
