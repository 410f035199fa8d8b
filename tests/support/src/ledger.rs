//! Live objects behind the drivers, and counts of the calls that reached them. Without a ledger, as on a real driver and
//! without the test layers, every comparison holds.

use vkgdr::MemoryKind;

use crate::{simcuda, vklayer};

/// The live objects of allocations, on either side where it has a ledger.
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

    /// With one more allocation.
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

    /// With one more event.
    #[must_use]
    pub fn plus_event(mut self) -> Self {
        if let Some(cuda) = &mut self.cuda {
            cuda.events += 1;
        }
        self
    }
}

/// The calls of one function, counted from a moment on.
#[derive(Debug)]
pub struct Calls {
    function: &'static str,
    /// None where nothing counts them.
    before: Option<u64>,
}

impl Calls {
    /// Starts counting, in Vulkan (`vk…`) or in CUDA (`cu…`).
    #[must_use]
    pub fn of(function: &'static str) -> Self {
        Self { function, before: calls(function) }
    }

    /// How many calls there were; `None` where nothing counts them.
    #[must_use]
    pub fn count(&self) -> Option<u64> {
        Some(calls(self.function)? - self.before?)
    }

    /// Checks the number of calls, where they are counted.
    ///
    /// # Panics
    /// When there were more or fewer calls.
    #[track_caller]
    pub fn assert(&self, expected: u64, what: &str) {
        if let Some(count) = self.count() {
            assert_eq!(count, expected, "calls of {}: {what}", self.function);
        }
    }
}

/// The calls of all functions of both drivers, where they are counted.
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
