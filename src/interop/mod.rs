//! Implementations of other crates' traits for this crate's memory.

#[cfg(feature = "ndarray")]
pub(crate) mod array;
mod cudarc;
