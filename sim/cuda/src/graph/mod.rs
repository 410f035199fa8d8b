//! Graphs, and captures of streams into them.
//!
//! A node keeps an operation that can be submitted again and again. An executable graph is a list of operations in an order
//! that its dependencies allow. A launch runs its operations one after the other. CUDA may run independent nodes at the same
//! time.

mod any_node;
pub(crate) mod capture;
mod capture_exports;
mod child;
mod edges;
mod executable;
mod exports;
mod held;
mod node_exports;
mod operation;
mod state;
mod step;
mod user_object;

pub(crate) use executable::count as executables;
pub(crate) use operation::{Difference, Kind, Operation, Work};
pub(crate) use state::count;
