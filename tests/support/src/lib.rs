//! Helpers of vkgdr's tests and benches. Those that know nothing of vkgdr are those of the simulator's tests, in
//! `sim/tests/support`, and are re-exported.
//!
//! | module | contents |
//! |---|---|
//! | [`open`], [`host_read`], [`device_read`], … | an open device, and bytes as either side sees them |
//! | [`refused`], [`assert_says`] | expected errors |
//! | [`ledger`], [`state`], [`resources`] | live objects, driver calls, descriptors and mappings: what must not leak |
//! | [`blocking`], [`ranges`], [`logs`] | whether a call waits, ranges at the edges, captured log lines |
//! | [`step`] | the steps of random programs |
//! | [`fork`], [`socket`] | forked children that are refused, messages with descriptors |
//! | [`Shortage`] | drivers that have no room for mapped memory |
//! | [`test_all`], [`amount`], [`number`] | work of longer runs only, or as much as asked for |
//!
//! A failed call panics at the caller's line, with its name and the driver's token.

mod amount;
pub mod blocking;
mod check;
pub mod fork;
pub mod ledger;
pub mod logs;
mod memory;
pub mod ranges;
pub mod resources;
mod shortage;
pub mod socket;
pub mod state;
pub mod step;

pub use amount::{amount, number, test_all};
pub use check::{assert_says, refused};
pub use memory::{
    HOST_VIEWS, bind, device_read, free, host_read, host_write, import, imported, is_imported, linear, map_existing,
    memory_of, open, open_coherent, record_use, row, supported,
};
pub use shortage::Shortage;
pub use simsupport::{
    Controls, Random, Result, SimCuda, VkLayer, child, codes, cuda, driver, pattern, profile, simcuda, skip, vklayer,
};
pub use tempfile::{TempDir, tempdir};
