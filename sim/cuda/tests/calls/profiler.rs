//! Profiling.

use support::codes;
use support::cuda::{PrimaryContext, no_context};

use crate::{call, good};

#[test]
fn profiling_starts_and_stops_any_number_of_times() {
    let _context = PrimaryContext::retain_and_push(0);
    for _ in 0..2 {
        good(call!(cuProfilerStart()));
        good(call!(cuProfilerStart()));
        good(call!(cuProfilerStop()));
        good(call!(cuProfilerStop()));
    }
    no_context(|| {
        assert_eq!(call!(cuProfilerStart()), codes::INVALID_CONTEXT);
        assert_eq!(call!(cuProfilerStop()), codes::INVALID_CONTEXT);
    });
}
