//! The profiles: the properties that each gives to the driver's device. Pure data.
//!
//! Types and heaps are listed as NVIDIA's drivers list those of a discrete GPU: system memory that the CPU cannot
//! see, video memory, system memory, cached system memory, and video memory that the CPU sees through the BAR. Where a
//! list is not of a public report, its profile says so.
#![forbid(unsafe_code)]

use std::ffi::CStr;
use std::sync::LazyLock;

use ash::khr::external_memory_fd;
use ash::vk::{MemoryPropertyFlags as Property, PhysicalDeviceType, UUID_SIZE};

use simcommon::label::FOREIGN;
use simcommon::stop;

/// The simulated properties of the devices.
pub(super) struct Profile {
    name: &'static str,
    pub(super) heaps: &'static [Heap],
    pub(super) types: &'static [Type],
    pub(super) device_type: PhysicalDeviceType,
    /// `nonCoherentAtomSize` in bytes.
    pub(super) atom: u64,
    /// The devices in Vulkan's order.
    pub(super) devices: &'static [Identity],
    /// Extensions that the devices lack.
    pub(super) hidden: &'static [&'static CStr],
}

/// A memory heap.
pub(super) struct Heap {
    /// In bytes.
    pub(super) size: u64,
    /// The driver's own share at the end of the heap, in bytes: `VK_EXT_memory_budget` reports a budget that is smaller.
    pub(super) kept: u64,
    /// The allocations of other processes: starts and ends in bytes. They count as usage, and are not in the budget.
    pub(super) others: &'static [(u64, u64)],
    pub(super) device_local: bool,
}

/// A memory type.
pub(super) struct Type {
    pub(super) flags: Property,
    pub(super) heap: usize,
}

impl Type {
    const fn of(heap: usize, flags: &[Property]) -> Self {
        let mut bits = 0;
        let mut rest = flags;
        while let [flag, others @ ..] = rest {
            bits |= flag.as_raw();
            rest = others;
        }
        Self { flags: Property::from_raw(bits), heap }
    }

    pub(super) fn is_visible(&self) -> bool {
        self.flags.contains(Property::HOST_VISIBLE)
    }

    pub(super) fn is_system_memory(&self) -> bool {
        !self.flags.contains(Property::DEVICE_LOCAL)
    }

    pub(super) fn is_coherent(&self) -> bool {
        self.flags.contains(Property::HOST_COHERENT)
    }
}

/// The identity that a device reports.
pub(super) enum Identity {
    /// The CUDA device with this number. The simulated driver counts in the last byte, too.
    Cuda(u8),
    /// One that CUDA does not know.
    Foreign,
}

impl Identity {
    /// The device's UUID, made of the driver's.
    pub(super) fn uuid(&self, mut uuid: [u8; UUID_SIZE]) -> [u8; UUID_SIZE] {
        match self {
            Self::Cuda(number) => uuid[UUID_SIZE - 1] = uuid[UUID_SIZE - 1].wrapping_add(*number),
            Self::Foreign => uuid[0] = !uuid[0],
        }
        uuid
    }

    /// The number of the CUDA device in labels.
    pub(super) fn number(&self) -> u8 {
        match self {
            Self::Cuda(number) => *number,
            Self::Foreign => FOREIGN,
        }
    }
}

const LOCAL: Property = Property::DEVICE_LOCAL;
const VISIBLE: Property = Property::HOST_VISIBLE;
const COHERENT: Property = Property::HOST_COHERENT;
const CACHED: Property = Property::HOST_CACHED;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

const VIDEO: Heap = Heap { size: 8 * GIB, kept: 512 * MIB, others: &[], device_local: true };
const SYSTEM: Heap = Heap { size: 16 * GIB, kept: 0, others: &[], device_local: false };
/// NVIDIA's BAR1 without Resizable BAR, with a desktop's share. Sizes as on an RTX 2070 Super (iree-org/iree#5268), where
/// budget and usage added up to the size before the process allocated anything.
const BAR: Heap = Heap {
    size: 246 * MIB,
    kept: 0,
    others: &[(0, 8 * MIB), (120 * MIB, 120 * MIB + 22272 * 1024)],
    device_local: true,
};

