//! Streams, memory and pools that come and go, while the driver fails and the logger misbehaves.

use std::sync::Arc;

use support::cuda::{Context, PrimaryContext};
use support::ledger::Calls;
use support::{Result, codes, pattern, simcuda};
use vkgdr::{Error, Memory, Pool, PoolOptions, Vkgdr};

use super::item::{Item, Owner, Site};
use super::logger::{self, MANNERS, Manner};
use super::step::{Step, What};
use super::{SiteStream, World};

/// The largest numbers of items and of streams.
const MOST_ITEMS: usize = 14;
const MOST_STREAMS: usize = 8;
const MOST_POOLS: usize = 4;
/// Calls that may fail while memory is released: it is released later.
const FAULTS: [&str; 5] = ["cuEventQuery", "cuEventRecord", "cuEventCreate", "cuCtxSynchronize", "cuEventSynchronize"];

impl World {
    /// Runs `work` with a site's context current.
    pub(super) fn inside<T>(&self, site: Site, work: impl FnOnce() -> T) -> T {
        match site {
            Site::Plain => self.plain.context.with_current(work),
            Site::Primary => {
                let _current = PrimaryContext::retain_and_push(0);
                work()
            }
        }
    }

    fn handle(&self, site: Site) -> &Vkgdr {
        if site == Site::Primary { &self.shared.gpu } else { &self.plain_gpu }
    }

