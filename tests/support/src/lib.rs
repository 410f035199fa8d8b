//! Helpers of vkgdr's tests and benches.
//!
//! | module | contents |
//! |---|---|
//! | [`open`], [`host_read`], [`device_read`], … | an open device, and bytes as either side sees them |
//! | [`refused`], [`assert_says`], [`Random`], [`pattern`] | expected errors, and reproducible bytes |
//! | [`ledger`], [`state`], [`resources`] | live objects, driver calls, descriptors and mappings: what must not leak |
//! | [`codes`] | result codes of both drivers |
//! | [`blocking`], [`ranges`], [`logs`] | whether a call waits, ranges at the edges, captured log lines |
//! | [`step`] | the steps of random programs |
//! | [`child`], [`profile`], [`fork`], [`socket`] | tests of several processes |
//! | [`driver`] | the CUDA driver of this process, and the helpers' calls of it |
//! | [`cuda`] | contexts, streams and copies that release themselves |
//! | [`simcuda()`], [`vklayer()`], [`Shortage`] | ledger and fault injection of the simulated driver and of the Vulkan layer |
//! | [`skip()`], [`test_all`], [`amount`], [`number`] | skips with a reason; work of longer runs only, or as much as asked for |
//!
//! A failed call panics at the caller's line, with its name and the driver's token.

pub mod blocking;
mod check;
pub mod child;
pub mod codes;
pub mod cuda;
pub mod driver;
pub mod fork;
pub mod ledger;
pub mod logs;
mod memory;
pub mod profile;
mod random;
pub mod ranges;
pub mod resources;
mod shortage;
mod skip;
pub mod socket;
pub mod state;
pub mod step;

pub use check::{Result, assert_says, refused};
pub use memory::{
    HOST_VIEWS, bind, device_read, host_read, host_write, import, imported, is_imported, linear, map_existing,
    memory_of, open, open_coherent, record_use, refuse_imports, row, supported,
};
pub use random::{Random, pattern};
pub use shortage::Shortage;
pub use sim_controls::{Controls, VkLayer, simcuda, vklayer};
pub use skip::{amount, number, skip, test_all};
