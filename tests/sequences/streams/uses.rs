//! Uses of memory by streams and by the CPU.
#![expect(unsafe_code, reason = "delays streams and launches a kernel")]

use std::time::Duration;

use support::cuda::Stream;
use support::{Result, pattern, simcuda};
use vkgdr::cudarc::driver::LaunchConfig;

use super::item::{Item, Site};
use super::step::Step;
use super::{SiteStream, World};

/// The longest delay of a stream in microseconds, in which the CPU submits several steps.
const LONGEST_DELAY: usize = 300;
/// The largest number of bytes that a kernel writes, with as many threads.
const THREADS: usize = 8;

/// Two of several items.
fn two(items: &mut [Item], first: usize, second: usize) -> Option<(&mut Item, &mut Item)> {
    let [first, second] = items.get_disjoint_mut([first, second]).ok()?;
    (!first.is_of(second)).then_some((first, second))
}

impl World {
    /// Any stream.
    fn any_stream(&self, number: u8) -> SiteStream {
        self.streams[usize::from(number) % self.streams.len()].clone()
    }

    /// A stream of a context.
    pub(super) fn stream_of(&self, site: Site, number: u8) -> SiteStream {
        let mut all = self.streams.iter().filter(|stream| stream.site == site);
        let count = all.clone().count();
        // Both contexts have their default streams.
        all.nth(usize::from(number) % count.max(1)).unwrap_or(&self.streams[0]).clone()
    }

    /// A stream that writes to an item: seldom one of another context, which waits for the stream.
    fn writer_of(&self, index: usize, number: u8) -> SiteStream {
        if number >= 240 { self.any_stream(number) } else { self.stream_of(self.items[index].site, number) }
    }

    pub(super) fn delay(&mut self, step: Step) -> bool {
        let SiteStream { stream, site } = self.any_stream(step.first);
        let time = Duration::from_micros((10 + usize::from(step.seed) % LONGEST_DELAY) as u64);
        // SAFETY: the reference keeps the stream alive.
        self.inside(site, || unsafe { Stream::delay_by(stream.cu_stream(), time) });
        true
    }

    pub(super) fn fill(&mut self, step: Step, index: usize) -> Result<bool> {
        let stream = self.writer_of(index, step.second).stream;
        let item = &mut self.items[index];
        stream.memset_zeros(&mut item.owner)?;
        item.note(&vec![0; item.len()]);
        Ok(true)
    }

    /// Copies from one memory to another, possibly of another context.
    pub(super) fn copy(&mut self, step: Step, index: usize) -> Result<bool> {
        let source = usize::from(step.choice) % self.items.len();
        let SiteStream { stream, site } = self.writer_of(index, step.second);
        let Some((to, from)) = two(&mut self.items, index, source) else { return Ok(false) };
        // cudarc has the source's context current when it submits a copy between contexts, so that one on a default stream
        // goes to the default stream of that context.
        if from.site != site && stream.cu_stream().is_null() {
            return Ok(false);
        }
        if from.len() <= to.len() {
            stream.memcpy_dtod(&from.owner, &mut to.owner)?;
            to.note(&from.expected());
        } else {
            // A region that is gone before the copy is done.
            let start = usize::from(step.seed) % (from.len() - to.len());
            let part = from.part(start..start + to.len())?;
            stream.memcpy_dtod(&part.owner, &mut to.owner)?;
            to.note(&part.expected());
        }
        Ok(true)
    }

    /// Launches a kernel on two memories of the primary context.
    pub(super) fn launch(&mut self, step: Step) -> Result<bool> {
        let primary: Vec<_> = (0..self.items.len()).filter(|&index| self.items[index].site == Site::Primary).collect();
        let of = |number: u8| primary.get(usize::from(number) % primary.len().max(1)).copied();
        let (Some(to), Some(from)) = (of(step.first), of(step.choice)) else { return Ok(false) };
        self.launch_on(step.second, to, from)
    }

    /// Has a kernel write the bytes of one memory, each plus one, to another.
    fn launch_on(&mut self, number: u8, to: usize, from: usize) -> Result<bool> {
        let (stream, kernel) = (self.stream_of(Site::Primary, number).stream, self.shared.kernel.clone());
        let Some((to, from)) = two(&mut self.items, to, from) else { return Ok(false) };
        if to.site != Site::Primary || from.site != Site::Primary {
            return Ok(false);
        }
        // cudarc orders no launch on the default stream of a context that has no other.
        if stream.cu_stream().is_null() && !stream.context().is_managing_stream_synchronization() {
            return Ok(false);
        }
        to.note_launch();
        from.note_launch();
        let count = to.len().min(from.len()).min(THREADS);
        to.note(&from.expected()[..count].iter().map(|byte| byte.wrapping_add(1)).collect::<Vec<_>>());
        let block_dim = (u32::try_from(count)?, 1, 1);
        let config = LaunchConfig { grid_dim: (1, 1, 1), block_dim, shared_mem_bytes: 0 };
        let mut launch = stream.launch_builder(&kernel);
        to.owner.push_mut(&mut launch);
        from.owner.push(&mut launch);
        // SAFETY: the kernel takes two addresses, and each of its threads uses one byte at each of them.
        unsafe { launch.launch(config) }?;
        Ok(true)
    }

