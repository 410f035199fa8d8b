//! Memory in the types of other crates.

mod contexts;
mod cudarc;
mod hostile;
mod kernels;
mod order;
mod release;
