//! The CUDA version that introduced each version of a function.
//!
//! From NVIDIA's `cudaTypedefs.h` (12.9 and 13.5): the entry's nth number is the first CUDA version with the
//! function's nth form, which is the plain name, then `_v2`, `_v3` and so on. Functions with one form only are
//! not listed.

use std::collections::HashMap;
use std::sync::LazyLock;

#[rustfmt::skip]
const FORMS: &[(&str, &[i32])] = &[
    ("cuArray3DCreate", &[2000, 3020]),
    ("cuArray3DGetDescriptor", &[2000, 3020]),
    ("cuArrayCreate", &[2000, 3020]),
    ("cuArrayGetDescriptor", &[2000, 3020]),
    ("cuCtxCreate", &[2000, 3020, 11_040, 12_050]),
    ("cuCtxDestroy", &[2000, 4000]),
    ("cuCtxGetDevice", &[2000, 13_000]),
    ("cuCtxPopCurrent", &[2000, 4000]),
    ("cuCtxPushCurrent", &[2000, 4000]),
    ("cuCtxSynchronize", &[2000, 13_000]),
    ("cuDeviceGetUuid", &[9020, 11_040]),
    ("cuDevicePrimaryCtxRelease", &[7000, 11_000]),
    ("cuDevicePrimaryCtxReset", &[7000, 11_000]),
    ("cuDevicePrimaryCtxSetFlags", &[7000, 11_000]),
    ("cuDeviceTotalMem", &[2000, 3020]),
    ("cuEventDestroy", &[2000, 4000]),
    ("cuEventElapsedTime", &[2000, 12_080]),
    ("cuGetProcAddress", &[11_030, 12_000]),
    ("cuGraphAddDependencies", &[10_000, 12_030]),
    ("cuGraphAddKernelNode", &[10_000, 12_000]),
    ("cuGraphAddNode", &[12_020, 12_030, 13_040]),
    ("cuGraphExecKernelNodeSetParams", &[10_010, 12_000]),
    ("cuGraphExecUpdate", &[10_020, 12_000]),
    ("cuGraphGetEdges", &[10_000, 12_030]),
    ("cuGraphKernelNodeGetParams", &[10_000, 12_000]),
    ("cuGraphKernelNodeSetParams", &[10_000, 12_000]),
    ("cuGraphNodeGetDependencies", &[10_000, 12_030]),
    ("cuGraphNodeGetDependentNodes", &[10_000, 12_030]),
    ("cuGraphNodeSetParams", &[12_020, 13_040]),
    ("cuGraphRemoveDependencies", &[10_000, 12_030]),
    ("cuGraphicsResourceGetMappedPointer", &[3000, 3020]),
    ("cuGraphicsResourceSetMapFlags", &[3000, 6050]),
    ("cuIpcOpenMemHandle", &[4010, 11_000]),
    ("cuLaunchHostFunc", &[10_000, 13_010]),
    ("cuLinkAddData", &[5050, 6050]),
    ("cuLinkAddFile", &[5050, 6050]),
    ("cuLinkCreate", &[5050, 6050]),
    ("cuMemAdvise", &[8000, 12_020]),
    ("cuMemAlloc", &[2000, 3020]),
    ("cuMemAllocHost", &[2000, 3020]),
    ("cuMemAllocPitch", &[2000, 3020]),
    ("cuMemFree", &[2000, 3020]),
    ("cuMemGetAddressRange", &[2000, 3020]),
    ("cuMemGetInfo", &[2000, 3020]),
    ("cuMemHostGetDevicePointer", &[2020, 3020]),
    ("cuMemHostRegister", &[4000, 6050]),
    ("cuMemPrefetchAsync", &[8000, 12_020]),
    ("cuMemcpy2D", &[2000, 3020]),
    ("cuMemcpy2DAsync", &[2000, 3020]),
    ("cuMemcpy2DUnaligned", &[2000, 3020]),
    ("cuMemcpy3D", &[2000, 3020]),
    ("cuMemcpy3DAsync", &[2000, 3020]),
    ("cuMemcpy3DBatchAsync", &[12_080, 13_000]),
    ("cuMemcpyAtoA", &[2000, 3020]),
    ("cuMemcpyAtoD", &[2000, 3020]),
    ("cuMemcpyAtoH", &[2000, 3020]),
    ("cuMemcpyAtoHAsync", &[2000, 3020]),
    ("cuMemcpyBatchAsync", &[12_080, 13_000]),
    ("cuMemcpyDtoA", &[2000, 3020]),
    ("cuMemcpyDtoD", &[2000, 3020]),
    ("cuMemcpyDtoDAsync", &[3000, 3020]),
    ("cuMemcpyDtoH", &[2000, 3020]),
    ("cuMemcpyDtoHAsync", &[2000, 3020]),
    ("cuMemcpyHtoA", &[2000, 3020]),
    ("cuMemcpyHtoAAsync", &[2000, 3020]),
    ("cuMemcpyHtoD", &[2000, 3020]),
    ("cuMemcpyHtoDAsync", &[2000, 3020]),
    ("cuMemsetD16", &[2000, 3020]),
    ("cuMemsetD2D16", &[2000, 3020]),
    ("cuMemsetD2D32", &[2000, 3020]),
    ("cuMemsetD2D8", &[2000, 3020]),
    ("cuMemsetD32", &[2000, 3020]),
    ("cuMemsetD8", &[2000, 3020]),
    ("cuModuleGetGlobal", &[2000, 3020]),
    ("cuMulticastBindAddr", &[12_010, 13_010]),
    ("cuMulticastBindMem", &[12_010, 13_010]),
    ("cuStreamBatchMemOp", &[8000, 11_070]),
    ("cuStreamBeginCapture", &[10_000, 10_010]),
    ("cuStreamDestroy", &[2000, 4000]),
    ("cuStreamGetCaptureInfo", &[10_010, 11_030, 12_030]),
    ("cuStreamGetCtx", &[9020, 12_050]),
    ("cuStreamUpdateCaptureDependencies", &[11_030, 12_030]),
    ("cuStreamWaitValue32", &[8000, 11_070]),
    ("cuStreamWaitValue64", &[9000, 11_070]),
    ("cuStreamWriteValue32", &[8000, 11_070]),
    ("cuStreamWriteValue64", &[9000, 11_070]),
    ("cuTexRefGetAddress", &[2000, 3020]),
    ("cuTexRefSetAddress", &[2000, 3020]),
    ("cuTexRefSetAddress2D", &[2020, 3020, 4010]),
];