    /// Three uses of a memory on streams of its context, the first of which is delayed. Frees it sometimes.
    pub(super) fn race(&mut self, step: Step, index: usize) -> Result<bool> {
        let SiteStream { stream, site } = self.stream_of(self.items[index].site, step.second % 240);
        // SAFETY: the reference keeps the stream alive.
        self.inside(site, || unsafe {
            Stream::delay_by(stream.cu_stream(), Duration::from_micros(LONGEST_DELAY as u64))
        });
        let number = u8::try_from(index)?;
        for turn in 0..3 {
            let (second, choice) = (step.second.wrapping_add(turn) % 240, step.choice.wrapping_add(turn));
            let other = usize::from(choice) % self.items.len();
            match step.seed >> (3 * turn) & 7 {
                0 => self.fill(Step { second, ..step }, index)?,
                1 => self.copy(Step { second, choice, ..step }, index)?,
                2 | 3 => self.copy(Step { second, choice: number, ..step }, other)?,
                4 | 5 => self.launch_on(second, index, other)?,
                _ => self.launch_on(second, other, index)?,
            };
        }
        if step.seed >= 0xc000 { self.free(step, index) } else { Ok(true) }
    }

    /// Copies from the host, and waits for the stream.
    pub(super) fn upload(&mut self, step: Step, index: usize) -> Result<bool> {
        let stream = self.writer_of(index, step.second).stream;
        let item = &mut self.items[index];
        let new = pattern(item.len(), step.seed.into());
        stream.memcpy_htod(&new, &mut item.owner)?;
        item.note(&new);
        Ok(true)
    }

    /// Copies to the host, and waits for the stream.
    pub(super) fn download(&mut self, step: Step, index: usize) -> Result<bool> {
        let stream = self.writer_of(index, step.second).stream;
        let item = &self.items[index];
        item.compare(&stream.clone_dtoh(&item.owner)?, "a copy to the host")?;
        Ok(true)
    }

    pub(super) fn host_write(&mut self, step: Step, index: usize) -> Result<bool> {
        self.synchronize()?;
        let item = &self.items[index];
        item.write(&pattern(item.len(), step.seed.into()))?;
        Ok(true)
    }

    pub(super) fn host_read(&mut self, index: usize) -> Result<bool> {
        self.synchronize()?;
        self.items[index].check()?;
        Ok(true)
    }

    pub(super) fn wait(&mut self, step: Step) -> Result<bool> {
        self.any_stream(step.first).stream.synchronize()?;
        Ok(true)
    }

    /// Waits for both contexts.
    fn synchronize(&self) -> Result {
        for context in [&self.shared.context, &self.plain.cudarc] {
            context.synchronize()?;
            // Errors of cudarc's guards.
            context.check_err()?;
        }
        Ok(())
    }

    /// Waits for everything. Then all bytes must be as expected, and free memory must keep no stream.
    pub(super) fn settle(&mut self) -> Result {
        self.synchronize()?;
        self.items.iter().try_for_each(Item::check)?;
        self.collect();
        for (pool, _) in &self.pools {
            pool.trim(usize::MAX);
        }
        if !self.shared.is_alone {
            return Ok(());
        }
        let pending = self.shared.gpu.pending_releases();
        if pending > 0 {
            return Err(format!("{pending} deferred frees stay").into());
        }
        let live = simcuda().map_or(0, |sim| sim.live_objects_of("stream")) - self.foreign_streams;
        let expected = self.known_streams();
        let with_others = expected + self.items.iter().map(Item::other_streams).sum::<usize>();
        if (expected..=with_others).contains(&live) {
            return Ok(());
        }
        Err(format!("{live} streams are alive, {expected} to {with_others} are in use").into())
    }

    /// The number of streams that the world or its memory holds.
    fn known_streams(&self) -> usize {
        let held = self.streams[2..].iter().map(|stream| stream.stream.cu_stream().addr());
        let bound = self.items.iter().filter_map(Item::bound).map(|stream| stream.cu_stream().addr());
        let defaults: Vec<_> = self.streams[..2].iter().map(|stream| stream.stream.cu_stream().addr()).collect();
        let all: std::collections::BTreeSet<_> =
            held.chain(bound).filter(|stream| !defaults.contains(stream)).collect();
        all.len()
    }
}
