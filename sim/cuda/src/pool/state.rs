//! A pool: the blocks that it lends, those that it keeps, and their counts.
//!
//! No lock but those of streams, slabs and pages is taken while a pool's state is locked: a kernel that ends returns blocks
//! with its cache locked. So new blocks, which are filled with zeros as a copy would, are made with the state unlocked.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use crate::code::{Code, OUT_OF_MEMORY};
use crate::heap::Block;
use crate::queue::Marker;
use crate::sync::lock;

/// A memory pool of one device.
pub(crate) struct Pool {
    pub(super) handle: usize,
    pub(super) device: i32,
    /// The most bytes that it may reserve; 0 is no limit of its own.
    pub(super) most: usize,
    state: Mutex<State>,
}

/// The counts and settings of a pool. Sizes are in bytes.
#[derive(Clone, Copy, Default)]
pub(super) struct Numbers {
    pub(super) used: usize,
    pub(super) used_high: usize,
    pub(super) reserved: usize,
    pub(super) reserved_high: usize,
    /// What is kept of unused memory when the program synchronises.
    pub(super) threshold: u64,
    /// The three settings of what may be lent again, which change nothing here.
    pub(super) reuse: [i32; 3],
}

#[derive(Default)]
struct State {
    numbers: Numbers,
    unused: Vec<(usize, Block)>,
    // Frees that their streams had not reached, oldest first.
    frees: VecDeque<Marker>,
    destroyed: bool,
}

impl State {
    /// Releases unused blocks until at most `keep` bytes are reserved.
    fn trim(&mut self, keep: usize) {
        while self.numbers.reserved > keep
            && let Some((size, block)) = self.unused.pop()
        {
            self.numbers.reserved -= size;
            drop(block);
        }
    }
}

/// A block that is lent, with its pool.
pub(crate) struct Chunk {
    block: Option<Block>,
    size: usize,
    pool: Arc<Pool>,
}

impl Chunk {
    pub(super) fn address(&self) -> usize {
        self.block.as_ref().map_or(0, |block| block.address)
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let mut state = lock(&self.pool.state);
        state.numbers.used -= self.size;
        if let Some(block) = self.block.take() {
            state.unused.push((self.size, block));
        }
        if state.destroyed {
            state.trim(0);
        }
    }
}

impl Pool {
    pub(super) fn new(handle: usize, device: i32, most: usize) -> Arc<Pool> {
        let numbers = Numbers { reuse: [1; 3], ..Numbers::default() };
        Arc::new(Pool { handle, device, most, state: Mutex::new(State { numbers, ..State::default() }) })
    }

    /// Lends a block of exactly that size, if there is an unused one or room for one more.
    pub(super) fn lend(self: &Arc<Self>, size: usize) -> Result<Chunk, Code> {
        let block = self.reserve(size)?.or_else(|| Block::device(size));
        let mut state = lock(&self.state);
        let numbers = &mut state.numbers;
        let Some(block) = block else {
            numbers.reserved -= size;
            return Err(OUT_OF_MEMORY);
        };
        numbers.used += size;
        numbers.used_high = numbers.used_high.max(numbers.used);
        numbers.reserved_high = numbers.reserved_high.max(numbers.reserved);
        drop(state);
        Ok(Chunk { block: Some(block), size, pool: Arc::clone(self) })
    }

    /// Takes an unused block of that size, or counts a new one as reserved, which the caller makes.
    fn reserve(&self, size: usize) -> Result<Option<Block>, Code> {
        let mut state = lock(&self.state);
        if let Some(index) = state.unused.iter().rposition(|(unused, _)| *unused == size) {
            return Ok(Some(state.unused.swap_remove(index).1));
        }
        if self.most > 0 {
            state.trim(self.most.saturating_sub(size));
            if state.numbers.reserved.saturating_add(size) > self.most {
                return Err(OUT_OF_MEMORY);
            }
        }
        state.numbers.reserved = state.numbers.reserved.checked_add(size).ok_or(OUT_OF_MEMORY)?;
        Ok(None)
    }

    /// Notes a free that its stream may not have reached.
    pub(super) fn note_free(&self, free: Marker) {
        let mut state = lock(&self.state);
        state.frees.retain(|free| !free.passed());
        if !free.passed() {
            state.frees.push_back(free);
        }
    }

    /// The oldest free that its stream may not have reached. It stays noted until then, for other threads to wait for.
    pub(super) fn oldest_free(&self) -> Option<Marker> {
        let mut state = lock(&self.state);
        state.frees.retain(|free| !free.passed());
        state.frees.front().cloned()
    }

    pub(super) fn numbers(&self) -> Numbers {
        lock(&self.state).numbers
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Numbers)) {
        change(&mut lock(&self.state).numbers);
    }

    /// Releases unused memory until at most `keep` bytes are reserved.
    pub(super) fn trim(&self, keep: usize) {
        lock(&self.state).trim(keep);
    }

    /// Releases the unused memory above the threshold.
    pub(super) fn trim_to_threshold(&self) {
        let mut state = lock(&self.state);
        let keep = usize::try_from(state.numbers.threshold).unwrap_or(usize::MAX);
        state.trim(keep);
    }

    /// Releases all memory, that of live allocations when they are freed.
    pub(super) fn destroy(&self) {
        let mut state = lock(&self.state);
        state.destroyed = true;
        state.trim(0);
    }
}
