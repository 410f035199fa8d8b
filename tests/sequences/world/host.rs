//! The CPU's operations on memory.

use std::ops::Range;

use support::step::Step;
use support::{Result, pattern};
use vkgdr::{CopyPolicy, Error, MapMode, Memory};

use super::World;

const MODES: [MapMode; 4] = [MapMode::Read, MapMode::Write, MapMode::ReadWrite, MapMode::Discard];

/// The copy policy; memory without a host view leaves no choice.
fn policy(step: Step, has_host_view: bool) -> CopyPolicy {
    match step.choice % 4 {
        0 if has_host_view => CopyPolicy::Cpu,
        1 | 2 if has_host_view => CopyPolicy::Auto,
        _ => CopyPolicy::Dma,
    }
}

/// Writes bytes as elements of a suitable width.
fn write_as(region: &Memory, policy: CopyPolicy, offset: usize, new: &[u8]) -> vkgdr::Result<()> {
    match new.len() {
        len if len % 8 == 0 => region.write_with(policy, offset, &elements(new, u64::from_ne_bytes)),
        len if len % 4 == 0 => region.write_with(policy, offset, &elements(new, u32::from_ne_bytes)),
        len if len % 2 == 0 => region.write_with(policy, offset, &elements(new, u16::from_ne_bytes)),
        _ => region.write_with(policy, offset, new),
    }
}

fn elements<T, const N: usize>(bytes: &[u8], from: fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks().0.iter().copied().map(from).collect()
}

impl World {
    /// Waits until the CPU may use all of an item, and invalidates the writes of others.
    fn ready_for_host(&mut self, index: usize) -> Result {
        self.wait_for(index)?;
        self.items[index].refresh()
    }

    pub(super) fn write_whole(&mut self, new: &[u8], index: usize) -> Result {
        self.ready_for_host(index)?;
        let item = &mut self.items[index];
        let policy = if item.has_host_view() { CopyPolicy::Auto } else { CopyPolicy::Dma };
        item.owner.write_with(policy, 0, new)?;
        item.wrote(0..new.len(), new)
    }

    pub(super) fn write(&mut self, step: Step, index: usize) -> Result<bool> {
        self.ready_for_host(index)?;
        let item = &mut self.items[index];
        let range = step.span.within(item.len());
        let new = pattern(range.len(), step.seed.into());
        if !item.has_host_view() {
            let refused = item.owner.write_with(CopyPolicy::Cpu, range.start, &new);
            assert!(matches!(refused, Err(Error::NoHostView { .. })), "{refused:?}");
        }
        write_as(&item.owner, policy(step, item.has_host_view()), range.start, &new)?;
        item.wrote(range, &new)?;
        Ok(true)
    }

    /// Several overlapping writes with one fence, later ones over earlier ones.
    pub(super) fn write_many(&mut self, step: Step, index: usize) -> Result<bool> {
        if !self.items[index].has_host_view() {
            return Ok(false);
        }
        self.ready_for_host(index)?;
        let item = &mut self.items[index];
        let range = step.span.within(item.len());
        let mut new = pattern(range.len(), step.seed.into());
        let mut writer = item.owner.writer();
        writer.write(range.start, &new)?;
        let tail = new.len() / 2;
        new[tail..].fill(step.choice);
        writer.write(range.start + tail, &new[tail..])?;
        writer.finish();
        item.wrote(range, &new)?;
        Ok(true)
    }

    pub(super) fn fill(&mut self, step: Step, index: usize) -> Result<bool> {
        if !self.items[index].has_host_view() {
            return Ok(false);
        }
        self.ready_for_host(index)?;
        let item = &mut self.items[index];
        let unit = [1, 2, 3, 4, 8][usize::from(step.choice) % 5].min(item.len());
        let whole = step.span.within(item.len());
        let range = whole.start..whole.start + whole.len() / unit * unit;
        let units = pattern(unit, step.seed.into());
        item.owner.fill_pattern(range.clone(), &units)?;
        let new = units.repeat(range.len() / unit);
        item.wrote(range, &new)?;
        Ok(true)
    }

