//! Controls for tests: calls are counted by function and traced, and the Nth call can be made to fail.

pub(crate) mod faults;
pub(crate) mod site;

use std::sync::atomic::{AtomicU64, Ordering};

use crate::code::Code;
use site::{Policy, Site};

static ALL_CALLS: AtomicU64 = AtomicU64::new(0);

/// Counts a call; returns the code that it must fail with, if a fault is due.
pub(crate) fn enter(site: &Site) -> Option<Code> {
    site.count();
    let silent = site.policy() == Policy::Silent;
    if !silent {
        simcommon::trace::call(site.name());
        ALL_CALLS.fetch_add(1, Ordering::Relaxed);
    }
    faults::fires(site, silent)
}

/// The number of calls of all functions that count for `*`.
pub(crate) fn all_calls() -> u64 {
    ALL_CALLS.load(Ordering::Relaxed)
}
