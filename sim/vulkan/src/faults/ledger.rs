//! The live Vulkan objects.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The kinds of objects that the ledger counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Noun {
    /// A `VkInstance`.
    Instance,
    /// A `VkDevice`.
    Device,
    /// A `VkBuffer`.
    Buffer,
    /// A `VkImage`.
    Image,
    /// A `VkDeviceMemory`.
    Memory,
    /// A mapped `VkDeviceMemory`.
    Mapping,
    /// A `VkSemaphore`.
    Semaphore,
}

impl Noun {
    /// The noun of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "instance" => Some(Self::Instance),
            "device" => Some(Self::Device),
            "buffer" => Some(Self::Buffer),
            "image" => Some(Self::Image),
            "memory" => Some(Self::Memory),
            "mapping" => Some(Self::Mapping),
            "semaphore" => Some(Self::Semaphore),
            _ => None,
        }
    }
}

/// An object: its noun, the serial number of its instance or device, and its handle.
///
/// Handles are reused; serial numbers are not, so objects that a destroyed device leaked stay in the ledger.
type Object = (Noun, u64, u64);

static LIVE: Mutex<BTreeSet<Object>> = Mutex::new(BTreeSet::new());

fn live() -> MutexGuard<'static, BTreeSet<Object>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds an object.
pub(crate) fn born(noun: Noun, serial: u64, handle: u64) {
    live().insert((noun, serial, handle));
}

/// Removes an object. A missing one is ignored, as Vulkan ignores null.
pub(crate) fn died(noun: Noun, serial: u64, handle: u64) {
    live().remove(&(noun, serial, handle));
}

/// Counts the objects, or those of one noun.
pub(crate) fn count(noun: Option<Noun>) -> usize {
    live().iter().filter(|(of, ..)| noun.is_none_or(|noun| noun == *of)).count()
}
