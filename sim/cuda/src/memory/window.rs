//! Windows, and the pages behind them.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::handle;
use crate::owner::Owner;

/// Between two looks at the pages that copies under way keep.
const PAUSE: Duration = Duration::from_micros(20);

/// The owner of a region's pages, which live as long as it does.
pub(crate) struct Backing {
    /// Whether the driver allocated the pages itself.
    is_block: bool,
    /// Held, not read. Registered host memory has none: its pages are the caller's.
    _pages: Option<Box<dyn Send + Sync>>,
}

impl Backing {
    /// Pages that the driver allocated, or has from another process.
    pub(crate) fn block(pages: impl Send + Sync + 'static) -> Backing {
        Backing { is_block: true, _pages: Some(Box::new(pages)) }
    }

    /// Pages that also others keep: imported ones, and allocations that are mapped.
    pub(crate) fn shared(pages: impl Send + Sync + 'static) -> Backing {
        Backing { is_block: false, _pages: Some(Box::new(pages)) }
    }

    /// Registered host memory.
    pub(super) fn of_caller() -> Backing {
        Backing { is_block: false, _pages: None }
    }
}

/// What one driver call handed out: a range of addresses.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    pub(crate) id: u64,
    pub(crate) address: usize,
    pub(crate) size: usize,
    pub(crate) owner: Owner,
    /// Whether copies and fills that are synchronous by name always wait for their end: `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`.
    pub(crate) synchronous: bool,
}

impl Window {
    /// A window with an id of its own.
    pub(super) fn new(address: usize, size: usize, owner: Owner) -> Window {
        Window { id: handle::next_id(), address, size, owner, synchronous: false }
    }

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
        Pinned(Arc::new(Backing::shared(pages.cloned().collect::<Vec<_>>())))
    }

    /// Waits until nothing else keeps the pages. They must be out of the table, so that nothing new does.
    pub(crate) fn wait_for_others(&self) {
        while Arc::strong_count(&self.0) > 1 {
            thread::sleep(PAUSE);
        }
    }

    /// Whether the driver allocated the pages itself.
    pub(super) fn is_block(&self) -> bool {
        self.0.is_block
    }
}
