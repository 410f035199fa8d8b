//! The part of a profile that shows in CUDA. `VKLAYER_PROFILE` names the profile, whose other part is the layer's
//! (`sim/vulkan/src/profile`).

use std::sync::LazyLock;

use crate::code::{Code, INVALID_VALUE, NOT_SUPPORTED};
use crate::settings::settings;

/// The device's properties under a profile.
pub(crate) struct Profile {
    name: &'static str,
    /// Whether Vulkan has the device, too.
    pub(crate) has_vulkan: bool,
    /// Whether device memory can be exported as a dma-buf.
    pub(crate) dma_buf: bool,
    /// Whether the host can map a dma-buf of device memory.
    pub(crate) dma_buf_mmap: bool,
    /// The error of an export where there is none.
    pub(crate) dma_buf_refusal: Code,
    /// Whether the device is coherent with the host's caches, which map its memory.
    pub(crate) coherent: bool,
    /// The version of the driver, unless the environment gives another.
    pub(crate) driver_version: i32,
}

impl Profile {
    /// Whether network cards reach device memory: workstations' and data centres' GPUs, whose dma-bufs can be mapped, too.
    pub(crate) fn gpu_direct_rdma(&self) -> bool {
        self.dma_buf_mmap
    }
}

/// Without a profile, and under all that are not listed.
const PLAIN: Profile = Profile {
    name: "",
    has_vulkan: true,
    dma_buf: false,
    dma_buf_mmap: false,
    dma_buf_refusal: NOT_SUPPORTED,
    coherent: false,
    driver_version: 13_000,
};

/// Exported device memory can be mapped: an RTX A6000 with an R610 driver.
const DMA_BUF: Profile =
    Profile { name: "dma-buf", dma_buf: true, dma_buf_mmap: true, driver_version: DMA_BUF_MMAP, ..PLAIN };

/// The first version that knows of mapping dma-bufs.
pub(crate) const DMA_BUF_MMAP: i32 = 13_030;

static ALL: [Profile; 7] = [
    DMA_BUF,
    // An RTX 3090 with the same driver.
    Profile { name: "dma-buf-no-mmap", dma_buf_mmap: false, ..DMA_BUF },
    Profile { name: "dma-buf-cached", coherent: true, ..DMA_BUF },
    Profile { name: "dma-buf-no-vulkan", has_vulkan: false, ..DMA_BUF },
    Profile { name: "dma-buf-bar256", ..DMA_BUF },
    Profile { name: "gb10", dma_buf_refusal: INVALID_VALUE, ..PLAIN },
    Profile { name: "no-vulkan", has_vulkan: false, ..PLAIN },
];

/// The profile of this process.
pub(crate) fn profile() -> &'static Profile {
    static PROFILE: LazyLock<&Profile> = LazyLock::new(|| {
        let name = std::env::var("VKLAYER_PROFILE").unwrap_or_default();
        ALL.iter().find(|profile| profile.name == name).unwrap_or(const { &PLAIN })
    });
    *PROFILE
}

/// The driver's version: `SIMCUDA_DRIVER_VERSION`, or the profile's.
pub(crate) fn driver_version() -> i32 {
    settings().driver_version.unwrap_or(profile().driver_version)
}
