//! Structures of the driver API as it passes them. Enums are integers here, since a value outside a Rust enum
//! would be undefined behaviour; the sizes are checked against cudarc's own at compile time.

use std::mem::offset_of;

use cudarc::driver::sys;

use crate::ffi::{HostFunction, In};

/// `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ExternalHandle {
    pub(crate) kind: u32,
    // The union: a descriptor in its first four bytes, or two pointers on Windows.
    handle: [u64; 2],
    pub(crate) size: u64,
    pub(crate) flags: u32,
    _reserved: [u32; 16],
}

impl ExternalHandle {
    /// The union's file descriptor.
    pub(crate) fn fd(&self) -> i32 {
        first_int(self.handle[0])
    }
}

/// The `int` at the start of a union.
fn first_int(word: u64) -> i32 {
    let [a, b, c, d, ..] = word.to_ne_bytes();
    i32::from_ne_bytes([a, b, c, d])
}

/// `CUDA_EXTERNAL_MEMORY_BUFFER_DESC`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ExternalBuffer {
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) flags: u32,
    _reserved: [u32; 16],
}

/// `CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SemaphoreHandle {
    pub(crate) kind: u32,
    // The union, as in `ExternalHandle`.
    handle: [u64; 2],
    pub(crate) flags: u32,
    _reserved: [u32; 16],
}

impl SemaphoreHandle {
    /// The union's file descriptor.
    pub(crate) fn fd(&self) -> i32 {
        first_int(self.handle[0])
    }
}

/// `CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS` and `CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SemaphoreParameters {
    /// Of a fence, that is a timeline semaphore.
    pub(crate) value: u64,
    _other_types: [u64; 8],
    pub(crate) flags: u32,
    _reserved: [u32; 16],
}

/// `CUgraphNodeParams` up to its union.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct NodeParameters {
    /// `CUgraphNodeType`.
    pub(crate) kind: u32,
    _reserved: [u32; 3],
    pub(crate) union: [u64; 29],
    _reserved_too: u64,
}

/// One side of a `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Side2D {
    pub(crate) x: usize,
    pub(crate) y: usize,
    pub(crate) memory: u32,
    pub(crate) host: usize,
    pub(crate) device: usize,
    _array: usize,
    pub(crate) pitch: usize,
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Copy2D {
    pub(crate) source: Side2D,
    pub(crate) target: Side2D,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// One side of a `CUDA_MEMCPY3D` or `CUDA_MEMCPY3D_PEER`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Side3D {
    pub(crate) x: usize,
    pub(crate) y: usize,
    pub(crate) z: usize,
    _level: usize,
    pub(crate) memory: u32,
    pub(crate) host: usize,
    pub(crate) device: usize,
    _array: usize,
    // Reserved in a CUDA_MEMCPY3D, the context in a CUDA_MEMCPY3D_PEER.
    _context: usize,
    pub(crate) pitch: usize,
    pub(crate) height: usize,
}

impl Side3D {
    /// A 2D side as the only slice of a 3D one.
    pub(crate) fn flat(side: &Side2D) -> Side3D {
        let Side2D { x, y, memory, host, device, pitch, .. } = *side;
        Side3D { x, y, z: 0, _level: 0, memory, host, device, _array: 0, _context: 0, pitch, height: 0 }
    }
}

/// `CUDA_MEMCPY3D` and `CUDA_MEMCPY3D_PEER`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Copy3D {
    pub(crate) source: Side3D,
    pub(crate) target: Side3D,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
}

/// `CUctxCreateParams`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ContextParameters {
    pub(crate) affinities: usize,
    pub(crate) affinity_count: i32,
    pub(crate) graphics: usize,
}

/// `CUmemLocation`. Passed by value, type and number share a register.
#[repr(C)]
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Location {
    pub(crate) kind: u32,
    pub(crate) id: i32,
}

impl Location {
    pub(crate) const ON_DEVICE: u32 = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE as u32;
    /// The largest type that CUDA defines.
    pub(crate) const LAST: u32 = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT as u32;
}

/// `CUmemAllocationType`.
pub(crate) const PINNED: u32 = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED as u32;
/// Of CUDA 13.
pub(crate) const MANAGED: u32 = 2;

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Access {
    pub(crate) location: Location,
    pub(crate) flags: u32,
}

impl Access {
    pub(crate) const NONE: u32 = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE as u32;
    pub(crate) const READ: u32 = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ as u32;
    pub(crate) const READ_WRITE: u32 = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE as u32;
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AllocationProperties {
    pub(crate) kind: u32,
    pub(crate) handle_types: u32,
    pub(crate) location: Location,
    _metadata: usize,
    pub(crate) compression: u8,
    /// Whether network cards shall reach the memory.
    pub(crate) rdma: u8,
    pub(crate) usage: u16,
    _reserved: [u8; 4],
}

impl AllocationProperties {
    /// Without any of the optional flags.
    pub(crate) fn pinned(handle_types: u32, location: Location) -> AllocationProperties {
        let (kind, compression, rdma, usage) = (PINNED, 0, 0, 0);
        AllocationProperties { kind, handle_types, location, _metadata: 0, compression, rdma, usage, _reserved: [0; 4] }
    }
}

/// `CUmemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PoolProperties {
    pub(crate) allocation_type: u32,
    pub(crate) handle_types: u32,
    pub(crate) location: Location,
    _security: usize,
    /// In bytes; 0 for no limit.
    pub(crate) most: usize,
    _usage: u16,
    _reserved: [u8; 54],
}

