//! Memory pools and allocations in a stream's order.
//!
//! An allocation is usable at once, on every stream. A free ends it at once for work that is submitted later, as for a
//! program it must be; its bytes go back to the pool when the stream reaches the free and no work that was queued before
//! uses them. The pool keeps them for the next allocation of that size, up to its release threshold once the program
//! synchronises.

mod access;
mod allocate;
mod attributes;
mod exports;
mod state;
mod table;

pub(crate) use table::{count, release_unused};