/// The CUDA version that introduced each function with one form, from the same headers.
#[rustfmt::skip]
const SINGLE_FORMS: &[(i32, &str)] = &[
    (2000, "cuArrayDestroy cuCtxAttach cuCtxDetach cuDeviceComputeCapability cuDeviceGet cuDeviceGetAttribute \
        cuDeviceGetCount cuDeviceGetName cuDeviceGetProperties cuEventCreate cuEventQuery cuEventRecord \
        cuEventSynchronize cuFuncSetBlockShape cuFuncSetSharedSize cuGLCtxCreate cuGLInit \
        cuGLMapBufferObject cuGLRegisterBufferObject cuGLUnmapBufferObject cuGLUnregisterBufferObject cuInit \
        cuLaunch cuLaunchGrid cuLaunchGridAsync cuMemFreeHost cuModuleGetFunction cuModuleGetTexRef \
        cuModuleLoad cuModuleLoadData cuModuleLoadFatBinary cuModuleUnload cuParamSetSize cuParamSetTexRef \
        cuParamSetf cuParamSeti cuParamSetv cuStreamCreate cuStreamQuery cuStreamSynchronize cuTexRefCreate \
        cuTexRefDestroy cuTexRefGetAddressMode cuTexRefGetArray cuTexRefGetFilterMode cuTexRefGetFlags \
        cuTexRefGetFormat cuTexRefSetAddressMode cuTexRefSetArray cuTexRefSetFilterMode cuTexRefSetFlags \
        cuTexRefSetFormat"),
    (2010, "cuModuleLoadDataEx"),
    (2020, "cuDriverGetVersion cuFuncGetAttribute cuMemHostAlloc"),
    (2030, "cuGLMapBufferObjectAsync cuGLSetBufferObjectMapFlags cuGLUnmapBufferObjectAsync cuMemHostGetFlags"),
    (3000, "cuFuncSetCacheConfig cuGetExportTable cuGraphicsGLRegisterBuffer cuGraphicsGLRegisterImage \
        cuGraphicsMapResources cuGraphicsSubResourceGetMappedArray cuGraphicsUnmapResources \
        cuGraphicsUnregisterResource cuModuleGetSurfRef cuSurfRefGetArray cuSurfRefSetArray"),
    (3010, "cuCtxGetLimit cuCtxSetLimit cuGraphicsVDPAURegisterOutputSurface cuGraphicsVDPAURegisterVideoSurface \
        cuVDPAUCtxCreate cuVDPAUGetDevice"),
    (3020, "cuCtxGetApiVersion cuCtxGetCacheConfig cuCtxSetCacheConfig cuMemsetD16Async cuMemsetD2D16Async \
        cuMemsetD2D32Async cuMemsetD2D8Async cuMemsetD32Async cuMemsetD8Async cuStreamWaitEvent"),
    (4000, "cuCtxDisablePeerAccess cuCtxEnablePeerAccess cuCtxGetCurrent cuCtxSetCurrent cuDeviceCanAccessPeer \
        cuLaunchKernel cuMemHostUnregister cuMemcpy cuMemcpy3DPeer cuMemcpy3DPeerAsync cuMemcpyAsync \
        cuMemcpyPeer cuMemcpyPeerAsync cuPointerGetAttribute cuProfilerInitialize cuProfilerStart \
        cuProfilerStop"),
    (4010, "cuDeviceGetByPCIBusId cuDeviceGetPCIBusId cuGLGetDevices cuIpcCloseMemHandle cuIpcGetEventHandle \
        cuIpcGetMemHandle cuIpcOpenEventHandle"),
    (4020, "cuCtxGetSharedMemConfig cuCtxSetSharedMemConfig cuFuncSetSharedMemConfig"),
    (5000, "cuGraphicsResourceGetMappedMipmappedArray cuMipmappedArrayCreate cuMipmappedArrayDestroy \
        cuMipmappedArrayGetLevel cuStreamAddCallback cuSurfObjectCreate cuSurfObjectDestroy \
        cuSurfObjectGetResourceDesc cuTexObjectCreate cuTexObjectDestroy cuTexObjectGetResourceDesc \
        cuTexObjectGetResourceViewDesc cuTexObjectGetTextureDesc cuTexRefGetMaxAnisotropy \
        cuTexRefGetMipmapFilterMode cuTexRefGetMipmapLevelBias cuTexRefGetMipmapLevelClamp \
        cuTexRefGetMipmappedArray cuTexRefSetMaxAnisotropy cuTexRefSetMipmapFilterMode \
        cuTexRefSetMipmapLevelBias cuTexRefSetMipmapLevelClamp cuTexRefSetMipmappedArray"),
    (5050, "cuCtxGetStreamPriorityRange cuLinkComplete cuLinkDestroy cuStreamCreateWithPriority cuStreamGetFlags \
        cuStreamGetPriority"),
    (6000, "cuGetErrorName cuGetErrorString cuMemAllocManaged cuPointerSetAttribute cuStreamAttachMemAsync"),
    (6050, "cuOccupancyMaxActiveBlocksPerMultiprocessor cuOccupancyMaxPotentialBlockSize"),
    (7000, "cuCtxGetFlags cuDevicePrimaryCtxGetState cuDevicePrimaryCtxRetain cuEGLStreamConsumerAcquireFrame \
        cuEGLStreamConsumerConnect cuEGLStreamConsumerDisconnect cuEGLStreamConsumerReleaseFrame \
        cuEGLStreamProducerConnect cuEGLStreamProducerDisconnect cuEGLStreamProducerPresentFrame \
        cuEGLStreamProducerReturnFrame cuGraphicsEGLRegisterImage cuGraphicsResourceGetMappedEglFrame \
        cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cuOccupancyMaxPotentialBlockSizeWithFlags \
        cuPointerGetAttributes"),
    (8000, "cuDeviceGetP2PAttribute cuEGLStreamConsumerConnectWithFlags cuMemRangeGetAttribute \
        cuMemRangeGetAttributes cuTexRefGetBorderColor cuTexRefSetBorderColor"),
    (9000, "cuEventCreateFromEGLSync cuFuncSetAttribute cuLaunchCooperativeKernel \
        cuLaunchCooperativeKernelMultiDevice"),
    (10_000, "cuDestroyExternalMemory cuDestroyExternalSemaphore cuDeviceGetLuid cuExternalMemoryGetMappedBuffer \
        cuExternalMemoryGetMappedMipmappedArray cuGraphAddChildGraphNode cuGraphAddEmptyNode \
        cuGraphAddHostNode cuGraphAddMemcpyNode cuGraphAddMemsetNode cuGraphChildGraphNodeGetGraph \
        cuGraphClone cuGraphCreate cuGraphDestroy cuGraphDestroyNode cuGraphExecDestroy cuGraphGetNodes \
        cuGraphGetRootNodes cuGraphHostNodeGetParams cuGraphHostNodeSetParams cuGraphLaunch \
        cuGraphMemcpyNodeGetParams cuGraphMemcpyNodeSetParams cuGraphMemsetNodeGetParams \
        cuGraphMemsetNodeSetParams cuGraphNodeFindInClone cuGraphNodeGetType cuImportExternalMemory \
        cuImportExternalSemaphore cuSignalExternalSemaphoresAsync cuStreamEndCapture cuStreamIsCapturing \
        cuWaitExternalSemaphoresAsync"),
    (10_010, "cuThreadExchangeStreamCaptureMode"),
    (10_020, "cuDeviceGetNvSciSyncAttributes cuGraphExecHostNodeSetParams cuGraphExecMemcpyNodeSetParams \
        cuGraphExecMemsetNodeSetParams cuMemAddressFree cuMemAddressReserve cuMemCreate \
        cuMemExportToShareableHandle cuMemGetAccess cuMemGetAllocationGranularity \
        cuMemGetAllocationPropertiesFromHandle cuMemImportFromShareableHandle cuMemMap cuMemRelease \
        cuMemSetAccess cuMemUnmap cuOccupancyAvailableDynamicSMemPerBlock"),
    (11_000, "cuCtxResetPersistingL2Cache cuFuncGetModule cuGraphKernelNodeCopyAttributes \
        cuGraphKernelNodeGetAttribute cuGraphKernelNodeSetAttribute cuMemRetainAllocationHandle \
        cuStreamCopyAttributes cuStreamGetAttribute cuStreamSetAttribute"),
    (11_010, "cuArrayGetSparseProperties cuDeviceGetTexture1DLinearMaxWidth cuEventRecordWithFlags \
        cuGraphAddEventRecordNode cuGraphAddEventWaitNode cuGraphEventRecordNodeGetEvent \
        cuGraphEventRecordNodeSetEvent cuGraphEventWaitNodeGetEvent cuGraphEventWaitNodeSetEvent \
        cuGraphExecChildGraphNodeSetParams cuGraphExecEventRecordNodeSetEvent \
        cuGraphExecEventWaitNodeSetEvent cuGraphUpload cuMemMapArrayAsync \
        cuMipmappedArrayGetSparseProperties"),
    (11_020, "cuArrayGetPlane cuDeviceGetDefaultMemPool cuDeviceGetMemPool cuDeviceSetMemPool \
        cuGraphAddExternalSemaphoresSignalNode cuGraphAddExternalSemaphoresWaitNode \
        cuGraphExecExternalSemaphoresSignalNodeSetParams cuGraphExecExternalSemaphoresWaitNodeSetParams \
        cuGraphExternalSemaphoresSignalNodeGetParams cuGraphExternalSemaphoresSignalNodeSetParams \
        cuGraphExternalSemaphoresWaitNodeGetParams cuGraphExternalSemaphoresWaitNodeSetParams \
        cuMemAllocAsync cuMemAllocFromPoolAsync cuMemFreeAsync cuMemPoolCreate cuMemPoolDestroy \
        cuMemPoolExportPointer cuMemPoolExportToShareableHandle cuMemPoolGetAccess cuMemPoolGetAttribute \
        cuMemPoolImportFromShareableHandle cuMemPoolImportPointer cuMemPoolSetAccess cuMemPoolSetAttribute \
        cuMemPoolTrimTo"),
    (11_030, "cuFlushGPUDirectRDMAWrites cuGraphDebugDotPrint cuGraphReleaseUserObject cuGraphRetainUserObject \
        cuUserObjectCreate cuUserObjectRelease cuUserObjectRetain"),
    (11_040, "cuCtxGetExecAffinity cuDeviceGetExecAffinitySupport cuDeviceGetGraphMemAttribute \
        cuDeviceGraphMemTrim cuDeviceSetGraphMemAttribute cuGraphAddMemAllocNode cuGraphAddMemFreeNode \
        cuGraphInstantiateWithFlags cuGraphMemAllocNodeGetParams cuGraphMemFreeNodeGetParams"),
    (11_060, "cuArrayGetMemoryRequirements cuGraphNodeGetEnabled cuGraphNodeSetEnabled cuLaunchKernelEx \
        cuMipmappedArrayGetMemoryRequirements"),
    (11_070, "cuGraphAddBatchMemOpNode cuGraphBatchMemOpNodeGetParams cuGraphBatchMemOpNodeSetParams \
        cuGraphExecBatchMemOpNodeSetParams cuMemGetHandleForAddressRange cuModuleGetLoadingMode \
        cuOccupancyMaxActiveClusters cuOccupancyMaxPotentialClusterSize"),
    (12_000, "cuCtxGetId cuGraphExecGetFlags cuGraphInstantiateWithParams cuKernelGetAttribute cuKernelGetFunction \
        cuKernelSetAttribute cuKernelSetCacheConfig cuLibraryGetGlobal cuLibraryGetKernel \
        cuLibraryGetManaged cuLibraryGetModule cuLibraryGetUnifiedFunction cuLibraryLoadData \
        cuLibraryLoadFromFile cuLibraryUnload cuStreamGetId cuTensorMapEncodeIm2col cuTensorMapEncodeTiled \
        cuTensorMapReplaceAddress"),
    (12_010, "cuCoredumpGetAttribute cuCoredumpGetAttributeGlobal cuCoredumpSetAttribute \
        cuCoredumpSetAttributeGlobal cuCtxSetFlags cuMulticastAddDevice cuMulticastCreate \
        cuMulticastGetGranularity cuMulticastUnbind"),
    (12_020, "cuGraphExecNodeSetParams"),
    (12_030, "cuFuncGetName cuGraphConditionalHandleCreate cuKernelGetName cuStreamBeginCaptureToGraph"),
    (12_040, "cuCtxFromGreenCtx cuCtxGetDevResource cuDevResourceGenerateDesc cuDevSmResourceSplitByCount \
        cuDeviceGetDevResource cuDeviceRegisterAsyncNotification cuDeviceUnregisterAsyncNotification \
        cuFuncGetParamInfo cuFuncIsLoaded cuFuncLoad cuGreenCtxCreate cuGreenCtxDestroy \
        cuGreenCtxGetDevResource cuGreenCtxRecordEvent cuGreenCtxWaitEvent cuKernelGetParamInfo \
        cuLibraryEnumerateKernels cuLibraryGetKernelCount cuModuleEnumerateFunctions \
        cuModuleGetFunctionCount cuStreamGetGreenCtx"),
    (12_050, "cuCtxRecordEvent cuCtxWaitEvent cuGreenCtxStreamCreate cuKernelGetLibrary"),
    (12_060, "cuMemBatchDecompressAsync"),
    (12_080, "cuCheckpointProcessCheckpoint cuCheckpointProcessGetRestoreThreadId cuCheckpointProcessGetState \
        cuCheckpointProcessLock cuCheckpointProcessRestore cuCheckpointProcessUnlock cuStreamGetDevice \
        cuTensorMapEncodeIm2colWide"),
    (12_090, "cuGreenCtxGetId cuLogsCurrent cuLogsDumpToFile cuLogsDumpToMemory cuLogsRegisterCallback \
        cuLogsUnregisterCallback"),
    (13_000, "cuDeviceGetHostAtomicCapabilities cuDeviceGetP2PAtomicCapabilities cuMemDiscardAndPrefetchBatchAsync \
        cuMemDiscardBatchAsync cuMemGetDefaultMemPool cuMemGetMemPool cuMemPrefetchBatchAsync \
        cuMemSetMemPool"),
    (13_010, "cuDevSmResourceSplit cuGraphExecGetId cuGraphGetId cuGraphNodeGetContainingGraph \
        cuGraphNodeGetLocalId cuGraphNodeGetToolsId cuStreamBeginCaptureToCig cuStreamEndCaptureToCig \
        cuStreamGetDevResource"),
    (13_020, "cuCoredumpDeregisterCompleteCallback cuCoredumpDeregisterStartCallback \
        cuCoredumpRegisterCompleteCallback cuCoredumpRegisterStartCallback cuFuncGetParamCount \
        cuGraphNodeGetParams cuKernelGetParamCount cuMemcpy3DWithAttributesAsync cuMemcpyWithAttributesAsync"),
    (13_030, "cuLogicalEndpointAddDevice cuLogicalEndpointBindAddr cuLogicalEndpointBindMem \
        cuLogicalEndpointCreate cuLogicalEndpointDestroy cuLogicalEndpointExport cuLogicalEndpointGetLimits \
        cuLogicalEndpointIdRelease cuLogicalEndpointIdReserve cuLogicalEndpointImport cuLogicalEndpointQuery \
        cuLogicalEndpointUnbind cuStreamBeginRecaptureToGraph"),
    (13_040, "cuCheckpointOperationComplete cuDeviceGetCliqueCount cuDeviceGetCliqueInfo \
        cuDeviceGetFabricClusterUuid cuMemGetLocationInfo"),
    (13_050, "cuFabricCpyBatchAsync cuTensorMapSetAllocationClass"),
];

