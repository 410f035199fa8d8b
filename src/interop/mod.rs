//! This crate's memory in other crates' terms: cudarc's traits.

mod cudarc;
