//! This crate's memory in other crates' terms: cudarc's traits, ndarray's views.

#[cfg(feature = "ndarray")]
pub(crate) mod array;
mod cudarc;