/// `CUDA_KERNEL_NODE_PARAMS` of CUDA 12, without the kernel's context.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct KernelParameters {
    pub(crate) function: usize,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) dynamic_shared: u32,
    pub(crate) pointers: In<In<u8>>,
    pub(crate) extra: In<In<u8>>,
    pub(crate) kernel: usize,
    pub(crate) context: usize,
}

/// The form before CUDA 12.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct KernelParametersV1 {
    function: usize,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared: u32,
    pointers: In<In<u8>>,
    extra: In<In<u8>>,
}

impl KernelParametersV1 {
    pub(crate) fn widened(self) -> KernelParameters {
        let KernelParametersV1 { function, grid, block, dynamic_shared, pointers, extra } = self;
        KernelParameters { function, grid, block, dynamic_shared, pointers, extra, kernel: 0, context: 0 }
    }
}

impl KernelParameters {
    pub(crate) fn narrowed(self) -> KernelParametersV1 {
        let KernelParameters { function, grid, block, dynamic_shared, pointers, extra, .. } = self;
        KernelParametersV1 { function, grid, block, dynamic_shared, pointers, extra }
    }
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct FillParameters {
    pub(crate) start: usize,
    pub(crate) pitch: usize,
    pub(crate) value: u32,
    /// Bytes of an element: 1, 2 or 4.
    pub(crate) element: u32,
    /// In elements.
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// `CUDA_HOST_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct HostParameters {
    pub(crate) function: HostFunction,
    pub(crate) argument: usize,
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) dynamic_shared: u32,
    pub(crate) stream: usize,
    pub(crate) attributes: In<LaunchAttribute>,
    pub(crate) attribute_count: u32,
}

/// `CUlaunchAttribute`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LaunchAttribute {
    pub(crate) id: u32,
    _pad: u32,
    // The union.
    value: [u64; 8],
}

impl LaunchAttribute {
    /// The union's first three words: a cluster's shape, or a flag in the first.
    pub(crate) fn three_words(&self) -> [u32; 3] {
        let [a, b, c, d, e, f, g, h] = self.value[0].to_ne_bytes();
        let [i, j, k, l, ..] = self.value[1].to_ne_bytes();
        [[a, b, c, d], [e, f, g, h], [i, j, k, l]].map(u32::from_ne_bytes)
    }
}

const _: () = {
    assert!(size_of::<ExternalHandle>() == size_of::<sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC>());
    assert!(size_of::<ExternalBuffer>() == size_of::<sys::CUDA_EXTERNAL_MEMORY_BUFFER_DESC>());
    assert!(size_of::<SemaphoreHandle>() == size_of::<sys::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC>());
    assert!(size_of::<SemaphoreParameters>() == size_of::<sys::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS>());
    assert!(offset_of!(SemaphoreParameters, flags) == offset_of!(sys::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, flags));
    assert!(size_of::<SemaphoreParameters>() == size_of::<sys::CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS>());
    assert!(offset_of!(SemaphoreParameters, flags) == offset_of!(sys::CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, flags));
    assert!(size_of::<NodeParameters>() == size_of::<sys::CUgraphNodeParams>());
    assert!(size_of::<Copy2D>() == size_of::<sys::CUDA_MEMCPY2D>());
    assert!(size_of::<Copy3D>() == size_of::<sys::CUDA_MEMCPY3D>());
    assert!(size_of::<Copy3D>() == size_of::<sys::CUDA_MEMCPY3D_PEER>());
    assert!(size_of::<Location>() == size_of::<sys::CUmemLocation>());
    assert!(size_of::<Access>() == size_of::<sys::CUmemAccessDesc>());
    assert!(size_of::<AllocationProperties>() == size_of::<sys::CUmemAllocationProp>());
    assert!(offset_of!(AllocationProperties, compression) == offset_of!(sys::CUmemAllocationProp, allocFlags));
    assert!(size_of::<PoolProperties>() == size_of::<sys::CUmemPoolProps>());
    assert!(size_of::<KernelParameters>() == size_of::<sys::CUDA_KERNEL_NODE_PARAMS_v2>());
    assert!(size_of::<KernelParametersV1>() == size_of::<sys::CUDA_KERNEL_NODE_PARAMS_v1>());
    assert!(size_of::<FillParameters>() == size_of::<sys::CUDA_MEMSET_NODE_PARAMS_v1>());
    assert!(size_of::<HostParameters>() == size_of::<sys::CUDA_HOST_NODE_PARAMS_v1>());
    assert!(size_of::<LaunchConfig>() == size_of::<sys::CUlaunchConfig>());
    assert!(offset_of!(LaunchConfig, stream) == offset_of!(sys::CUlaunchConfig, hStream));
    assert!(offset_of!(LaunchConfig, attribute_count) == offset_of!(sys::CUlaunchConfig, numAttrs));
    assert!(size_of::<LaunchAttribute>() == size_of::<sys::CUlaunchAttribute>());
    assert!(offset_of!(LaunchAttribute, value) == offset_of!(sys::CUlaunchAttribute, value));
};