/// A GPU with Resizable BAR: the CPU sees all of the video memory, write-combined.
const REBAR: Profile = Profile {
    name: "rebar",
    heaps: &[VIDEO, SYSTEM],
    types: &[
        Type::of(1, &[]),
        Type::of(0, &[LOCAL]),
        Type::of(1, &[VISIBLE, COHERENT]),
        Type::of(1, &[VISIBLE, COHERENT, CACHED]),
        Type::of(0, &[LOCAL, VISIBLE, COHERENT]),
    ],
    device_type: PhysicalDeviceType::DISCRETE_GPU,
    atom: 64,
    devices: &[Identity::Cuda(0)],
    hidden: &[],
};

/// A GPU without Resizable BAR.
const BAR256: Profile = Profile {
    name: "bar256",
    heaps: &[VIDEO, SYSTEM, BAR],
    types: &[
        Type::of(1, &[]),
        Type::of(0, &[LOCAL]),
        Type::of(1, &[VISIBLE, COHERENT]),
        Type::of(1, &[VISIBLE, COHERENT, CACHED]),
        Type::of(2, &[LOCAL, VISIBLE, COHERENT]),
    ],
    ..REBAR
};

/// The same list of types with nothing else in the BAR, whose heap is smaller: an RTX 2080 (haasn/libplacebo#317).
/// Drivers 5xx list 5 types and 3 heaps (KhronosGroup/Vulkan-ValidationLayers#9499).
const TYPES_5: Profile = Profile {
    name: "types-5",
    heaps: &[VIDEO, SYSTEM, Heap { size: 214 * MIB, kept: 0, others: &[], device_local: true }],
    ..BAR256
};

/// Older drivers: a type for each use of system memory, two of video memory (KhronosGroup/Vulkan-Docs#938), and mapped
/// memory last (iree-org/iree#5268).
const TYPES_11: Profile = Profile {
    name: "types-11",
    types: &[
        Type::of(1, &[]),
        Type::of(1, &[]),
        Type::of(1, &[]),
        Type::of(1, &[]),
        Type::of(1, &[]),
        Type::of(1, &[]),
        Type::of(0, &[LOCAL]),
        Type::of(0, &[LOCAL]),
        Type::of(1, &[VISIBLE, COHERENT]),
        Type::of(1, &[VISIBLE, COHERENT, CACHED]),
        Type::of(2, &[LOCAL, VISIBLE, COHERENT]),
    ],
    ..TYPES_5
};

/// A GPU whose video memory the CPU cannot see: 2 heaps and 11 types, as a T4 (SaschaWillems/Vulkan#734).
const NO_BAR: Profile = Profile {
    name: "no-bar",
    types: &[
        Type::of(1, &[]),
        Type::of(1, &[]),
        Type::of(1, &[]),
        Type::of(1, &[]),
        Type::of(1, &[]),
        Type::of(1, &[]),
        Type::of(1, &[]),
        Type::of(0, &[LOCAL]),
        Type::of(0, &[LOCAL]),
        Type::of(1, &[VISIBLE, COHERENT]),
        Type::of(1, &[VISIBLE, COHERENT, CACHED]),
    ],
    ..REBAR
};

/// One memory for CPU and GPU, which the CPU caches. No listing of a GB10 was found; the size is that of
/// leptonai/gpud#1170.
const GB10: Profile = Profile {
    name: "gb10",
    heaps: &[Heap { size: 119 * GIB, kept: 4 * GIB, others: &[], device_local: true }],
    types: &[Type::of(0, &[LOCAL]), Type::of(0, &[LOCAL, VISIBLE, COHERENT, CACHED])],
    device_type: PhysicalDeviceType::INTEGRATED_GPU,
    ..REBAR
};

