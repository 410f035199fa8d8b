//! Memory in the types of other crates.

mod contexts;
mod cudarc;
mod kernels;
mod order;
mod release;
