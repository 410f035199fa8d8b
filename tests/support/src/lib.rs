//! What the tests, benches and examples of vkgdr share.
//!
//! | module | what it gives |
//! |---|---|
//! | [`driver`] | which CUDA driver this process runs on, and the checked calls the helpers make |
//! | [`cuda`] | contexts, streams and copies that clean up after themselves |
//! | [`simcuda()`], [`vklayer()`] | ledger and fault injection of the simulated driver and of the Vulkan layer |
//! | [`resources`] | what the process holds: file descriptors and mappings |
//! | [`skip!`], [`skip_without_gpu!`] | tests that cannot run here, and say why |
//!
//! Everything here is for tests: a call that fails panics with its name and the driver's token, at the caller's
//! line. What is under test stays in the tests.

mod controls;
pub mod cuda;
pub mod driver;
pub mod resources;
mod simcuda;
mod skip;
mod vklayer;

pub use controls::Controls;
pub use simcuda::{SimCuda, simcuda};
pub use skip::{require_gpu, skip_reason_is_no_gpu};
pub use vklayer::{VkLayer, vklayer};
