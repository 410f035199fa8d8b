// The functions that are not simulated: those of the libraries of CUDA 12.9 and 13.5 that no other file has. Each returns
// cudaErrorNotSupported, and its first call says so on stderr.
#include "runtime.h"

// clang-format off
#define BOTH \
    X(__cudaRegisterHostVar) X(__cudaRegisterUnifiedTable) X(cudaArrayGetInfo) X(cudaArrayGetMemoryRequirements) \
    X(cudaArrayGetPlane) X(cudaArrayGetSparseProperties) X(cudaCreateSurfaceObject) \
    X(cudaCreateTextureObject) X(cudaCtxResetPersistingL2Cache) X(cudaDestroyExternalSemaphore) \
    X(cudaDestroySurfaceObject) X(cudaDestroyTextureObject) X(cudaDeviceFlushGPUDirectRDMAWrites) \
    X(cudaDeviceGetGraphMemAttribute) X(cudaDeviceGetNvSciSyncAttributes) X(cudaDeviceGetTexture1DLinearMaxWidth) \
    X(cudaDeviceGraphMemTrim) X(cudaDeviceRegisterAsyncNotification) X(cudaDeviceSetGraphMemAttribute) \
    X(cudaDeviceUnregisterAsyncNotification) X(cudaEGLStreamConsumerAcquireFrame) X(cudaEGLStreamConsumerConnect) \
    X(cudaEGLStreamConsumerConnectWithFlags) X(cudaEGLStreamConsumerDisconnect) X(cudaEGLStreamConsumerReleaseFrame) \
    X(cudaEGLStreamProducerConnect) X(cudaEGLStreamProducerDisconnect) X(cudaEGLStreamProducerPresentFrame) \
    X(cudaEGLStreamProducerReturnFrame) X(cudaEventCreateFromEGLSync) X(cudaExternalMemoryGetMappedMipmappedArray) \
    X(cudaFreeArray) X(cudaFreeMipmappedArray) X(cudaGLGetDevices) X(cudaGLMapBufferObject) \
    X(cudaGLMapBufferObjectAsync) X(cudaGLRegisterBufferObject) X(cudaGLSetBufferObjectMapFlags) X(cudaGLSetGLDevice) \
    X(cudaGLUnmapBufferObject) X(cudaGLUnmapBufferObjectAsync) X(cudaGLUnregisterBufferObject) X(cudaGetChannelDesc) \
    X(cudaGetExportTable) X(cudaGetMipmappedArrayLevel) X(cudaGetSurfaceObjectResourceDesc) \
    X(cudaGetTextureObjectResourceDesc) X(cudaGetTextureObjectResourceViewDesc) X(cudaGetTextureObjectTextureDesc) \
    X(cudaGraphAddExternalSemaphoresSignalNode) X(cudaGraphAddExternalSemaphoresWaitNode) X(cudaGraphAddMemAllocNode) \
    X(cudaGraphAddMemFreeNode) X(cudaGraphConditionalHandleCreate) X(cudaGraphDebugDotPrint) \
    X(cudaGraphExecExternalSemaphoresSignalNodeSetParams) X(cudaGraphExecExternalSemaphoresWaitNodeSetParams) \
    X(cudaGraphExternalSemaphoresSignalNodeGetParams) X(cudaGraphExternalSemaphoresSignalNodeSetParams) \
    X(cudaGraphExternalSemaphoresWaitNodeGetParams) X(cudaGraphExternalSemaphoresWaitNodeSetParams) \
    X(cudaGraphKernelNodeCopyAttributes) X(cudaGraphKernelNodeGetAttribute) X(cudaGraphKernelNodeSetAttribute) \
    X(cudaGraphMemAllocNodeGetParams) X(cudaGraphMemFreeNodeGetParams) X(cudaGraphMemcpyNodeGetParams) \
    X(cudaGraphicsEGLRegisterImage) X(cudaGraphicsGLRegisterBuffer) X(cudaGraphicsGLRegisterImage) \
    X(cudaGraphicsMapResources) X(cudaGraphicsResourceGetMappedEglFrame) \
    X(cudaGraphicsResourceGetMappedMipmappedArray) X(cudaGraphicsResourceGetMappedPointer) \
    X(cudaGraphicsResourceSetMapFlags) X(cudaGraphicsSubResourceGetMappedArray) X(cudaGraphicsUnmapResources) \
    X(cudaGraphicsUnregisterResource) X(cudaGraphicsVDPAURegisterOutputSurface) \
    X(cudaGraphicsVDPAURegisterVideoSurface) X(cudaImportExternalSemaphore) X(cudaLibraryGetUnifiedFunction) \
    X(cudaMalloc3DArray) X(cudaMallocArray) X(cudaMallocMipmappedArray) X(cudaMemPoolExportPointer) \
    X(cudaMemPoolExportToShareableHandle) X(cudaMemPoolImportFromShareableHandle) X(cudaMemPoolImportPointer) \
    X(cudaMemcpy2DArrayToArray) X(cudaMemcpy2DArrayToArray_ptds) X(cudaMemcpy2DFromArray) \
    X(cudaMemcpy2DFromArrayAsync) X(cudaMemcpy2DFromArrayAsync_ptsz) X(cudaMemcpy2DFromArray_ptds) \
    X(cudaMemcpy2DToArray) X(cudaMemcpy2DToArrayAsync) X(cudaMemcpy2DToArrayAsync_ptsz) X(cudaMemcpy2DToArray_ptds) \
    X(cudaMemcpy3DBatchAsync) X(cudaMemcpy3DBatchAsync_ptsz) X(cudaMemcpy3DPeer) X(cudaMemcpy3DPeerAsync) \
    X(cudaMemcpy3DPeerAsync_ptsz) X(cudaMemcpy3DPeer_ptds) X(cudaMemcpyArrayToArray) X(cudaMemcpyArrayToArray_ptds) \
    X(cudaMemcpyBatchAsync) X(cudaMemcpyBatchAsync_ptsz) X(cudaMemcpyFromArray) X(cudaMemcpyFromArrayAsync) \
    X(cudaMemcpyFromArrayAsync_ptsz) X(cudaMemcpyFromArray_ptds) X(cudaMemcpyToArray) X(cudaMemcpyToArrayAsync) \
    X(cudaMemcpyToArrayAsync_ptsz) X(cudaMemcpyToArray_ptds) X(cudaMipmappedArrayGetMemoryRequirements) \
    X(cudaMipmappedArrayGetSparseProperties) X(cudaOccupancyMaxActiveClusters) X(cudaOccupancyMaxPotentialClusterSize) \
    X(cudaSetValidDevices) X(cudaSignalExternalSemaphoresAsync) X(cudaSignalExternalSemaphoresAsync_ptsz) \
    X(cudaStreamCopyAttributes) X(cudaStreamCopyAttributes_ptsz) X(cudaStreamGetAttribute) \
    X(cudaStreamGetAttribute_ptsz) X(cudaStreamSetAttribute) X(cudaStreamSetAttribute_ptsz) X(cudaVDPAUGetDevice) \
    X(cudaVDPAUSetVDPAUDevice) X(cudaWaitExternalSemaphoresAsync) X(cudaWaitExternalSemaphoresAsync_ptsz)

