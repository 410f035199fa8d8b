//! The library on other GPUs: each test runs under a device profile of the Vulkan layer `VK_LAYER_VKGDR_profile`
//! (`sim/vulkan/src/profile.rs`).
//!
//! Each test starts itself again through `sim/run` with `VKGDR_TEST_PROFILE`, and the child runs the check. The tests
//! are skipped on a real driver.
#![expect(unsafe_code, reason = "calls Vulkan, and writes through host pointers")]

mod devices;
mod dma_buf;
mod existing;
mod kinds;
mod layer;
mod non_coherent;
mod raw;
mod registered;
mod sharing;

use support::profile::under;
