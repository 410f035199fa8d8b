//! Live objects and call counts of the drivers. Without a ledger, on a real driver or without the test layers, every
//! comparison holds.

use vkgdr::MemoryKind;

use crate::{simcuda, vklayer};

/// The live objects of allocations, of each driver with a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    vulkan: Option<Vulkan>,
    cuda: Option<Cuda>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Vulkan {
    memories: usize,
    mappings: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cuda {
    imports: usize,
    mappings: usize,
    events: usize,
}

impl Live {
    /// The live objects at this moment.
    #[must_use]
    pub fn now() -> Self {
        Self {
            vulkan: vklayer().map(|layer| Vulkan {
                memories: layer.live_objects_of("memory"),
                mappings: layer.live_objects_of("mapping"),
            }),
            cuda: simcuda().map(|sim| Cuda {
                imports: sim.live_objects_of("external"),
                mappings: sim.live_objects_of("mapped"),
                events: sim.live_objects_of("event"),
            }),
        }
    }

    /// The counts with one more allocation.
    #[must_use]
    pub fn plus_one(mut self, kind: MemoryKind) -> Self {
        if let Some(vulkan) = &mut self.vulkan {
            vulkan.memories += 1;
            vulkan.mappings += usize::from(kind.has_host_view());
        }
        if let Some(cuda) = &mut self.cuda {
            cuda.imports += 1;
            cuda.mappings += 1;
        }
        self
    }

    /// The counts with one more event.
    #[must_use]
    pub fn plus_event(mut self) -> Self {
        if let Some(cuda) = &mut self.cuda {
            cuda.events += 1;
        }
        self
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
