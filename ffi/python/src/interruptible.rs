//! Waits that Python's signal handlers interrupt.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::Result;

/// The longest time between two looks at Python's signals.
const SLICE: Duration = Duration::from_millis(50);

/// The duration of an optional number of seconds; none for no limit.
pub(crate) fn duration(seconds: Option<f64>) -> Result<Option<Duration>> {
    let Some(seconds) = seconds else { return Ok(None) };
    if seconds.is_nan() {
        return Err(PyValueError::new_err("timeout is not a number").into());
    }
    // Longer than a program runs is no limit, and less than nothing is no time.
    Ok(Duration::try_from_secs_f64(seconds.max(0.0)).ok())
}

/// Repeats a wait of the crate in slices, without the interpreter, while `timed_out` says so of its result and the time is
/// not over. Returns the last result. Python's signal handlers run in between.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    timeout: Option<Duration>,
    work: impl Fn(Duration) -> T + Sync,
    timed_out: impl Fn(&T) -> bool,
) -> PyResult<T> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
        let result = py.detach(|| work(left.min(SLICE)));
        if left <= SLICE || !timed_out(&result) {
            return Ok(result);
        }
        py.check_signals()?;
    }
}