    pub(super) fn read(&mut self, step: Step, index: usize) -> Result<bool> {
        self.ready_for_host(index)?;
        let item = &self.items[index];
        let range = step.span.within(item.len());
        let mut seen = vec![0_u8; range.len()];
        item.owner.read_with(policy(step, item.has_host_view()), range.start, &mut seen)?;
        item.compare(&range, &seen, "the CPU")?;
        Ok(true)
    }

    /// Uses a range through a map guard, which waits for the bound stream.
    pub(super) fn map(&mut self, step: Step, index: usize) -> Result<bool> {
        let mode = MODES[usize::from(step.choice) % MODES.len()];
        let item = &self.items[index];
        let range = step.span.within(item.len());
        if !item.has_host_view() {
            let refused = item.owner.map(mode, range);
            assert!(matches!(refused, Err(Error::NoHostView { .. })), "{refused:?}");
            return Ok(true);
        }
        let bound = item.terms().bound;
        if item.bytes().pending.iter().any(|stream| Some(*stream) != bound) {
            self.wait_for(index)?;
        }
        let item = &mut self.items[index];
        item.flush()?;
        let mut new = item.expected(&range);
        let mut guard = item.owner.map(mode, range.clone())?;
        if matches!(mode, MapMode::Read | MapMode::ReadWrite) {
            let mut seen = vec![0_u8; range.len()];
            guard.read(0, &mut seen)?;
            item.compare(&range, &seen, "a map guard")?;
        }
        let kept = if mode == MapMode::Discard { 0 } else { new.len() / 3 };
        let part = pattern(new.len() - kept, step.seed.into());
        match mode {
            MapMode::Read => assert!(matches!(guard.write(0, &part), Err(Error::ReadOnly))),
            _ => {
                guard.write(kept, &part)?;
                new[kept..].copy_from_slice(&part);
            }
        }
        if step.second.is_multiple_of(2) {
            guard.finish()?
        } else {
            drop(guard)
        }
        item.note(&range, &new);
        Ok(true)
    }

    /// Flushes or invalidates redundantly.
    pub(super) fn sync(&mut self, step: Step, index: usize) -> Result<bool> {
        self.ready_for_host(index)?;
        let item = &mut self.items[index];
        let range = step.span.within(item.len());
        if step.choice.is_multiple_of(2) {
            item.owner.flush(range)?;
        } else {
            item.flush()?;
            item.owner.invalidate(range)?;
        }
        Ok(true)
    }

    pub(super) fn beyond_the_end(&mut self, index: usize) -> Result<bool> {
        let region = &self.items[index].owner;
        let len = region.len();
        let mut one = [0_u8];
        let results = [
            region.flush(..=len),
            region.invalidate(len + 1..),
            region.slice(1..len + 2).map(drop),
            region.write_with(CopyPolicy::Dma, len, &one),
            region.read_with(CopyPolicy::Dma, usize::MAX, &mut one),
        ];
        for result in results {
            assert!(matches!(result, Err(Error::OutOfRange { .. })), "{result:?}");
        }
        Ok(true)
    }

    /// Checks a range as the CPU sees it, if it has a host view, and as the device sees it.
    pub(super) fn compare(&mut self, range: Range<usize>, index: usize) -> Result {
        self.ready_for_host(index)?;
        let item = &mut self.items[index];
        if item.has_host_view() {
            let mut seen = vec![0_u8; range.len()];
            item.owner.read_with(CopyPolicy::Cpu, range.start, &mut seen)?;
            item.compare(&range, &seen, "the CPU")?;
        }
        item.flush()?;
        let seen = self.device_sees(range.clone(), index);
        self.items[index].compare(&range, &seen, "the device")
    }
}
