//! [`SharedBlock`]: a block as its chunks share it, with the pool that they return to.
#![forbid(unsafe_code)]

use std::fmt::Debug;
use std::ops::Deref;
use std::sync::Arc;

use super::FreeChunk;
use crate::Result;
use crate::chunk::block::Block;
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
}

impl SharedBlock {
    /// An id that no pool has.
    pub(crate) const NO_POOL: u32 = u32::MAX;

    #[inline]
    pub(crate) fn new(block: Block, pool: Option<Arc<dyn ChunkPool>>) -> Self {
        let pool_id = pool.as_ref().map_or(Self::NO_POOL, |pool| pool.id());
        Self { block, pool, pool_id }
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

    /// As [`Block::release`].
    pub(crate) fn release(self, binding: &Binding) -> Result<()> {
        self.block.release(binding)
    }
}

impl Deref for SharedBlock {
    type Target = Block;

    #[inline]
    fn deref(&self) -> &Block {
        &self.block
    }
}
