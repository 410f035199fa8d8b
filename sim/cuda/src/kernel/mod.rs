//! Kernels: functions and what can be asked about them, and launching them.
//!
//! A launch is work on a stream's worker, carried out by the crate `ptx` over the memory that `memory::view` shows it.
//! `function` is a kernel in a context, `attributes` what it says about itself, `parameters` what it is called with,
//! `launch` the checks and the work, `old` the way of CUDA 3, `occupancy` how many blocks would fit, `fault` what
//! became of a launch that went wrong.

mod attributes;
mod exports;
pub(crate) mod fault;
pub(crate) mod function;
mod launch;
mod launch_exports;
mod occupancy;
mod old;
mod parameters;

use crate::boundary::Export;
pub(crate) use function::Function;

pub(crate) fn exports() -> Vec<Export> {
    [attributes::exports(), exports::exports(), launch_exports::exports(), occupancy::exports(), old::exports()]
        .concat()
}
