//! Pools and allocations from them.
#![expect(unsafe_code, reason = "allocates on streams that the world keeps alive")]

use std::sync::{Arc, Mutex, Weak};

use support::Result;
use vkgdr::{MemoryKind, Pool, PoolOptions};

use super::World;
use super::item::{Bytes, Item, Owner, Site};
use crate::step::{Step, What};

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
        // The number after the last pool selects the shared pool.
        let index = usize::from(step.first) % (self.pools.len() + 1);
        let Some(slot) = self.pools.get_mut(index) else { return self.apply_to_shared_pool(step) };
        match step.what {
            What::ClosePool => drop(self.pools.swap_remove(index)),
            What::PoolTrim => {
                let managed = slot.pool.managed_bytes();
                let given_back = slot.pool.trim(usize::from(step.seed) * 16);
                assert_eq!(given_back, managed - slot.pool.managed_bytes());
            }
            What::PoolFreeHeld => slot.pool.release_unused(),
            What::PoolStopHolding => slot.pool.disable_caching(),
            _ => {
                let (pool, site) = (slot.pool.clone(), slot.site);
                if let Some(item) = self.chunk(&pool, site, step)? {
                    self.pools[index].chunks.push(Arc::downgrade(&item.bytes));
                    self.adopt(item, step)?;
                }
            }
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

    fn apply_to_shared_pool(&mut self, step: Step) -> Result<bool> {
        let Some(pool) = self.shared.pool.clone() else { return Ok(false) };
        match step.what {
            What::PoolTrim => drop(pool.trim(usize::from(step.seed) * 16)),
            What::PoolFreeHeld => pool.release_unused(),
            What::PoolAllocate => {
                if let Some(item) = self.chunk(&pool, Site::Primary, step)? {
                    self.adopt(item, step)?;
                }
            }
            _ => return Ok(false),
        }
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
        let site = if pool.context() == self.context.raw() { Site::Plain } else { Site::Primary };
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
        let Some(chunk) = self.judged(pool.owner(), pool.kind(), made)? else { return Ok(None) };
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