// CUDA 12 gave the name of a function with five arguments to what was cuGraphInstantiateWithFlags.
const GRAPH_INSTANTIATE: &[(i32, &str)] =
    &[(12_000, "cuGraphInstantiateWithFlags"), (11_000, "cuGraphInstantiate_v2"), (10_000, "cuGraphInstantiate")];

/// The CUDA version that introduced the function; `None` for a name that is no function's.
pub(super) fn introduced(name: &str) -> Option<i32> {
    static SINGLE: LazyLock<HashMap<&'static str, i32>> = LazyLock::new(|| {
        SINGLE_FORMS.iter().flat_map(|(first, names)| names.split(' ').map(|name| (name, *first))).collect()
    });
    if name == "cuGraphInstantiate" {
        return GRAPH_INSTANTIATE.last().map(|(first, _)| *first);
    }
    let forms = FORMS.iter().find(|(listed, _)| *listed == name).map(|(_, forms)| forms[0]);
    forms.or_else(|| SINGLE.get(name).copied())
}

/// The symbol that the name of a function denotes in a CUDA version; `None` where that does not have it.
pub(super) fn symbol(name: &str, version: i32) -> Option<String> {
    if name == "cuGraphInstantiate" {
        return GRAPH_INSTANTIATE.iter().find(|(first, _)| *first <= version).map(|(_, symbol)| (*symbol).to_owned());
    }
    let forms = FORMS.iter().find(|(listed, _)| *listed == name).map_or(&[][..], |(_, forms)| *forms);
    match forms.iter().filter(|first| **first <= version).count() {
        0 if introduced(name)? > version => None,
        0 | 1 => Some(name.to_owned()),
        form => Some(format!("{name}_v{form}")),
    }
}
