//! `RawMemory`, which is freed by hand.
#![expect(unsafe_code, reason = "writes through a pointer and frees by hand")]

use support::step::{Step, What};
use support::{Result, device_read, pattern};
use vkgdr::{Error, MemoryKind, RawMemory};

use super::World;
use super::item::Site;

/// The largest number of raw allocations.
const MOST: usize = 4;

/// Raw memory and its expected bytes, if known.
pub(super) struct RawItem {
    memory: RawMemory,
    site: Site,
    expected: Option<Vec<u8>>,
}

impl World {
    pub(super) fn apply_to_raw(&mut self, step: Step) -> Result<bool> {
        if step.what == What::AllocateRaw {
            return self.allocate_raw(step);
        }
        if self.raws.is_empty() {
            return Ok(false);
        }
        let index = usize::from(step.first) % self.raws.len();
        match step.what {
            What::FreeRaw => {
                let raw = self.raws.swap_remove(index);
                self.free_raw(raw)?;
            }
            _ => self.use_raw(step, index)?,
        }
        Ok(true)
    }

    fn allocate_raw(&mut self, step: Step) -> Result<bool> {
        if self.raws.len() >= MOST {
            return Ok(false);
        }
        let kind = MemoryKind::ALL[usize::from(step.choice) % MemoryKind::ALL.len()];
        let (gpu, site) = self.handle(step.first, step.second.is_multiple_of(2));
        let made = self.inside(site, || RawMemory::allocate(&gpu, step.span.new_len(), kind));
        if let Some(memory) = self.judged(&gpu, kind, made)? {
            self.raws.push(RawItem { memory, site, expected: None });
        }
        Ok(true)
    }

    /// Checks the bytes that the device sees, then writes through the host pointer.
    fn use_raw(&mut self, step: Step, index: usize) -> Result {
        let RawItem { memory, site, expected } = &self.raws[index];
        let (address, len) = (memory.device_ptr(), memory.len());
        if let Some(expected) = expected {
            let seen = self.inside(*site, || device_read(address, len));
            if seen != *expected {
                return Err(format!("the device sees wrong bytes in {memory:?}").into());
            }
        }
        assert!(matches!(memory.flush(len, 1), Err(Error::OutOfRange { .. })));
        let Some(host) = memory.host_ptr() else { return Ok(()) };
        let new = pattern(len, step.seed.into());
        memory.invalidate(0, len)?;
        for (offset, byte) in new.iter().enumerate() {
            // SAFETY: within the memory.
            let place = unsafe { host.add(offset) };
            // SAFETY: mapped, and no device work is pending on it.
            unsafe { place.write_volatile(*byte) };
        }
        memory.flush(0, len)?;
        self.raws[index].expected = Some(new);
        Ok(())
    }

    fn free_raw(&self, mut raw: RawItem) -> Result {
        // A second free is allowed.
        for _ in 0..2 {
            // SAFETY: no work is pending on it.
            self.inside(raw.site, || unsafe { raw.memory.free() })?;
        }
        Ok(())
    }

    pub(super) fn free_all_raw(&mut self) -> Result {
        std::mem::take(&mut self.raws).into_iter().try_for_each(|raw| self.free_raw(raw))
    }
}