    /// Memory, or none for a permitted refusal.
    fn judged<T>(&mut self, made: vkgdr::Result<T>) -> Result<Option<T>> {
        match made {
            Ok(value) => Ok(Some(value)),
            Err(Error::Allocation { .. }) if crate::has_little_room() => {
                self.tally.refused += 1;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Adds new memory that the device does not use, and writes it.
    fn adopt(&mut self, owner: Owner, site: Site, step: Step) -> Result {
        let item = Item::new(owner, site);
        item.write(&pattern(item.len(), step.seed.into()))?;
        self.items.push(item);
        Ok(())
    }

    fn len(step: Step) -> usize {
        step.span.within(256).len()
    }

    pub(super) fn allocate(&mut self, step: Step) -> Result<bool> {
        if self.items.len() >= MOST_ITEMS {
            return Ok(false);
        }
        let site = if step.second.is_multiple_of(3) { Site::Plain } else { Site::Primary };
        let kind = self.shared.kinds[usize::from(step.choice) % self.shared.kinds.len()];
        let made = self.inside(site, || Memory::allocate(self.handle(site), Self::len(step), kind));
        let Some(memory) = self.judged(made)? else { return Ok(true) };
        self.adopt(Owner::Memory(memory), site, step)?;
        Ok(true)
    }

    pub(super) fn pool(&self, site: Site, choice: u8) -> Result<Pool> {
        let kind = self.shared.kinds[usize::from(choice) % self.shared.kinds.len()];
        let options = PoolOptions::new(kind).block_len(64 << 10).largest_piece(16 << 10);
        Ok(self.inside(site, || Pool::new(self.handle(site), options))?)
    }

    pub(super) fn new_pool(&mut self, step: Step) -> Result<bool> {
        let site = if step.second.is_multiple_of(2) { Site::Plain } else { Site::Primary };
        let pool = self.pool(site, step.choice)?;
        if self.pools.len() >= MOST_POOLS {
            self.pools.remove(usize::from(step.first) % MOST_POOLS);
        }
        self.pools.push((pool, site));
        Ok(true)
    }

    /// Memory that nobody uses any more.
    pub(super) fn pool_allocate(&mut self, step: Step) -> Result<bool> {
        if self.items.len() >= MOST_ITEMS {
            return Ok(false);
        }
        let (pool, site) = &self.pools[usize::from(step.first) % self.pools.len()];
        let (made, site) = (pool.allocate(Self::len(step)), *site);
        let Some(memory) = self.judged(made)? else { return Ok(true) };
        self.adopt(Owner::Pooled(memory), site, step)?;
        Ok(true)
    }

    /// Memory that earlier work on the same stream may still use.
    pub(super) fn pool_allocate_on(&mut self, step: Step) -> Result<bool> {
        if self.items.len() >= MOST_ITEMS {
            return Ok(false);
        }
        let (pool, site) = self.pools[usize::from(step.first) % self.pools.len()].clone();
        let stream = self.stream_of(site, step.second).stream;
        let made = pool.allocate_on(Self::len(step), &stream);
        let Some(memory) = self.judged(made)? else { return Ok(true) };
        let mut item = Item::new(Owner::Pooled(memory), site);
        item.bind(&stream);
        // On whichever stream, this runs after that work.
        self.stream_of(site, step.choice).stream.memset_zeros(&mut item.owner)?;
        self.items.push(item);
        Ok(true)
    }

    pub(super) fn region(&mut self, step: Step, index: usize) -> Result<bool> {
        if self.items.len() >= MOST_ITEMS {
            return Ok(false);
        }
        let item = &self.items[index];
        let part = item.part(step.span.within(item.len()))?;
        self.items.push(part);
        Ok(true)
    }

    pub(super) fn bind(&mut self, step: Step, index: usize) -> Result<bool> {
        let stream = self.stream_of(self.items[index].site, step.second).stream;
        let item = &self.items[index];
        let Some(memory) = item.owner.memory() else { return Ok(false) };
        memory.bind_stream(&stream)?;
        item.bind(&stream);
        Ok(true)
    }

    pub(super) fn unbind(&mut self, index: usize) -> Result<bool> {
        let Some(memory) = self.items[index].owner.memory() else { return Ok(false) };
        memory.unbind_stream()?;
        Ok(true)
    }

    pub(super) fn new_stream(&mut self, step: Step) -> Result<bool> {
        if self.streams.len() >= MOST_STREAMS {
            return Ok(false);
        }
        let site = if step.first.is_multiple_of(3) { Site::Plain } else { Site::Primary };
        let context = if site == Site::Plain { &self.plain.cudarc } else { &self.shared.context };
        let stream = context.new_stream()?;
        self.streams.push(SiteStream { stream, site });
        Ok(true)
    }

    pub(super) fn drop_stream(&mut self, step: Step) -> bool {
        let some = self.streams.len() > 2;
        if some {
            self.streams.swap_remove(2 + usize::from(step.first) % (self.streams.len() - 2));
        }
        some
    }

    /// Frees memory that streams may still use.
    pub(super) fn free(&mut self, step: Step, index: usize) -> Result<bool> {
        match (self.items.swap_remove(index).owner, step.choice % 2) {
            (Owner::Memory(memory), 0) => memory.free()?,
            (Owner::Pooled(memory), 0) => memory.free()?,
            (Owner::Region(region), 0) => region.free()?,
            (owner, _) => drop(owner),
        }
        Ok(true)
    }

    /// As [`free`](Self::free), collecting or trimming, while calls fail.
    pub(super) fn free_failing(&mut self, step: Step, index: usize) -> Result<bool> {
        let (Some(sim), true) = (simcuda(), self.shared.is_alone) else { return self.free(step, index) };
        for number in [step.first, step.second] {
            sim.fail(FAULTS[usize::from(number) % FAULTS.len()], 1, codes::OUT_OF_MEMORY);
        }
        let item = self.items.swap_remove(index);
        let (pool, _) = self.pools[usize::from(step.second) % self.pools.len()].clone();
        let gpu = self.shared.gpu.clone();
        let done = self.with_logger(step, || {
            drop(item);
            match step.seed % 4 {
                0 => pool.trim(0),
                1 => {
                    pool.free_held();
                    0
                }
                _ => gpu.collect(),
            };
        });
        sim.clear_faults();
        done.map(|()| true)
    }

    /// Allocates where there is no memory but what free memory still keeps, while the wait for that fails.
    pub(super) fn allocate_failing(&mut self, step: Step) -> Result<bool> {
        const LEN: usize = 16 << 10;
        let (Some(sim), true) = (simcuda(), self.shared.is_alone) else { return Ok(false) };
        let SiteStream { stream, .. } = self.stream_of(Site::Primary, step.second);
        let (gpu, kind) = (self.shared.gpu.clone(), self.shared.kinds[0]);
        let (pool, _) = self.pools[usize::from(step.first) % self.pools.len()].clone();
        // A deferred free, and as much waiting memory of a pool as makes the pool wait for it.
        let Some(mut memory) = self.judged(Memory::allocate(&gpu, LEN, kind))? else { return Ok(true) };
        memory.bind_stream(&stream)?;
        self.delay(step);
        stream.memset_zeros::<u8, _>(&mut memory)?;
        let chunks: Vec<_> = (0..4).map(|_| pool.allocate(LEN)).collect::<vkgdr::Result<_>>()?;
        chunks.iter().for_each(|chunk| assert_ne!(chunk.device_ptr(), 0));
        drop((memory, chunks));
        for function in ["cuEventSynchronize", "cuCtxSynchronize"] {
            sim.fail(function, 1, codes::OUT_OF_MEMORY);
        }
        let from_pool = step.choice >= 128;
        let allocate = move || {
            if from_pool {
                return drop(pool.allocate(LEN));
            }
            sim.fail("cuImportExternalMemory", 1, codes::OUT_OF_MEMORY);
            drop(Memory::allocate(&gpu, LEN, kind));
        };
        // Threads that allocate wait a second for each other where the logger blocks: seldom.
        let manner = match Self::manner(step) {
            Manner::Block if !step.seed.is_multiple_of(32) => Manner::Reenter,
            manner => manner,
        };
        let done = logger::with(manner, Arc::new(allocate.clone()), allocate);
        sim.clear_faults();
        done.map(|()| true)
    }

    /// Calls the library while the logger behaves in some manner.
    fn with_logger<T>(&self, step: Step, call: impl FnOnce() -> T) -> Result<T> {
        let (gpu, kind) = (self.shared.gpu.clone(), self.shared.kinds[0]);
        let (pool, _) = self.pools[usize::from(step.first) % self.pools.len()].clone();
        let work = move || {
            gpu.collect();
            // Errors are injected; the memory is not used.
            drop(Memory::allocate(&gpu, 64, kind));
            drop(pool.allocate(64));
            pool.trim(usize::MAX);
        };
        logger::with(Self::manner(step), Arc::new(work), call)
    }

    fn manner(step: Step) -> Manner {
        MANNERS[usize::from(step.choice) % MANNERS.len()]
    }

    /// Frees memory whose context is gone: only Vulkan's part is left of it.
    ///
    /// Not on a real driver, which may crash later on what is left of a context, in whichever step.
    pub(super) fn orphan(&mut self, step: Step) -> Result<bool> {
        if simcuda().is_none() {
            return Ok(false);
        }
        let context = Context::create(0);
        let made = Memory::allocate(&self.plain_gpu, Self::len(step), self.shared.kinds[0]);
        let Some(memory) = self.judged(made)? else { return Ok(true) };
        context.destroy();
        if !self.shared.is_alone {
            drop(memory);
            return Ok(true);
        }
        // Neither the logger nor an earlier free may free anything meanwhile.
        let is_only =
            matches!(Self::manner(step), Manner::Quiet | Manner::Panic) && self.shared.gpu.pending_releases() == 0;
        let frees = Calls::of("cuMemFree_v2");
        self.with_logger(step, || drop(memory))?;
        if is_only && frees.count().is_some_and(|count| count > 0) {
            return Err("freed an address that other memory may have by now".into());
        }
        Ok(true)
    }

    pub(super) fn collect(&self) -> bool {
        self.shared.gpu.collect();
        self.plain_gpu.collect();
        true
    }

    pub(super) fn trim(&self, step: Step) -> bool {
        let (pool, _) = &self.pools[usize::from(step.first) % self.pools.len()];
        if step.what == What::FreeHeld {
            pool.free_held();
        } else {
            pool.trim(usize::from(step.seed) * 2);
        }
        true
    }
}