/// Video memory of its own, which the CPU caches, too. No listing of a GH200 was found.
const GH200: Profile = Profile {
    name: "gh200",
    heaps: &[Heap { size: 96 * GIB, kept: 512 * MIB, others: &[], device_local: true }, SYSTEM],
    types: &[
        Type::of(1, &[]),
        Type::of(0, &[LOCAL]),
        Type::of(1, &[VISIBLE, COHERENT]),
        Type::of(1, &[VISIBLE, COHERENT, CACHED]),
        Type::of(0, &[LOCAL, VISIBLE, COHERENT, CACHED]),
    ],
    ..REBAR
};

/// What both sides see is not coherent, with the largest atom that Vulkan allows (specification, "Required Limits").
/// Vulkan demands one coherent type: it is of no kind that vkgdr has.
const NON_COHERENT: Profile = Profile {
    name: "non-coherent",
    types: &[
        Type::of(1, &[]),
        Type::of(0, &[LOCAL]),
        Type::of(1, &[VISIBLE, COHERENT]),
        Type::of(1, &[VISIBLE, CACHED]),
        Type::of(0, &[LOCAL, VISIBLE]),
    ],
    atom: 256,
    ..REBAR
};

/// Two GPUs, in CUDA's order.
const TWO_GPUS: Profile = Profile { name: "two-gpus", devices: &[Identity::Cuda(0), Identity::Cuda(1)], ..REBAR };

/// Two GPUs that Vulkan lists the other way round.
const TWO_GPUS_SWAPPED: Profile =
    Profile { name: "two-gpus-swapped", devices: &[Identity::Cuda(1), Identity::Cuda(0)], ..REBAR };

/// Vulkan's device is not CUDA's.
const FOREIGN_UUID: Profile = Profile { name: "foreign-uuid", devices: &[Identity::Foreign], ..REBAR };

/// A driver that cannot export memory.
const NO_EXTERNAL_MEMORY: Profile =
    Profile { name: "no-external-memory", hidden: &[external_memory_fd::NAME], ..REBAR };

/// CUDA exports device memory that the host can map; the simulated driver's part.
const DMA_BUF: Profile = Profile { name: "dma-buf", ..REBAR };

/// CUDA exports device memory that the host cannot map; the simulated driver's part.
const DMA_BUF_NO_MMAP: Profile = Profile { name: "dma-buf-no-mmap", ..REBAR };

/// As `dma-buf`, and the CPU caches what it maps.
const DMA_BUF_CACHED: Profile = Profile { name: "dma-buf-cached", ..GH200 };

/// As `dma-buf`, without Resizable BAR.
const DMA_BUF_BAR256: Profile = Profile { name: "dma-buf-bar256", ..BAR256 };

const ALL: [&Profile; 16] = [
    &REBAR,
    &BAR256,
    &NO_BAR,
    &TYPES_5,
    &TYPES_11,
    &GB10,
    &GH200,
    &NON_COHERENT,
    &TWO_GPUS,
    &TWO_GPUS_SWAPPED,
    &FOREIGN_UUID,
    &NO_EXTERNAL_MEMORY,
    &DMA_BUF,
    &DMA_BUF_NO_MMAP,
    &DMA_BUF_CACHED,
    &DMA_BUF_BAR256,
];

/// Names the profile.
const VARIABLE: &str = "VKLAYER_PROFILE";

/// The profile that the environment names. Without one the layer would hide nothing and a test prove nothing, so that
/// ends the process.
pub(super) fn profile() -> &'static Profile {
    static PROFILE: LazyLock<&Profile> = LazyLock::new(|| {
        let wanted = std::env::var(VARIABLE).unwrap_or_default();
        ALL.into_iter().find(|profile| profile.name == wanted).unwrap_or_else(|| {
            let names: Vec<_> = ALL.iter().map(|profile| profile.name).collect();
            stop!("vklayer: {VARIABLE} is {wanted:?}; it must be one of {}", names.join(", "))
        })
    });
    *PROFILE
}
