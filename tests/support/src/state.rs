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
        name_on_panic(after_what, || Snapshot::assert_unchanged(&before.process));
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

/// Adds the preceding operation to the message of a panic in `check`.
#[track_caller]
fn name_on_panic(what: &str, check: impl FnOnce()) {
    struct Name<'a>(&'a str);
    impl Drop for Name<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("after {}", self.0);
            }
        }
    }
    let _name = Name(what);
    check();
}
