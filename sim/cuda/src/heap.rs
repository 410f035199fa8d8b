#![expect(unsafe_code, reason = "allocates blocks by hand")]
//! Blocks of host memory that serve as device memory, and the device's capacity.
//!
//! Device memory is whole pages, or part of a page that it shares with other small blocks: a [`slab`].

mod slab;

use std::alloc::Layout;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use crate::pages::{PAGE, Pages};
use crate::settings::settings;
use slab::SmallBlock;

// cudaMalloc documents an alignment of 256; real drivers use 512 for small blocks, and give large ones pages of 2 MiB
// of their own.
const ALIGNMENT: usize = 512;
const LARGE: usize = 2 * MIB;
const MIB: usize = 1 << 20;

static USED: AtomicUsize = AtomicUsize::new(0);

/// The simulated device's memory in bytes: `SIMCUDA_HEAP_MIB`, or the host's.
pub(crate) fn capacity() -> usize {
    static CAPACITY: LazyLock<usize> =
        LazyLock::new(|| settings().heap_mib.map_or_else(host_memory, |mib| mib.saturating_mul(MIB)));
    *CAPACITY
}

/// The number of bytes that can still be allocated.
pub(crate) fn available() -> usize {
    capacity().saturating_sub(USED.load(Ordering::Relaxed))
}

/// The host's memory in bytes, which no block exceeds.
static HOST_MEMORY: LazyLock<usize> = LazyLock::new(host_memory);

fn host_memory() -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<usize>().ok());
    kib.map_or(4096 * MIB, |kib| kib * 1024)
}

/// A zeroed, aligned block, freed on drop.
pub(crate) struct Block {
    #[expect(dead_code, reason = "held for its drop")]
    storage: Storage,
    #[expect(dead_code, reason = "held for its drop")]
    charge: Option<Charge>,
    pub(crate) address: usize,
}

/// Bytes that count against the device's capacity, until they are dropped.
pub(crate) struct Charge(usize);

impl Charge {
    /// Takes bytes of the capacity; `None` if so many are not left.
    pub(crate) fn new(size: usize) -> Option<Charge> {
        if size == 0 || size > *HOST_MEMORY {
            return None;
        }
        let charge = |used: usize| used.checked_add(size).filter(|&total| total <= capacity());
        #[allow(deprecated, reason = "its new name, try_update, needs Rust 1.95")]
        let charged = USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, charge);
        charged.ok().map(|_| Charge(size))
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        USED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

#[expect(dead_code, reason = "the values are held, not read")]
enum Storage {
    Host(HostBlock),
    Pages(Arc<Pages>),
    Slab(SmallBlock),
}

impl Block {
    /// A block of device memory, which counts against the device's capacity, and whose pages can be exported.
    pub(crate) fn device(size: usize) -> Option<Block> {
        Block::charged(size, || {
            if size < PAGE {
                let block = SmallBlock::new(size)?;
                return Some((block.address(), Storage::Slab(block)));
            }
            let pages = Pages::new(size, if size < LARGE { PAGE } else { LARGE })?;
            Some((pages.start, Storage::Pages(pages)))
        })
    }

    /// A block of managed memory, which counts against the device's capacity.
    pub(crate) fn managed(size: usize) -> Option<Block> {
        let allocate = || HostBlock::new(size, if size < LARGE { ALIGNMENT } else { LARGE });
        Block::charged(size, || allocate().map(|block| (block.address, Storage::Host(block))))
    }

    fn charged(size: usize, allocate: impl FnOnce() -> Option<(usize, Storage)>) -> Option<Block> {
        let charge = Charge::new(size)?;
        allocate().map(|(address, storage)| Block { storage, charge: Some(charge), address })
    }

    /// A block of page-locked host memory, limited by the host's memory.
    pub(crate) fn host(size: usize) -> Option<Block> {
        let block = HostBlock::new(size, ALIGNMENT)?;
        Some(Block { address: block.address, storage: Storage::Host(block), charge: None })
    }
}

/// Zeroed memory of the host's allocator.
struct HostBlock {
    start: *mut u8,
    layout: Layout,
    address: usize,
}

// SAFETY: the block owns its memory, and hands out nothing but its address.
unsafe impl Send for HostBlock {}
// SAFETY: as above; there is no interior state.
unsafe impl Sync for HostBlock {}

impl HostBlock {
    fn new(size: usize, alignment: usize) -> Option<HostBlock> {
        if size == 0 || size > *HOST_MEMORY {
            return None;
        }
        // Aligned by hand: `alloc_zeroed` with a large alignment would touch every page.
        let layout = Layout::from_size_align(size.checked_add(alignment)?, 16).ok()?;
        // SAFETY: the layout's size is not zero.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        if start.is_null() {
            return None;
        }
        let address = start.expose_provenance().next_multiple_of(alignment);
        Some(HostBlock { start, layout, address })
    }
}

impl Drop for HostBlock {
    fn drop(&mut self) {
        // SAFETY: `start` was allocated with this layout, and is freed here only.
        unsafe { std::alloc::dealloc(self.start, self.layout) }
    }
}
