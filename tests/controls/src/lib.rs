//! Control functions of the simulated GPU: live objects, counts of calls and injected faults, of the CUDA driver and of the
//! Vulkan layer. They are found by name in the libraries that this process has loaded, so that nothing of the simulator is
//! linked.

mod controls;
mod simcuda;
mod vklayer;

pub use controls::Controls;
pub use simcuda::simcuda;
pub use vklayer::{VkLayer, vklayer};
