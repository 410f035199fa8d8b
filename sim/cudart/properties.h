// cudaDeviceProp of CUDA 12 (as of cudaGetDeviceProperties_v2) and of CUDA 13, which has fewer members: NOW for the members
// that both have, OLD for those that CUDA 13 dropped. The first number is the device attribute that is the value, or 0.
#ifndef PROPERTIES_H
#define PROPERTIES_H

// clang-format off
#define PROPERTIES(NOW, OLD, WIDE, SKIP) \
    WIDE(8, sharedMemPerBlock) NOW(12, regsPerBlock) NOW(10, warpSize) WIDE(11, memPitch) NOW(1, maxThreadsPerBlock) \
    NOW(2, maxThreadsDim0) NOW(3, maxThreadsDim1) NOW(4, maxThreadsDim2) \
    NOW(5, maxGridSize0) NOW(6, maxGridSize1) NOW(7, maxGridSize2) OLD(13, clockRate) WIDE(9, totalConstMem) \
    NOW(75, major) NOW(76, minor) WIDE(14, textureAlignment) WIDE(51, texturePitchAlignment) OLD(15, deviceOverlap) \
    NOW(16, multiProcessorCount) OLD(17, kernelExecTimeoutEnabled) NOW(18, integrated) NOW(19, canMapHostMemory) \
    OLD(20, computeMode) NOW(21, maxTexture1D) NOW(77, maxTexture1DMipmap) OLD(69, maxTexture1DLinear) \
    NOW(22, maxTexture2D0) NOW(23, maxTexture2D1) NOW(73, maxTexture2DMipmap0) NOW(74, maxTexture2DMipmap1) \
    NOW(70, maxTexture2DLinear0) NOW(71, maxTexture2DLinear1) NOW(72, maxTexture2DLinear2) \
    NOW(45, maxTexture2DGather0) NOW(46, maxTexture2DGather1) \
    NOW(24, maxTexture3D0) NOW(25, maxTexture3D1) NOW(26, maxTexture3D2) \
    NOW(47, maxTexture3DAlt0) NOW(48, maxTexture3DAlt1) NOW(49, maxTexture3DAlt2) NOW(52, maxTextureCubemap) \
    NOW(42, maxTexture1DLayered0) NOW(43, maxTexture1DLayered1) \
    NOW(27, maxTexture2DLayered0) NOW(28, maxTexture2DLayered1) NOW(29, maxTexture2DLayered2) \
    NOW(53, maxTextureCubemapLayered0) NOW(54, maxTextureCubemapLayered1) NOW(55, maxSurface1D) \
    NOW(56, maxSurface2D0) NOW(57, maxSurface2D1) NOW(58, maxSurface3D0) NOW(59, maxSurface3D1) NOW(60, maxSurface3D2) \
    NOW(61, maxSurface1DLayered0) NOW(62, maxSurface1DLayered1) \
    NOW(63, maxSurface2DLayered0) NOW(64, maxSurface2DLayered1) NOW(65, maxSurface2DLayered2) NOW(66, maxSurfaceCubemap) \
    NOW(67, maxSurfaceCubemapLayered0) NOW(68, maxSurfaceCubemapLayered1) WIDE(30, surfaceAlignment) \
    NOW(31, concurrentKernels) NOW(32, ECCEnabled) NOW(33, pciBusID) NOW(34, pciDeviceID) NOW(50, pciDomainID) \
    NOW(35, tccDriver) NOW(40, asyncEngineCount) NOW(41, unifiedAddressing) OLD(36, memoryClockRate) \
    NOW(37, memoryBusWidth) NOW(38, l2CacheSize) NOW(108, persistingL2CacheMaxSize) NOW(39, maxThreadsPerMultiProcessor) \
    NOW(78, streamPrioritiesSupported) NOW(79, globalL1CacheSupported) NOW(80, localL1CacheSupported) \
    WIDE(81, sharedMemPerMultiprocessor) NOW(82, regsPerMultiprocessor) NOW(83, managedMemory) NOW(84, isMultiGpuBoard) \
    NOW(85, multiGpuBoardGroupID) NOW(86, hostNativeAtomicSupported) OLD(87, singleToDoublePrecisionPerfRatio) \
    NOW(88, pageableMemoryAccess) NOW(89, concurrentManagedAccess) NOW(90, computePreemptionSupported) \
    NOW(91, canUseHostPointerForRegisteredMem) NOW(95, cooperativeLaunch) OLD(96, cooperativeMultiDeviceLaunch) \
    WIDE(97, sharedMemPerBlockOptin) NOW(100, pageableMemoryAccessUsesHostPageTables) \
    NOW(101, directManagedMemAccessFromHost) NOW(106, maxBlocksPerMultiProcessor) NOW(109, accessPolicyMaxWindowSize) \
    WIDE(111, reservedSharedMemPerBlock) NOW(99, hostRegisterSupported) NOW(112, sparseCudaArraySupported) \
    NOW(113, hostRegisterReadOnlySupported) NOW(114, timelineSemaphoreInteropSupported) NOW(115, memoryPoolsSupported) \
    NOW(116, gpuDirectRDMASupported) NOW(117, gpuDirectRDMAFlushWritesOptions) NOW(118, gpuDirectRDMAWritesOrdering) \
    NOW(119, memoryPoolSupportedHandleTypes) NOW(121, deferredMappingCudaArraySupported) NOW(125, ipcEventSupported) \
    NOW(120, clusterLaunch) NOW(129, unifiedFunctionPointers) SKIP
// clang-format on

// The members behind them: reserved in CUDA 12. The NUMA attributes of CUDA 13.
#define NUMA(NOW) \
    NOW(130, deviceNumaConfig) NOW(131, deviceNumaId) NOW(133, mpsEnabled) NOW(134, hostNumaId) \
    NOW(139, gpuPciDeviceID) NOW(140, gpuPciSubsystemID) NOW(143, hostNumaMultinodeIpcSupported)

#define MEMBER(attribute, name) int name;
#define WIDE_MEMBER(attribute, name) size_t name;
#define NOTHING(attribute, name)

typedef struct {
    char name[256];
    unsigned char uuid[16];
    char luid[8];
    unsigned luidDeviceNodeMask;
    size_t totalGlobalMem;
#if MAJOR == 12
    PROPERTIES(MEMBER, MEMBER, WIDE_MEMBER, )
    int reserved[63];
#else
    PROPERTIES(MEMBER, NOTHING, WIDE_MEMBER, )
    NUMA(MEMBER)
    int reserved[56];
#endif
} Properties;

// The sizes in the headers of CUDA 12.9 and 13.5.
_Static_assert(sizeof(Properties) == (MAJOR == 12 ? 1032 : 1008), "cudaDeviceProp");

#endif
