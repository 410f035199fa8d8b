//! One record for each exported symbol: its name, its policy and its number of calls.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once};

use super::base_name;
use crate::boundary::Policy;
use crate::sync::lock;

pub(crate) struct Site {
    name: &'static str,
    policy: Policy,
    calls: AtomicU64,
    listed: Once,
}

// Sites that were called at least once.
static SITES: Mutex<Vec<&'static Site>> = Mutex::new(Vec::new());

impl Site {
    pub(crate) const fn new(name: &'static str, policy: Policy) -> Self {
        Site { name, policy, calls: AtomicU64::new(0), listed: Once::new() }
    }

    pub(crate) fn policy(&self) -> Policy {
        self.policy
    }

    /// The function's name without version and default-stream suffix.
    pub(crate) fn base(&self) -> &'static str {
        base_name(self.name)
    }

    pub(super) fn count(&'static self) {
        self.listed.call_once(|| lock(&SITES).push(self));
        self.calls.fetch_add(1, Ordering::Relaxed);
    }
}

/// The number of calls of the function, under all its symbols together.
pub(super) fn calls_of(base: &str) -> u64 {
    lock(&SITES).iter().filter(|site| site.base() == base).map(|site| site.calls.load(Ordering::Relaxed)).sum()
}
