//! One record for each exported symbol: its name, its address, its policy and its number of calls.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use linkme::distributed_slice;
use simcommon::faults::base_name;

/// How the boundary treats a function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    /// An injected failure replaces the work.
    Plain,
    /// Releases or pops something. An injected failure is reported after the work, so that it leaks nothing.
    Release,
    /// Works before `cuInit` and inside a host function.
    Early,
    /// As `Plain`, of a function that is not simulated: its first call says so on stderr.
    Missing,
    /// As `Early`, but not included in `*` when calls are counted or made to fail.
    Silent,
}

/// An exported symbol.
pub(crate) struct Site {
    name: &'static str,
    policy: Policy,
    address: fn() -> usize,
    calls: AtomicU64,
    // Whether the line about a missing function was printed.
    said: AtomicBool,
}

/// Every exported symbol, in no particular order. The linker collects them, so that the files that declare them need
/// not be listed anywhere.
#[distributed_slice]
pub(crate) static SITES: [Site];

impl Site {
    pub(crate) const fn new(name: &'static str, policy: Policy, address: fn() -> usize) -> Self {
        Site { name, policy, address, calls: AtomicU64::new(0), said: AtomicBool::new(false) }
    }

    /// The symbol's name.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// The symbol's address, for `cuGetProcAddress`.
    pub(crate) fn address(&self) -> usize {
        (self.address)()
    }

    pub(crate) fn policy(&self) -> Policy {
        self.policy
    }

    /// The function's name without version and default-stream suffix.
    pub(crate) fn base(&self) -> &'static str {
        base_name(self.name)
    }

    /// Whether this is the first call that asks.
    pub(crate) fn first_time(&self) -> bool {
        !self.said.swap(true, Ordering::Relaxed)
    }

    pub(super) fn count(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }
}

/// The number of calls of the function, under all its symbols together.
pub(crate) fn calls_of(base: &str) -> u64 {
    SITES.iter().filter(|site| site.base() == base).map(|site| site.calls.load(Ordering::Relaxed)).sum()
}

/// Whether some exported driver function has this name, version suffixes aside.
pub(super) fn is_function(base: &str) -> bool {
    SITES.iter().any(|site| site.base() == base)
}
