//! Semaphores: signals and waits of streams and the CPU. Commands use them, too.
#![expect(unsafe_code, reason = "signals values that only grow")]

use support::Result;
use support::step::{Step, What};
use vkgdr::vulkan::Semaphore;
use vkgdr::{Error, StreamRef};

use super::World;
use super::item::Site;
use super::queue::TIMEOUT;
use super::vulkan::expect_no_vulkan;

/// The largest number of semaphores.
const MOST: usize = 3;

/// A semaphore of the world.
pub(super) struct SemaphoreSlot {
    pub(super) semaphore: Semaphore,
    pub(super) site: Site,
    /// The last value that was submitted to be signalled.
    last: u64,
}

impl SemaphoreSlot {
    /// The next value, which the caller lets something signal.
    pub(super) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Lets a stream signal the next value, after all earlier ones.
    pub(super) fn signal_on(&mut self, stream: &StreamRef) -> Result<u64> {
        self.semaphore.wait_on(stream, self.last)?;
        let value = self.next();
        // SAFETY: more than any value before, all of which precede it in the stream's order.
        unsafe { self.semaphore.signal_on(stream, value) }?;
        Ok(value)
    }
}

impl World {
    pub(super) fn apply_to_semaphores(&mut self, step: Step) -> Result<bool> {
        if step.what == What::NewSemaphore {
            return self.new_semaphore(step);
        }
        if self.semaphores.is_empty() {
            return Ok(false);
        }
        let index = usize::from(step.first) % self.semaphores.len();
        if step.what == What::DropSemaphore {
            // The queue may not use it any more.
            self.wait_for_queue()?;
            drop(self.semaphores.swap_remove(index));
        } else {
            self.signal(step, index)?;
        }
        Ok(true)
    }

    fn new_semaphore(&mut self, step: Step) -> Result<bool> {
        if self.semaphores.len() >= MOST {
            return Ok(false);
        }
        let (gpu, site) = self.handle(step.first, step.second.is_multiple_of(2));
        let value = u64::from(step.seed);
        let semaphore = match self.inside(site, || Semaphore::new(&gpu, value)) {
            Ok(_) if !gpu.supports_semaphores() => return Err("a semaphore from a GPU that has none".into()),
            Ok(semaphore) => semaphore,
            Err(Error::Extension { .. }) if !gpu.supports_semaphores() => return Ok(true),
            Err(error) => return expect_no_vulkan(&gpu, error).map(|()| true),
        };
        // Its context is the handle's, if that has one.
        let of_plain = self.streams.get(self.streams.of(Site::Plain, 0));
        let site = match semaphore.wait_on(&of_plain, value) {
            Ok(()) => Site::Plain,
            Err(Error::ForeignStream) => Site::Primary,
            Err(error) => return Err(error.into()),
        };
        self.semaphores.push(SemaphoreSlot { semaphore, site, last: value });
        Ok(true)
    }

    /// Lets a stream or the CPU signal, and another stream and sometimes the CPU wait for that.
    fn signal(&mut self, step: Step, index: usize) -> Result {
        let slot = &mut self.semaphores[index];
        let [first, second] = [step.choice, step.second].map(|choice| self.streams.of(slot.site, choice));
        let [first, second] = [first, second].map(|number| self.streams.get(number));
        // The validation layer takes signals of shared semaphores for pending for ever, and refuses later ones by the CPU.
        if step.seed.is_multiple_of(4) && !crate::is_validated() {
            let (before, value) = (slot.last, slot.next());
            slot.semaphore.wait_on(&second, value)?;
            assert!(slot.semaphore.wait(before, TIMEOUT)?, "{:?} has not reached {before}", slot.semaphore);
            // SAFETY: more than all values before, which were reached.
            unsafe { slot.semaphore.signal(value) }?;
            assert_eq!(slot.semaphore.value()?, value);
            return Ok(());
        }
        let value = slot.signal_on(&first)?;
        slot.semaphore.wait_on(&second, value)?;
        assert!(slot.semaphore.value()? <= value);
        if step.seed % 4 == 1 {
            assert!(slot.semaphore.wait(value, TIMEOUT)?, "{:?} has not reached {value}", slot.semaphore);
        }
        Ok(())
    }
}
