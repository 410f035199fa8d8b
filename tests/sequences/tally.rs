//! Counts of steps.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use crate::step::What;

/// Counts of steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) steps: BTreeMap<What, u64>,
    /// Allocations refused for lack of memory.
    pub(crate) refused: u64,
}

impl Tally {
    /// All steps that did something.
    pub(crate) fn total(&self) -> u64 {
        self.steps.values().sum()
    }

    pub(crate) fn count(&mut self, what: What) {
        *self.steps.entry(what).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (what, count) in &other.steps {
            *self.steps.entry(*what).or_default() += count;
        }
        self.refused += other.refused;
    }
}
