//! Controls for tests: calls are counted by function, and the Nth call can be made to fail.

pub(crate) mod exports;
mod faults;
pub(crate) mod site;

use std::sync::atomic::{AtomicU64, Ordering};

use crate::boundary::Policy;
use crate::code::Code;
use site::Site;

static ALL_CALLS: AtomicU64 = AtomicU64::new(0);

/// Counts a call; returns the code that it must fail with, if a fault is due.
pub(crate) fn enter(site: &'static Site) -> Option<Code> {
    site.count();
    let silent = site.policy() == Policy::Silent;
    if !silent {
        ALL_CALLS.fetch_add(1, Ordering::Relaxed);
    }
    faults::fires(site, silent)
}

/// The name without suffixes for versions and default streams: `cuMemFree` for `cuMemFree_v2`.
pub(crate) fn base_name(name: &str) -> &str {
    let name = name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds")).unwrap_or(name);
    match name.rsplit_once("_v") {
        Some((base, version)) if version.bytes().all(|b| b.is_ascii_digit()) => base,
        _ => name,
    }
}
