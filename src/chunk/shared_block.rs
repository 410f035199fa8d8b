//! [`SharedBlock`]: a block as its chunks share it, with the pool that they return to.
#![forbid(unsafe_code)]

use std::fmt::Debug;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::FreeChunk;
use crate::Result;
use crate::chunk::block::Block;
use crate::report::report;
use crate::stream::binding::Binding;

/// A pool, as its chunks know it.
pub(crate) trait ChunkPool: Debug + Send + Sync {
    /// Its unique id.
    fn id(&self) -> u32;
    /// Takes a chunk back.
    fn take_back(self: Arc<Self>, chunk: FreeChunk) -> Result<()>;
}

/// A block, divided into chunks if it is a pool's; any other is all of one chunk.
#[derive(Debug)]
pub(crate) struct SharedBlock {
    pub(super) block: Block,
    pool: Option<Arc<dyn ChunkPool>>,
    pool_id: u32,
    /// Whether the device has finished with all of it.
    is_idle: AtomicBool,
}

impl SharedBlock {
    /// An id that no pool has.
    pub(crate) const NO_POOL: u32 = u32::MAX;

    #[inline]
    pub(crate) fn new(block: Block, pool: Option<Arc<dyn ChunkPool>>) -> Self {
        let pool_id = pool.as_ref().map_or(Self::NO_POOL, |pool| pool.id());
        Self { block, pool, pool_id, is_idle: AtomicBool::new(false) }
    }

    #[inline]
    pub(super) const fn pool(&self) -> Option<&Arc<dyn ChunkPool>> {
        self.pool.as_ref()
    }

    /// The id of the pool, or [`Self::NO_POOL`].
    #[inline]
    pub(super) const fn pool_id(&self) -> u32 {
        self.pool_id
    }

    /// As [`Block::release_once`].
    pub(crate) fn release(mut self, binding: &Binding) -> Result<()> {
        self.block.release_once(binding)
    }

    /// Records that the device has finished with all of the block, of which nothing is allocated any more: the last reference
    /// releases it without waiting.
    pub(crate) fn mark_idle(&self) {
        // The drop of the reference orders this before the drop of the last one.
        self.is_idle.store(true, Ordering::Relaxed);
    }
}

impl Drop for SharedBlock {
    fn drop(&mut self) {
        if *self.is_idle.get_mut()
            && let Err(error) = self.block.release_once(&Binding::immediate())
        {
            report!(Warn, "releasing memory: {error}");
        }
    }
}

impl Deref for SharedBlock {
    type Target = Block;

    #[inline]
    fn deref(&self) -> &Block {
        &self.block
    }
}
