//! Live objects and call counts of the drivers. Without a ledger, on a real driver or without the test layers, every
//! comparison holds.

use vkgdr::MemoryKind;

use crate::{simcuda, vklayer};

/// The live objects of allocations, of each driver with a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// Memories and mappings.
    vulkan: Option<[usize; 2]>,
    /// Imports, their mappings, and events.
    cuda: Option<[usize; 3]>,
}

impl Live {
    /// The live objects at this moment.
    #[must_use]
    pub fn now() -> Self {
        Self {
            vulkan: vklayer().map(|layer| ["memory", "mapping"].map(|noun| layer.live_objects_of(noun))),
            cuda: simcuda().map(|sim| ["external", "mapped", "event"].map(|noun| sim.live_objects_of(noun))),
        }
    }

    /// The counts with one more allocation.
    #[must_use]
    pub fn plus_one(self, kind: MemoryKind) -> Self {
        let mapped = usize::from(kind.has_host_view());
        Self {
            vulkan: self.vulkan.map(|[memories, mappings]| [memories + 1, mappings + mapped]),
            cuda: self.cuda.map(|[imports, mappings, events]| [imports + 1, mappings + 1, events]),
        }
    }

    /// The counts with one more event.
    #[must_use]
    pub fn plus_event(self) -> Self {
        Self { cuda: self.cuda.map(|[imports, mappings, events]| [imports, mappings, events + 1]), ..self }
    }
}

/// The calls of one function, counted from the creation of this value.
#[derive(Debug)]
pub struct Calls {
    function: &'static str,
    /// None without a ledger.
    before: Option<u64>,
}

impl Calls {
    /// Starts counting a Vulkan (`vk…`) or CUDA (`cu…`) function.
    #[must_use]
    pub fn of(function: &'static str) -> Self {
        Self { function, before: calls(function) }
    }

    /// The number of calls; `None` without a ledger.
    #[must_use]
    pub fn count(&self) -> Option<u64> {
        Some(calls(self.function)? - self.before?)
    }

    /// Checks the number of calls, if there is a ledger.
    ///
    /// # Panics
    /// When it differs.
    #[track_caller]
    pub fn assert(&self, expected: u64, what: &str) {
        if let Some(count) = self.count() {
            assert_eq!(count, expected, "calls of {}: {what}", self.function);
        }
    }
}

/// The number of calls of each driver with a ledger.
pub fn all_calls() -> [u64; 2] {
    let cuda = simcuda().map_or(0, |sim| sim.calls(None));
    [cuda, vklayer().map_or(0, |layer| layer.calls(None))]
}

fn calls(function: &str) -> Option<u64> {
    if function.starts_with("vk") {
        vklayer().map(|layer| layer.calls(Some(function)))
    } else {
        simcuda().map(|sim| sim.calls(Some(function)))
    }
}
