//! The CUDA version that introduced each version of a function.
//!
//! From NVIDIA's `cudaTypedefs.h` (12.9 and 13.5): the entry's nth number is the first CUDA version with the
//! function's nth form, which is the plain name, then `_v2`, `_v3` and so on. Functions with one form only are
//! not listed.

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

// CUDA 12 gave the name of a function with five arguments to what was cuGraphInstantiateWithFlags.
const GRAPH_INSTANTIATE: &[(i32, &str)] =
    &[(12_000, "cuGraphInstantiateWithFlags"), (11_000, "cuGraphInstantiate_v2"), (10_000, "cuGraphInstantiate")];

/// Whether the function has more than one form.
pub(super) fn known(name: &str) -> bool {
    FORMS.iter().any(|(listed, _)| *listed == name)
}

/// The symbol that the name denotes in this CUDA version; `None` when the function is newer.
pub(super) fn symbol(name: &str, version: i32) -> Option<String> {
    if name == "cuGraphInstantiate" {
        return GRAPH_INSTANTIATE.iter().find(|(first, _)| *first <= version).map(|(_, symbol)| (*symbol).to_owned());
    }
    let Some((_, first_versions)) = FORMS.iter().find(|(listed, _)| *listed == name) else {
        return Some(name.to_owned());
    };
    match first_versions.iter().filter(|first| **first <= version).count() {
        0 => None,
        1 => Some(name.to_owned()),
        form => Some(format!("{name}_v{form}")),
    }
}
