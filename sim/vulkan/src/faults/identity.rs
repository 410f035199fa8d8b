//! The identity of an instance or device: its entries in the ledger, and whether its calls are counted.
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use ash::vk::{self, Handle};

use super::injection;
use super::ledger::{self, Noun};

/// The identity of an instance or device.
#[derive(Clone, Copy)]
pub(super) struct Identity {
    /// Unique in the process.
    serial: u64,
    /// The simulated CUDA driver's: nothing is counted and nothing fails.
    passive: bool,
}

impl Identity {
    pub(super) fn new(passive: bool) -> Self {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        Self { serial: SERIAL.fetch_add(1, Ordering::Relaxed), passive }
    }

    pub(super) fn is_passive(self) -> bool {
        self.passive
    }

    /// Counts a call; `Err` is the result that it must return.
    pub(super) fn enter(self, function: &'static str) -> Result<(), vk::Result> {
        if self.passive {
            return Ok(());
        }
        simcommon::trace::call(function);
        let fault = injection::enter(function);
        fault.map_or(Ok(()), |code| Err(vk::Result::from_raw(code)))
    }

    /// Adds arguments of the counted call to the trace.
    pub(super) fn trace(self, arguments: fmt::Arguments<'_>) {
        if !self.passive {
            simcommon::trace::arguments(arguments);
        }
    }

    /// Adds an object to the ledger.
    pub(super) fn born(self, noun: Noun, object: impl Handle) {
        if !self.passive {
            ledger::born(noun, self.serial, object.as_raw());
        }
    }

    /// Removes an object from the ledger. A missing one is ignored, as Vulkan ignores null.
    pub(super) fn died(self, noun: Noun, object: impl Handle) {
        ledger::died(noun, self.serial, object.as_raw());
    }
}
