//! Windows, and the pages behind them.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::heap::Block;
use crate::owner::Owner;
use crate::pages::Mapping;
use crate::pool::Chunk;
use crate::virtual_memory::Physical;
use crate::vulkan::Import;

/// Between two looks at the pages that copies under way keep.
const PAUSE: Duration = Duration::from_micros(20);

/// The owner of a region's pages.
#[expect(dead_code, reason = "the values are held, not read")]
pub(crate) enum Backing {
    Block(Block),
    Chunk(Chunk),
    Mapping(Mapping),
    Import(Arc<Import>),
    Physical(Arc<Physical>),
    /// Of several regions that lie side by side.
    Several(Vec<Arc<Backing>>),
    /// Registered host memory: its pages are the caller's.
    Caller,
}

/// What one driver call handed out: a range of addresses.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    pub(crate) id: u64,
    pub(crate) address: usize,
    pub(crate) size: usize,
    pub(crate) owner: Owner,
}

impl Window {
    /// Whether all of the range is in it.
    pub(super) fn contains(&self, address: usize, len: usize) -> bool {
        address >= self.address && len <= self.size && address - self.address <= self.size - len
    }
}

/// Keeps a span's pages from being released while work runs on them.
#[derive(Clone)]
pub(crate) struct Pinned(Arc<Backing>);

impl Pinned {
    pub(super) fn new(pages: &Arc<Backing>) -> Pinned {
        Pinned(Arc::clone(pages))
    }

    /// The pages of several regions.
    pub(super) fn of_all<'a>(pages: impl Iterator<Item = &'a Arc<Backing>>) -> Pinned {
        Pinned(Arc::new(Backing::Several(pages.cloned().collect())))
    }

    /// Waits until nothing else keeps the pages. They must be out of the table, so that nothing new does.
    pub(crate) fn wait_for_others(&self) {
        while Arc::strong_count(&self.0) > 1 {
            thread::sleep(PAUSE);
        }
    }

    /// Whether the driver allocated the pages itself.
    pub(super) fn is_block(&self) -> bool {
        matches!(*self.0, Backing::Block(_) | Backing::Chunk(_) | Backing::Mapping(_))
    }
}
