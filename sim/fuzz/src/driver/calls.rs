//! The fuzzed functions of the simulated driver, and what each of their arguments is.

use crate::arguments::Argument::{self, *};
use crate::objects::Kind::*;

/// A function of the driver with its arguments.
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) function: unsafe extern "C" fn(),
    pub(crate) arguments: &'static [Argument],
}

macro_rules! calls {
    ($($name:ident($($argument:expr),*);)+) => {
        /// In any order; inputs name them by their index.
        pub(crate) const CALLS: &[Call] = &[$({
            unsafe extern "C" { fn $name(); }
            Call { name: stringify!($name), function: $name, arguments: &[$($argument),*] }
        }),+];
    };
}

// Left out are functions whose contract a sequence of bytes cannot keep: waits for values that may never come, handles of
// other processes, and what is imported from Vulkan. Of functions that do the same, one is here.
calls! {
    // First, where runs of zeros lead: a call that changes nothing.
    cuDeviceGetAttribute(Out, Number, Device);

    // Contexts
    cuCtxCreate_v2(New(Context), Flags, Device);
    cuCtxDestroy_v2(End(Context));
    cuDevicePrimaryCtxRetain(New(Context), Device);
    cuDevicePrimaryCtxRelease_v2(Device);
    cuDevicePrimaryCtxReset_v2(Device);
    cuDevicePrimaryCtxSetFlags_v2(Device, Flags);
    cuCtxPushCurrent_v2(Use(Context));
    cuCtxPopCurrent_v2(Out);
    cuCtxSetCurrent(Use(Context));
    cuCtxGetDevice_v2(Out, Use(Context));
    cuCtxGetId(Use(Context), Out);
    cuCtxSetFlags(Flags);
    cuCtxSynchronize();
    cuCtxSetLimit(Flags, Size);
    cuCtxAttach(New(Context), Flags);
    cuCtxDetach(Use(Context));

    // Streams and events
    cuStreamCreate(New(Stream), Flags);
    cuStreamCreateWithPriority(New(Stream), Flags, Number);
    cuStreamDestroy_v2(End(Stream));
    cuStreamSynchronize(Use(Stream));
    cuStreamQuery(Use(Stream));
    cuStreamWaitEvent(Use(Stream), Use(Event), Flags);
    cuStreamGetCtx(Use(Stream), Out);
    cuStreamGetFlags(Use(Stream), Out);
    cuStreamGetId(Use(Stream), Out);
    cuStreamWriteValue32(Use(Stream), Address, Number, Flags);
    cuStreamWriteValue64(Use(Stream), Address, Number, Flags);
    cuLaunchHostFunc(Use(Stream), Function, Zero);
    cuStreamAddCallback(Use(Stream), Function, Zero, Zero);
    cuEventCreate(New(Event), Flags);
    cuEventDestroy_v2(End(Event));
    cuEventRecord(Use(Event), Use(Stream));
    cuEventRecordWithFlags(Use(Event), Use(Stream), Flags);
    cuEventQuery(Use(Event));
    cuEventSynchronize(Use(Event));
    cuEventElapsedTime(Out, Use(Event), Use(Event));

    // Memory
    cuMemAlloc_v2(New(Memory), Size);
    cuMemAllocManaged(New(Memory), Size, Flags);
    cuMemAllocPitch_v2(New(Memory), Out, Size, Size, Number);
    cuMemFree_v2(End(Memory));
    cuMemAllocHost_v2(New(Host), Size);
    cuMemHostAlloc(New(Host), Size, Flags);
    cuMemFreeHost(End(Host));
    cuMemHostRegister_v2(Bytes, Length, Flags);
    cuMemHostUnregister(Bytes);
    cuMemHostGetDevicePointer_v2(New(Memory), Use(Host), Flags);
    cuMemHostGetFlags(Out, Use(Host));
    cuMemGetAddressRange_v2(Out, Out, Address);
    cuMemGetHandleForAddressRange(New(Descriptor), Address, Size, Flags, Flags);
    cuPointerGetAttribute(Out, Number, Address);
    cuPointerGetAttributes(Count, Numbers, Outs, Address);
    cuPointerSetAttribute(Numbers, Number, Address);
    cuMemPrefetchAsync(Address, Size, Device, Use(Stream));
    cuMemAdvise(Address, Size, Flags, Device);
    cuMemRangeGetAttribute(Out, Count, Flags, Address, Size);
    cuStreamAttachMemAsync(Use(Stream), Address, Size, Flags);

    // Copies and fills
    cuMemcpyHtoD_v2(Address, Bytes, Length);
    cuMemcpyDtoH_v2(Bytes, Address, Length);
    cuMemcpyDtoD_v2(Address, Address, Size);
    cuMemcpyHtoDAsync_v2(Address, Bytes, Length, Use(Stream));
    cuMemcpyDtoHAsync_v2(Bytes, Address, Length, Use(Stream));
    cuMemcpyDtoDAsync_v2(Address, Address, Size, Use(Stream));
    cuMemcpyPeerAsync(Address, Use(Context), Address, Use(Context), Size, Use(Stream));
    cuMemcpy2D_v2(Copy2D);
    cuMemcpy2DAsync_v2(Copy2D, Use(Stream));
    cuMemcpy3D_v2(Copy3D);
    cuMemcpy3DAsync_v2(Copy3D, Use(Stream));
    cuMemsetD8_v2(Address, Number, Size);
    cuMemsetD8Async(Address, Number, Size, Use(Stream));
    cuMemsetD16Async(Address, Number, Size, Use(Stream));
    cuMemsetD32Async(Address, Number, Size, Use(Stream));
    cuMemsetD2D8Async(Address, Size, Number, Size, Size, Use(Stream));
    cuMemsetD2D32Async(Address, Size, Number, Size, Size, Use(Stream));

    // Pools
    cuMemPoolCreate(New(Pool), PoolProperties);
    cuMemPoolDestroy(End(Pool));
    cuMemPoolTrimTo(Use(Pool), Size);
    cuMemPoolGetAttribute(Use(Pool), Number, Out);
    cuMemPoolSetAttribute(Use(Pool), Number, Numbers);
    cuMemPoolSetAccess(Use(Pool), Accesses, Count);
    cuMemPoolGetAccess(Out, Use(Pool), Accesses);
    cuDeviceSetMemPool(Device, Use(Pool));
    cuDeviceGetMemPool(New(Pool), Device);
    cuMemAllocAsync(New(Memory), Size, Use(Stream));
    cuMemAllocFromPoolAsync(New(Memory), Size, Use(Pool), Use(Stream));
    cuMemFreeAsync(End(Memory), Use(Stream));

    // Virtual memory
    cuMemCreate(New(Allocation), Pages, AllocationProperties, Zero);
    cuMemRelease(End(Allocation));
    cuMemRetainAllocationHandle(New(Allocation), Address);
    cuMemGetAllocationPropertiesFromHandle(Out, Use(Allocation));
    cuMemAddressReserve(New(Reservation), Pages, Pages, Use(Reservation), Zero);
    cuMemAddressFree(End(Reservation), Pages);
    cuMemMap(Reserved, Pages, Pages, Use(Allocation), Zero);
    cuMemUnmap(Reserved, Pages);
    cuMemSetAccess(Reserved, Pages, Accesses, Count);
    cuMemGetAccess(Out, Accesses, Reserved);
    cuMemExportToShareableHandle(New(Descriptor), Use(Allocation), Flags, Zero);
    cuMemImportFromShareableHandle(New(Allocation), Use(Descriptor), Flags);

    // Modules, libraries and kernels
    cuModuleLoadData(New(Module), Program);
    cuModuleLoadDataEx(New(Module), Program, Pair, LogKeys, LogValues);
    cuModuleUnload(End(Module));
    cuModuleGetFunction(New(Kernel), Use(Module), Name);
    cuModuleGetGlobal_v2(New(Memory), Out, Use(Module), Name);
    cuModuleEnumerateFunctions(Out, Count, Use(Module));
    cuLibraryLoadData(New(Library), Program, LogKeys, LogValues, Pair, Zero, Zero, Zero);
    cuLibraryUnload(End(Library));
    cuLibraryGetKernel(New(Kernel), Use(Library), Name);
    cuLibraryGetModule(New(Module), Use(Library));
    cuLibraryGetGlobal(New(Memory), Out, Use(Library), Name);
    cuKernelGetFunction(New(Kernel), Use(Kernel));
    cuLinkCreate_v2(Pair, LogKeys, LogValues, New(Linker));
    cuLinkAddData_v2(Use(Linker), Flags, Program, ProgramLength, Name, Zero, Zero, Zero);
    cuLinkComplete(Use(Linker), Out, Out);
    cuLinkDestroy(End(Linker));
    cuFuncGetModule(Out, Use(Kernel));
    cuFuncGetAttribute(Out, Number, Use(Kernel));
    cuFuncSetAttribute(Use(Kernel), Number, Size);
    cuFuncGetParamInfo(Use(Kernel), Count, Out, Out);
    cuKernelSetAttribute(Number, Number, Use(Kernel), Device);
    cuOccupancyMaxActiveBlocksPerMultiprocessor(Out, Use(Kernel), Number, Size);
    cuOccupancyMaxPotentialBlockSize(Out, Out, Use(Kernel), Zero, Size, Number);
    cuLaunchKernel(Use(Kernel), Edge, Edge, Edge, Edge, Edge, Edge, Number, Use(Stream), Parameters, Zero);
    cuLaunchCooperativeKernel(Use(Kernel), Edge, Edge, Edge, Edge, Edge, Edge, Number, Use(Stream), Parameters);
    cuLaunchKernelEx(LaunchConfig, Use(Kernel), Parameters, Zero);
    cuFuncSetBlockShape(Use(Kernel), Edge, Edge, Edge);
    cuParamSetSize(Use(Kernel), Number);
    cuParamSeti(Use(Kernel), Number, Number);
    cuParamSetv(Use(Kernel), Number, Numbers, Count);
    cuLaunchGridAsync(Use(Kernel), Edge, Edge, Use(Stream));

    // Graphs
    cuGraphCreate(New(Graph), Zero);
    cuGraphDestroy(End(Graph));
    cuGraphClone(New(Graph), Use(Graph));
    cuGraphNodeFindInClone(New(Node), Use(Node), Use(Graph));
    cuGraphGetNodes(Use(Graph), Out, Capacity);
    cuGraphGetRootNodes(Use(Graph), Out, Capacity);
    cuGraphGetEdges(Use(Graph), Out, Out, Capacity);
    cuGraphNodeGetDependencies(Use(Node), Out, Capacity);
    cuGraphNodeGetDependentNodes(Use(Node), Out, Capacity);
    cuGraphAddDependencies(Use(Graph), Nodes, Nodes, Count);
    cuGraphRemoveDependencies(Use(Graph), Nodes, Nodes, Count);
    cuGraphNodeGetType(Use(Node), Out);
    cuGraphDestroyNode(End(Node));
    cuGraphAddEmptyNode(New(Node), Use(Graph), Nodes, Count);
    cuGraphAddChildGraphNode(New(Node), Use(Graph), Nodes, Count, Use(Graph));
    cuGraphChildGraphNodeGetGraph(Use(Node), New(Graph));
    cuGraphAddKernelNode_v2(New(Node), Use(Graph), Nodes, Count, KernelNode);
    cuGraphAddMemcpyNode(New(Node), Use(Graph), Nodes, Count, Copy3D, Use(Context));
    cuGraphAddMemsetNode(New(Node), Use(Graph), Nodes, Count, FillNode, Use(Context));
    cuGraphAddHostNode(New(Node), Use(Graph), Nodes, Count, HostNode);
    cuGraphAddEventRecordNode(New(Node), Use(Graph), Nodes, Count, Use(Event));
    cuGraphAddEventWaitNode(New(Node), Use(Graph), Nodes, Count, Use(Event));
    cuGraphAddNode(New(Node), Use(Graph), Nodes, Count, AnyNode);
    cuGraphNodeSetParams(Use(Node), AnyNode);
    cuGraphKernelNodeGetParams_v2(Use(Node), Out);
    cuGraphMemsetNodeGetParams(Use(Node), Out);
    cuGraphHostNodeGetParams(Use(Node), Out);
    cuGraphEventRecordNodeGetEvent(Use(Node), Out);
    cuGraphKernelNodeSetParams_v2(Use(Node), KernelNode);
    cuGraphMemcpyNodeSetParams(Use(Node), Copy3D);
    cuGraphMemsetNodeSetParams(Use(Node), FillNode);
    cuGraphInstantiateWithFlags(New(Executable), Use(Graph), Flags);
    cuGraphExecDestroy(End(Executable));
    cuGraphLaunch(Use(Executable), Use(Stream));
    cuGraphUpload(Use(Executable), Use(Stream));
    cuGraphExecUpdate_v2(Use(Executable), Use(Graph), Out);
    cuGraphNodeSetEnabled(Use(Executable), Use(Node), Flags);
    cuGraphNodeGetEnabled(Use(Executable), Use(Node), Out);
    cuGraphExecNodeSetParams(Use(Executable), Use(Node), AnyNode);
    cuGraphExecKernelNodeSetParams_v2(Use(Executable), Use(Node), KernelNode);
    cuGraphExecMemcpyNodeSetParams(Use(Executable), Use(Node), Copy3D, Use(Context));
    cuGraphExecMemsetNodeSetParams(Use(Executable), Use(Node), FillNode, Use(Context));
    cuGraphExecChildGraphNodeSetParams(Use(Executable), Use(Node), Use(Graph));
    cuUserObjectCreate(New(UserObject), Zero, Function, Count, Flags);
    cuUserObjectRetain(Use(UserObject), Count);
    cuUserObjectRelease(Use(UserObject), Count);
    cuGraphRetainUserObject(Use(Graph), Use(UserObject), Count, Flags);
    cuGraphReleaseUserObject(Use(Graph), Use(UserObject), Count);

    // Captures
    cuThreadExchangeStreamCaptureMode(Numbers);
    cuStreamBeginCapture_v2(Use(Stream), Flags);
    cuStreamBeginCaptureToGraph(Use(Stream), Use(Graph), Nodes, Zero, Count, Flags);
    cuStreamEndCapture(Use(Stream), New(Graph));
    cuStreamIsCapturing(Use(Stream), Out);
    cuStreamGetCaptureInfo_v2(Use(Stream), Out, Out, New(Graph), Out, Out);
    cuStreamUpdateCaptureDependencies(Use(Stream), Nodes, Count, Flags);
}
