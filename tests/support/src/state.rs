//! The state that failures and repeated cycles must leave unchanged.

use std::collections::BTreeMap;

use crate::resources::Snapshot;
use crate::{cuda, simcuda, vklayer};

const CUDA_NOUNS: [&str; 12] = [
    "memory",
    "host",
    "external",
    "mapped",
    "semaphore",
    "stream",
    "event",
    "module",
    "library",
    "linker",
    "context",
    "primary",
];
const VULKAN_NOUNS: [&str; 7] = ["instance", "device", "buffer", "image", "semaphore", "memory", "mapping"];

/// Live objects of the drivers with a ledger, the current context, descriptors and mappings.
#[derive(Debug)]
pub struct State {
    objects: BTreeMap<String, usize>,
    context: usize,
    process: Snapshot,
}

impl State {
    /// Records the state.
    ///
    /// # Panics
    /// When `/proc` cannot be read.
    #[must_use]
    pub fn take() -> Self {
        Self { objects: objects(), context: cuda::current().addr(), process: Snapshot::take() }
    }

    /// Checks that the state is the same as `before`.
    ///
    /// # Panics
    /// When it differs, with a list of the differences.
    #[track_caller]
    pub fn assert_unchanged(before: &Self, after_what: &str) {
        assert_eq!(objects(), before.objects, "live objects after {after_what}");
        assert_eq!(cuda::current().addr(), before.context, "the current context after {after_what}");
        let difference = Snapshot::take().difference(&before.process);
        assert!(difference.is_empty(), "the resources of the process changed after {after_what}:\n{difference}");
    }
}

fn objects() -> BTreeMap<String, usize> {
    let cuda = simcuda()
        .into_iter()
        .flat_map(|sim| CUDA_NOUNS.map(|noun| (format!("CUDA {noun}"), sim.live_objects_of(noun))));
    let vulkan = vklayer()
        .into_iter()
        .flat_map(|layer| VULKAN_NOUNS.map(|noun| (format!("Vulkan {noun}"), layer.live_objects_of(noun))));
    cuda.chain(vulkan).collect()
}
