//! [`AllocatorState`]: gpu-allocator, the blocks that it divides, and the live allocations, behind one lock.
#![expect(unsafe_code, reason = "asks gpu-allocator for the handle of a block")]

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use ash::vk;
use cudarc::driver::sys::CUdeviceptr;
use gpu_allocator::AllocationError;
use gpu_allocator::vulkan::{Allocation, AllocationCreateDesc, Allocator as Suballocator};

use super::slab::Slab;
use super::stub_device::{BlockRequest, Offer, Scope};
use crate::memory::{Block, Inner};

/// The state of an allocator, behind its lock. No method calls a driver.
#[derive(Default)]
pub(super) struct AllocatorState {
    /// `None` once the allocator and all its allocations were dropped.
    pub(super) suballocator: Option<Suballocator>,
    pub(super) blocks: HashMap<vk::DeviceMemory, Arc<Block>>,
    /// gpu-allocator's record of each live memory, by the memory's slot.
    pub(super) allocations: Slab<Allocation>,
    /// The live memories by their device addresses.
    pub(super) memories: BTreeMap<CUdeviceptr, Weak<Inner>>,
    pub(super) is_closed: bool,
}

/// A part of a block.
pub(super) struct Suballocation {
    pub(super) block: Arc<Block>,
    pub(super) slot: u32,
    /// In bytes.
    pub(super) offset: u64,
}

/// The result of one call of gpu-allocator.
pub(super) struct Attempt {
    pub(super) suballocation: std::result::Result<Suballocation, AllocationError>,
    pub(super) request: Option<BlockRequest>,
    /// Blocks that are not in the state, with the offered one if it was not taken.
    pub(super) freed: Vec<Arc<Block>>,
}

impl AllocatorState {
    /// Calls gpu-allocator, which may have the offered block.
    pub(super) fn attempt(
        &mut self,
        desc: &AllocationCreateDesc<'_>,
        offer: Option<(Offer, Arc<Block>)>,
        failed: &[BlockRequest],
    ) -> Attempt {
        let (offer, mut offered) = offer.unzip();
        let mut scope = Scope { offer, failed: failed.to_vec(), ..Scope::default() };
        let Self { suballocator: Some(suballocator), blocks, allocations, .. } = self else {
            let closed = AllocationError::Internal("the allocator was dropped".to_owned());
            return Attempt { suballocation: Err(closed), request: None, freed: Vec::from_iter(offered) };
        };
        let mut allocated = scope.run(|| suballocator.allocate(desc));
        if let Some(Offer { memory, .. }) = offer.filter(|_| scope.taken)
            && let Some(block) = offered.take()
        {
            blocks.insert(memory, block);
        }
        // It took another memory type than it requested first, only because no block of that had been made.
        if scope.request.is_some()
            && let Ok(allocation) = allocated
        {
            let freed = scope.run(|| suballocator.free(allocation));
            allocated = Err(freed.err().unwrap_or(AllocationError::OutOfMemory));
        }
        let suballocation = allocated.and_then(|allocation| {
            // SAFETY: the handle is only looked up.
            let block = blocks.get(&unsafe { allocation.memory() }).cloned();
            let offset = allocation.offset();
            let block = block.ok_or_else(|| AllocationError::Internal("an unknown block".to_owned()))?;
            let slot = allocations.insert(allocation);
            let slot = slot.map_err(|_| AllocationError::Internal("too many allocations".to_owned()))?;
            Ok(Suballocation { block, slot, offset })
        });
        let freed = scope.freed.iter().filter_map(|memory| blocks.remove(memory)).chain(offered).collect();
        Attempt { suballocation, request: scope.request, freed }
    }

    /// Ends an allocation. Returns the blocks that gpu-allocator gives back by that.
    pub(super) fn free(&mut self, slot: u32) -> (Vec<Arc<Block>>, std::result::Result<(), AllocationError>) {
        let mut scope = Scope::default();
        let freed = match (self.allocations.remove(slot), &mut self.suballocator) {
            (Some(allocation), Some(suballocator)) => scope.run(|| suballocator.free(allocation)),
            _ => Ok(()),
        };
        let mut blocks: Vec<_> = scope.freed.iter().filter_map(|memory| self.blocks.remove(memory)).collect();
        blocks.extend(self.take_idle());
        (blocks, freed)
    }

    /// Takes gpu-allocator's remaining blocks, once the allocator is closed and has no allocations; none before.
    pub(super) fn take_idle(&mut self) -> Vec<Arc<Block>> {
        if !self.is_closed || !self.allocations.is_empty() {
            return Vec::new();
        }
        let suballocator = self.suballocator.take();
        // It reports no leaks: nothing is allocated.
        Scope::default().run(|| drop(suballocator));
        std::mem::take(&mut self.blocks).into_values().collect()
    }
}
