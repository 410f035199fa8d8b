//! A semaphore of the application's with a payload that others may have.

use std::sync::{Mutex, PoisonError};

use ash::vk;

use super::mirror::{Mirror, Timeline};
use simcommon::payload::Kind;

/// A shared semaphore: the driver's timeline, the payload, and the threads between them.
pub(super) struct Shared {
    pub(super) kind: Kind,
    /// The driver's semaphore, which is the application's unless a payload was imported.
    pub(super) driver: vk::Semaphore,
    pub(super) timeline: Timeline,
    /// None before the first export.
    mirror: Mutex<Option<Mirror>>,
}

impl Shared {
    /// A semaphore that no one else has yet.
    pub(super) fn new(timeline: Timeline, driver: vk::Semaphore, kind: Kind) -> Shared {
        Shared { kind, driver, timeline, mirror: Mutex::default() }
    }

    /// Lets both sides follow each other from now on.
    pub(super) fn share(&self) -> std::io::Result<()> {
        let mut mirror = self.mirror.lock().unwrap_or_else(PoisonError::into_inner);
        if mirror.is_none() {
            self.timeline.publish();
            *mirror = Some(Mirror::start(&self.timeline)?);
        }
        Ok(())
    }

    /// Ends the threads, and every other use of the driver's semaphore by this layer: a wait of the application for other
    /// objects uses all shared ones. The application does not use it any more.
    pub(super) fn stop(&self) {
        let mirror = self.mirror.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.timeline.close();
        if let Some(mirror) = mirror {
            mirror.join(&self.timeline);
        }
    }

    /// The driver's semaphore and value of a wait that is submitted.
    pub(super) fn wait(&self, value: u64) -> (vk::Semaphore, u64) {
        match self.kind {
            Kind::Binary => (self.driver, self.timeline.payload().next_wait()),
            _ => (self.driver, value),
        }
    }

    /// The driver's semaphore and value of a signal that is submitted.
    pub(super) fn signal(&self, value: u64) -> (vk::Semaphore, u64) {
        match self.kind {
            Kind::Binary => (self.driver, self.timeline.payload().next_signal()),
            _ => (self.driver, value),
        }
    }
}
