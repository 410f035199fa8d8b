//! Keeps the memory of dropped, unbound rings until the last ring of their context is dropped.
//!
//! Freeing the memory of an unbound ring waits for all kernels of its context, including those of other rings, which
//! end only when those rings are dropped.
#![forbid(unsafe_code)]

use crate::Memory;
use crate::driver::context::Context;
use crate::driver::fork;
use crate::lock::Lock;

static FAMILIES: Lock<Vec<Family>> = Lock::new(Vec::new());

/// The rings of a context.
struct Family {
    context: Context,
    /// The number of live rings.
    rings: usize,
    /// The memory of rings that were dropped.
    kept: Vec<Memory>,
}

/// Counts one live ring of a context, until it is dropped.
#[derive(Debug)]
pub(super) struct Sibling(Context);

impl Sibling {
    pub(super) fn new(context: Context) -> Self {
        let mut families = FAMILIES.lock();
        match families.iter_mut().find(|family| family.context == context) {
            Some(family) => family.rings += 1,
            None => families.push(Family { context, rings: 1, kept: Vec::new() }),
        }
        Self(context)
    }

    /// Keeps the memory until the last ring of the context is dropped, which may be this one.
    pub(super) fn keep(&self, memory: [&Memory; 2]) {
        let mut families = FAMILIES.lock();
        if let Some(family) = families.iter_mut().find(|family| family.context == self.0) {
            family.kept.extend(memory.map(Memory::clone));
        }
    }
}

impl Drop for Sibling {
    fn drop(&mut self) {
        if fork::is_forked() {
            // A thread of the parent may have held the lock at the fork.
            return;
        }
        let last = {
            let mut families = FAMILIES.lock();
            let Some(place) = families.iter().position(|family| family.context == self.0) else { return };
            let rings = &mut families[place].rings;
            *rings -= 1;
            if *rings > 0 { None } else { Some(families.swap_remove(place)) }
        };
        // Frees the memory, which waits and may log: without the lock.
        drop(last.map(|family| family.kept));
    }
}
