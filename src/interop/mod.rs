//! Implementations of other crates' traits for this crate's memory.

mod cudarc;