#if MAJOR == 12
#define ONE \
    X(cudaLaunchCooperativeKernelMultiDevice) X(cudaSetDoubleForDevice) X(cudaSetDoubleForHost) \
    X(cudaSignalExternalSemaphoresAsync_v2) X(cudaSignalExternalSemaphoresAsync_v2_ptsz) X(cudaThreadExit) \
    X(cudaThreadGetCacheConfig) X(cudaThreadGetLimit) X(cudaThreadSetCacheConfig) X(cudaThreadSetLimit) \
    X(cudaThreadSynchronize) X(cudaWaitExternalSemaphoresAsync_v2) X(cudaWaitExternalSemaphoresAsync_v2_ptsz)
#else
#define ONE \
    X(__cudaGetProcAddress) X(cudaDevResourceGenerateDesc) X(cudaDevSmResourceSplit) X(cudaDevSmResourceSplitByCount) \
    X(cudaDeviceGetDevResource) X(cudaDeviceGetExecutionCtx) X(cudaDeviceGetHostAtomicCapabilities) \
    X(cudaDeviceGetP2PAtomicCapabilities) X(cudaExecutionCtxDestroy) X(cudaExecutionCtxGetDevResource) \
    X(cudaExecutionCtxGetDevice) X(cudaExecutionCtxGetId) X(cudaExecutionCtxRecordEvent) \
    X(cudaExecutionCtxStreamCreate) X(cudaExecutionCtxSynchronize) X(cudaExecutionCtxWaitEvent) \
    X(cudaGraphConditionalHandleCreate_v2) X(cudaGraphExecGetId) X(cudaGraphGetId) X(cudaGraphNodeGetContainingGraph) \
    X(cudaGraphNodeGetLocalId) X(cudaGraphNodeGetParams) X(cudaGraphNodeGetToolsId) X(cudaGreenCtxCreate) \
    X(cudaLogsCurrent) X(cudaLogsDumpToFile) X(cudaLogsDumpToMemory) X(cudaLogsRegisterCallback) \
    X(cudaLogsUnregisterCallback) X(cudaMemDiscardAndPrefetchBatchAsync) X(cudaMemDiscardAndPrefetchBatchAsync_ptsz) \
    X(cudaMemDiscardBatchAsync) X(cudaMemDiscardBatchAsync_ptsz) X(cudaMemGetLocationInfo) \
    X(cudaMemPrefetchBatchAsync) X(cudaMemPrefetchBatchAsync_ptsz) X(cudaMemcpy3DWithAttributesAsync) \
    X(cudaMemcpy3DWithAttributesAsync_ptsz) X(cudaMemcpyWithAttributesAsync) X(cudaMemcpyWithAttributesAsync_ptsz) \
    X(cudaStreamBeginRecaptureToGraph) X(cudaStreamBeginRecaptureToGraph_ptsz) X(cudaStreamGetDevResource) \
    X(cudaStreamGetDevResource_ptsz) X(cudaSubgridCreate) X(cudaSubgridWorkerGridCreate) X(cudaSubgridWorksetCreate)
#endif
// clang-format on

// Declared without parameters, since none is used: in the C calling convention the caller cleans up.
#define X(name) \
    EXPORT int name(void) { \
        static int said; \
        return runtime_missing(#name, &said); \
    }
BOTH
ONE
