//! Kernels: their attributes, and launches.
//!
//! A launch runs on a stream's worker thread: the crate `ptx` executes it over the memory that `memory::view` exposes.
//! `attributes` has the attributes of functions, `parameters` the parameter block, `launch` the checks and the work,
//! `occupancy` the number of blocks that fit, `fault` the report of a failed launch.

mod attributes;
mod exports;
pub(crate) mod fault;
mod launch;
mod launch_exports;
mod occupancy;
mod parameters;

pub(crate) use launch::Prepared;
