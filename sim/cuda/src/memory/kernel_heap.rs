//! The heap of `malloc` in kernels: each context has one, whose size is a limit of the context.
//!
//! Each block is a window of its own, so that kernels' accesses are checked as for other memory. Blocks outlive the
//! launch that allocated them, and end with their context.

use std::collections::HashMap;
use std::slice;
use std::sync::Mutex;

use super::table;
use super::window::Window;
use crate::heap::Block;
use crate::owner::Owner;
use crate::sync::lock;

// The size of a new context's heap (CUDA C++ Programming Guide, "Dynamic Global Memory Allocation and Operations").
const DEFAULT_BYTES: usize = 8 << 20;

// What a block takes beside its bytes, which CUDA does not document. It bounds the host's memory for a heap of small blocks.
const HEADER: usize = 64;

/// The bytes of the heap that a block takes.
fn cost(size: usize) -> usize {
    size.div_ceil(16).saturating_mul(16).saturating_add(HEADER)
}

/// One context's heap.
pub(crate) struct KernelHeap {
    state: Mutex<State>,
}

struct State {
    limit: usize,
    used: usize,
    // By address.
    blocks: HashMap<usize, Window>,
}

impl Default for KernelHeap {
    fn default() -> KernelHeap {
        let state = State { limit: DEFAULT_BYTES, used: 0, blocks: HashMap::new() };
        KernelHeap { state: Mutex::new(state) }
    }
}

impl KernelHeap {
    /// The size in bytes.
    pub(crate) fn limit(&self) -> usize {
        lock(&self.state).limit
    }

    /// Blocks that exist stay, even where they are larger together.
    pub(crate) fn set_limit(&self, bytes: usize) {
        lock(&self.state).limit = bytes;
    }

    /// The address of a new block; `None` if it does not fit.
    pub(super) fn allocate(&self, size: usize, owner: Owner) -> Option<usize> {
        let mut state = lock(&self.state);
        let used = state.used.checked_add(cost(size)).filter(|&used| used <= state.limit)?;
        let windows = table::insert_variables(Block::host(size)?, size, slice::from_ref(&(0..size)), false, owner);
        let window = *windows.first()?;
        state.used = used;
        state.blocks.insert(window.address, window);
        Some(window.address)
    }

    /// Frees the block at an address; `None` if no block of this heap starts there.
    pub(super) fn release(&self, address: usize) -> Option<()> {
        let mut state = lock(&self.state);
        let window = state.blocks.remove(&address)?;
        state.used -= cost(window.size);
        drop(state);
        table::remove_variables(&[window]);
        Some(())
    }
}
