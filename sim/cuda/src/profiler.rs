//! The start and the end of profiling: checks the context, since no profiler is attached.

use crate::boundary::exports;
use crate::code::Outcome;
use crate::context;

fn control() -> Outcome {
    context::usable().map(drop)
}

exports! {
    cuProfilerStart => control();
    cuProfilerStop => control();
}
