//! Helpers of the simulator's tests, and of other tests that call CUDA and Vulkan, on the simulator or on a GPU.
//!
//! | module | contents |
//! |---|---|
//! | [`Random`], [`pattern`], [`codes`] | reproducible numbers and bytes; result codes of both drivers |
//! | [`child`], [`profile`], [`fork`] | tests of several processes |
//! | [`driver`] | the CUDA driver of this process, and the helpers' calls of it |
//! | [`cuda`], [`vulkan`] | contexts, streams and copies that release themselves; memory that CUDA imports from Vulkan |
//! | [`simcuda()`], [`vklayer()`] | ledger and fault injection of the driver and of the Vulkan layer |
//! | [`skip()`], [`skip!`], [`simulated!`] | skips with a reason |
//!
//! A failed call panics at the caller's line, with its name and the driver's token.

pub mod child;
pub mod codes;
mod controls;
pub mod cuda;
pub mod driver;
pub mod fork;
pub mod profile;
mod random;
mod simcuda;
mod skip;
mod vklayer;
pub mod vulkan;

pub use controls::Controls;
pub use random::{Random, pattern};
pub use simcuda::{SimCuda, simcuda};
pub use skip::{Passed, skip};
pub use vklayer::{VkLayer, vklayer};

/// The result of a test.
pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;
