//! Memory in the types of other crates.

mod contexts;
mod cudarc;
mod order;
mod release;
