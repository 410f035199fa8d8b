//! Virtual memory management: allocations without an address (`cuMemCreate`), reserved addresses, and the mappings
//! between them.
//!
//! An allocation is a file in memory (memfd), of which each mapping is a shared one, also in other processes. A mapping is
//! in the memory's table only while the device has access to it, so that without access copies are refused and kernels
//! fault.

mod exports;
mod physical;
mod properties;
mod reservation;

pub(crate) use physical::count as allocations;
pub(crate) use reservation::{Mapped, Reserved, count as reservations, dma_buf, handle_types, is_for_rdma, reserved};

/// The granularity of sizes and mapped addresses, minimum and recommended: a GPU's large page.
const GRANULARITY: usize = 2 << 20;
