//! What `cuDeviceGetAttribute` says: the numbers of a device of compute capability 8.0 (those of an A100 where
//! they are limits), with 0 for every feature that is not simulated.

use crate::layout::DeviceProperties;

pub(crate) const COMPUTE_CAPABILITY: (i32, i32) = (8, 0);

// The last CUdevice_attribute of CUDA 13.5.
const LAST: u32 = 161;

// By CUdevice_attribute. An attribute that is missing here and not above LAST is 0.
const VALUES: &[(u32, i32)] = &[
    (1, 1024),         // MAX_THREADS_PER_BLOCK
    (2, 1024),         // MAX_BLOCK_DIM_X
    (3, 1024),         // MAX_BLOCK_DIM_Y
    (4, 64),           // MAX_BLOCK_DIM_Z
    (5, i32::MAX),     // MAX_GRID_DIM_X
    (6, 65_535),       // MAX_GRID_DIM_Y
    (7, 65_535),       // MAX_GRID_DIM_Z
    (8, 49_152),       // MAX_SHARED_MEMORY_PER_BLOCK
    (9, 65_536),       // TOTAL_CONSTANT_MEMORY
    (10, 32),          // WARP_SIZE
    (11, i32::MAX),    // MAX_PITCH
    (12, 65_536),      // MAX_REGISTERS_PER_BLOCK
    (13, 1_410_000),   // CLOCK_RATE
    (14, 512),         // TEXTURE_ALIGNMENT
    (15, 1),           // GPU_OVERLAP
    (16, 108),         // MULTIPROCESSOR_COUNT
    (19, 1),           // CAN_MAP_HOST_MEMORY
    (21, 131_072),     // MAXIMUM_TEXTURE1D_WIDTH
    (22, 131_072),     // MAXIMUM_TEXTURE2D_WIDTH
    (23, 65_536),      // MAXIMUM_TEXTURE2D_HEIGHT
    (24, 16_384),      // MAXIMUM_TEXTURE3D_WIDTH
    (25, 16_384),      // MAXIMUM_TEXTURE3D_HEIGHT
    (26, 16_384),      // MAXIMUM_TEXTURE3D_DEPTH
    (27, 32_768),      // MAXIMUM_TEXTURE2D_LAYERED_WIDTH
    (28, 32_768),      // MAXIMUM_TEXTURE2D_LAYERED_HEIGHT
    (29, 2048),        // MAXIMUM_TEXTURE2D_LAYERED_LAYERS
    (30, 512),         // SURFACE_ALIGNMENT
    (31, 1),           // CONCURRENT_KERNELS
    (36, 1_215_000),   // MEMORY_CLOCK_RATE
    (37, 5120),        // GLOBAL_MEMORY_BUS_WIDTH
    (38, 41_943_040),  // L2_CACHE_SIZE
    (39, 2048),        // MAX_THREADS_PER_MULTIPROCESSOR
    (40, 3),           // ASYNC_ENGINE_COUNT
    (41, 1),           // UNIFIED_ADDRESSING
    (42, 32_768),      // MAXIMUM_TEXTURE1D_LAYERED_WIDTH
    (43, 2048),        // MAXIMUM_TEXTURE1D_LAYERED_LAYERS
    (45, 32_768),      // MAXIMUM_TEXTURE2D_GATHER_WIDTH
    (46, 32_768),      // MAXIMUM_TEXTURE2D_GATHER_HEIGHT
    (47, 8192),        // MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE
    (48, 8192),        // MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE
    (49, 32_768),      // MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE
    (51, 32),          // TEXTURE_PITCH_ALIGNMENT
    (52, 32_768),      // MAXIMUM_TEXTURECUBEMAP_WIDTH
    (53, 32_768),      // MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH
    (54, 2046),        // MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS
    (55, 32_768),      // MAXIMUM_SURFACE1D_WIDTH
    (56, 131_072),     // MAXIMUM_SURFACE2D_WIDTH
    (57, 65_536),      // MAXIMUM_SURFACE2D_HEIGHT
    (58, 16_384),      // MAXIMUM_SURFACE3D_WIDTH
    (59, 16_384),      // MAXIMUM_SURFACE3D_HEIGHT
    (60, 16_384),      // MAXIMUM_SURFACE3D_DEPTH
    (61, 32_768),      // MAXIMUM_SURFACE1D_LAYERED_WIDTH
    (62, 2048),        // MAXIMUM_SURFACE1D_LAYERED_LAYERS
    (63, 32_768),      // MAXIMUM_SURFACE2D_LAYERED_WIDTH
    (64, 32_768),      // MAXIMUM_SURFACE2D_LAYERED_HEIGHT
    (65, 2048),        // MAXIMUM_SURFACE2D_LAYERED_LAYERS
    (66, 32_768),      // MAXIMUM_SURFACECUBEMAP_WIDTH
    (67, 32_768),      // MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH
    (68, 2046),        // MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS
    (69, 268_435_456), // MAXIMUM_TEXTURE1D_LINEAR_WIDTH
    (70, 131_072),     // MAXIMUM_TEXTURE2D_LINEAR_WIDTH
    (71, 65_000),      // MAXIMUM_TEXTURE2D_LINEAR_HEIGHT
    (72, 2_097_120),   // MAXIMUM_TEXTURE2D_LINEAR_PITCH
    (73, 32_768),      // MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH
    (74, 32_768),      // MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT
    (75, COMPUTE_CAPABILITY.0),
    (76, COMPUTE_CAPABILITY.1),
    (77, 32_768),       // MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH
    (78, 1),            // STREAM_PRIORITIES_SUPPORTED
    (79, 1),            // GLOBAL_L1_CACHE_SUPPORTED
    (80, 1),            // LOCAL_L1_CACHE_SUPPORTED
    (81, 167_936),      // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
    (82, 65_536),       // MAX_REGISTERS_PER_MULTIPROCESSOR
    (83, 1),            // MANAGED_MEMORY
    (87, 2),            // SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO
    (89, 1),            // CONCURRENT_MANAGED_ACCESS
    (90, 1),            // COMPUTE_PREEMPTION_SUPPORTED
    (91, 1),            // CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
    (92, 1),            // CAN_USE_STREAM_MEM_OPS_V1
    (93, 1),            // CAN_USE_64_BIT_STREAM_MEM_OPS_V1
    (94, 1),            // CAN_USE_STREAM_WAIT_VALUE_NOR_V1
    (95, 1),            // COOPERATIVE_LAUNCH
    (97, 166_912),      // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    (99, 1),            // HOST_REGISTER_SUPPORTED
    (106, 32),          // MAX_BLOCKS_PER_MULTIPROCESSOR
    (108, 26_214_400),  // MAX_PERSISTING_L2_CACHE_SIZE
    (109, 134_213_632), // MAX_ACCESS_POLICY_WINDOW_SIZE
    (111, 1024),        // RESERVED_SHARED_MEMORY_PER_BLOCK
    (113, 1),           // READ_ONLY_HOST_REGISTER_SUPPORTED
    (122, 1),           // CAN_USE_64_BIT_STREAM_MEM_OPS
    (123, 1),           // CAN_USE_STREAM_WAIT_VALUE_NOR
    (126, 1),           // MEM_SYNC_DOMAIN_COUNT
    (131, -1),          // NUMA_ID
];

/// The attribute's value; `None` for an attribute that CUDA 13.5 does not know.
pub(super) fn value(attribute: u32) -> Option<i32> {
    if !(1..=LAST).contains(&attribute) {
        return None;
    }
    Some(VALUES.iter().find(|(key, _)| *key == attribute).map_or(0, |(_, value)| *value))
}

/// The same numbers in the form of CUDA 2.
pub(super) fn properties() -> DeviceProperties {
    let get = |attribute| value(attribute).unwrap_or_default();
    DeviceProperties {
        max_threads_per_block: get(1),
        max_threads: [get(2), get(3), get(4)],
        max_grid: [get(5), get(6), get(7)],
        shared_memory_per_block: get(8),
        constant_memory: get(9),
        simd_width: get(10),
        memory_pitch: get(11),
        registers_per_block: get(12),
        clock_rate: get(13),
        texture_alignment: get(14),
    }
}
