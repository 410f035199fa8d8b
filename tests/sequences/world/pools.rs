//! Pools and allocations from them.
#![expect(unsafe_code, reason = "allocates on streams that the world keeps alive")]

use std::sync::{Arc, Mutex, Weak};

use support::Result;
use support::step::{Step, What};
use vkgdr::{MemoryKind, Pool, PoolOptions};

use super::World;
use super::item::{Bytes, Item, Owner, Site};

/// The largest number of pools.
const MOST: usize = 3;
const BLOCKS: [usize; 3] = [64 << 10, 256 << 10, 2 << 20];

/// A pool of the world, with its live chunks.
pub(super) struct PoolSlot {
    pool: Pool,
    site: Site,
    chunks: Vec<Weak<Mutex<Bytes>>>,
}

impl PoolSlot {
    /// Fails unless the pool's counts match the live chunks.
    fn check(&mut self) -> Result {
        self.chunks.retain(|chunk| chunk.strong_count() > 0);
        let (active, alive) = (self.pool.used_chunks(), self.chunks.len());
        let enough = self.pool.managed_bytes() >= self.pool.active_bytes();
        if active == alive && enough { Ok(()) } else { Err(format!("{active} active chunks, {alive} alive").into()) }
    }
}

impl World {
    pub(super) fn apply_to_pools(&mut self, step: Step) -> Result<bool> {
        if step.what == What::NewPool {
            return self.new_pool(step);
        }
        // The number after the last pool selects a shared one.
        let index = usize::from(step.first) % (self.pools.len() + 1);
        let own = self.pools.get(index).map(|slot| (slot.pool.clone(), slot.site));
        let is_own = own.is_some();
        let shared = || self.shared_pool(step).map(|pool| (pool, Site::Primary));
        let Some((pool, site)) = own.or_else(shared) else { return Ok(false) };
        match step.what {
            What::ClosePool if is_own => drop(self.pools.swap_remove(index)),
            What::PoolTrim => {
                let managed = pool.managed_bytes();
                let given_back = pool.trim(usize::from(step.seed) * 16);
                assert!(!is_own || given_back == managed - pool.managed_bytes(), "{given_back} of {managed}, {pool:?}");
            }
            What::PoolFreeHeld => pool.release_unused(),
            What::PoolStopHolding => pool.disable_caching(),
            What::PoolAllocate => {
                if let Some(item) = self.chunk(&pool, site, step)? {
                    if is_own {
                        self.pools[index].chunks.push(Arc::downgrade(&item.bytes));
                    }
                    self.adopt(item, step)?;
                }
            }
            _ => return Ok(false),
        }
        self.check_pools()?;
        Ok(true)
    }

    /// Whether the item is a chunk of one of the world's pools.
    pub(super) fn counts(&self, item: &Item) -> bool {
        let of = |slot: &PoolSlot| slot.chunks.iter().any(|chunk| chunk.as_ptr() == Arc::as_ptr(&item.bytes));
        self.pools.iter().any(of)
    }

    pub(super) fn check_pools(&mut self) -> Result {
        self.pools.iter_mut().try_for_each(PoolSlot::check)
    }

    /// One of the pools that threads share.
    fn shared_pool(&self, step: Step) -> Option<Pool> {
        let pools = self.shared.pools();
        pools.get(usize::from(step.second) % pools.len().max(1)).cloned()
    }

    /// Puts another pool in the place of a shared one, which goes with its last clone.
    pub(super) fn replace_pool(&mut self, step: Step) -> Result<bool> {
        let Some(old) = self.shared_pool(step) else { return Ok(false) };
        let made = super::pool(&self.shared.gpu, old.kind());
        let Some(new) = self.judged(&self.shared.gpu.clone(), old.kind(), made)? else { return Ok(true) };
        let mut pools = self.shared.pools();
        let place = usize::from(step.second) % pools.len();
        let replaced = std::mem::replace(&mut pools[place], new);
        drop(pools);
        drop(replaced);
        Ok(true)
    }

    fn new_pool(&mut self, step: Step) -> Result<bool> {
        if self.pools.len() >= MOST {
            return Ok(false);
        }
        let kind = MemoryKind::ALL[usize::from(step.choice) % MemoryKind::ALL.len()];
        let (gpu, site) = self.handle(step.first, step.second.is_multiple_of(2));
        let block = BLOCKS[usize::from(step.seed) % BLOCKS.len()];
        let options = PoolOptions::new(kind).block_len(block).largest_chunk(block / 2);
        let options = options.classes_per_doubling(1 << (step.choice % 5)).alignment(64 << (step.second % 7));
        let made = self.inside(site, || Pool::new(&gpu, options));
        let Some(pool) = self.judged(&gpu, kind, made)? else { return Ok(true) };
        let site = if gpu.own_context().is_some() { Site::Primary } else { site };
        self.pools.push(PoolSlot { pool, site, chunks: Vec::new() });
        Ok(true)
    }

    /// Allocates a chunk, sometimes bound to a stream.
    fn chunk(&mut self, pool: &Pool, site: Site, step: Step) -> Result<Option<Item>> {
        if self.is_full() {
            return Ok(None);
        }
        let len = step.span.new_len();
        let bound = step.choice.is_multiple_of(3).then(|| self.streams.of(site, step.second));
        let made = match bound {
            None => pool.allocate(len),
            Some(stream) => match self.streams.cudarc(stream) {
                Some(stream) => pool.allocate_on(len, stream),
                // SAFETY: chunks are dropped before the world's streams, and bound chunks are not passed on.
                None => unsafe { pool.allocate_on_raw(len, self.streams.raw(stream)) },
            },
        };
        let Some(chunk) = self.judged(&self.shared.gpu.clone(), pool.kind(), made)? else { return Ok(None) };
        let item = Item::new(Owner::Memory(chunk), site);
        if let Some(stream) = bound {
            item.terms().bound = Some(stream);
            item.terms().recorded = true;
            // Work of the previous user on that stream may still be pending.
            item.bytes().pending.insert(stream);
        }
        Ok(Some(item))
    }
}
