//! The table of address ranges that the device knows: device memory, page-locked host memory, mapped imports.
//!
//! A *region* is a stretch of memory with one owner of its pages; a *window* is what one driver call handed out:
//! the whole region for an allocation, any part of it for a buffer mapped from external memory (windows of one
//! region may overlap). Work refers to memory by *span*, which names its window: memory that was freed and
//! allocated again at the same address is not mistaken for the old.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::heap::Block;
use crate::context::Owner;
use crate::handle;
use crate::sync::lock;
use crate::vulkan::Import;

/// Where a region came from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Device,
    Managed,
    Host { flags: u32 },
    Registered { flags: u32 },
    Imported,
}

impl Kind {
    /// Whether the pages are on the device's side, where host code has no business with this address.
    pub(crate) fn is_device(self) -> bool {
        matches!(self, Kind::Device | Kind::Imported)
    }
}

/// What keeps a region's pages.
#[expect(dead_code, reason = "the values are held, not read")]
pub(crate) enum Backing {
    Block(Block),
    Import(Arc<Import>),
    /// Registered host memory: its pages are the caller's.
    Caller,
}

#[derive(Clone, Copy)]
pub(crate) struct Window {
    pub(crate) id: u64,
    pub(crate) address: usize,
    pub(crate) size: usize,
    pub(crate) owner: Owner,
}

impl Window {
    fn contains(&self, address: usize, len: usize) -> bool {
        address >= self.address && len <= self.size && address - self.address <= self.size - len
    }
}

struct Region {
    size: usize,
    kind: Kind,
    windows: Vec<Window>,
    backing: Arc<Backing>,
}

/// A window and the kind of its region.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) kind: Kind,
    pub(crate) window: Window,
}

/// A checked range inside one window.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    pub(crate) address: usize,
    pub(crate) kind: Kind,
    window: u64,
}

/// Keeps a span's pages from being released while work runs on them.
#[expect(dead_code, reason = "the value is held, not read")]
pub(crate) struct Pinned(Arc<Backing>);

// Regions by start address. They do not overlap.
static REGIONS: Mutex<BTreeMap<usize, Region>> = Mutex::new(BTreeMap::new());

/// Adds a region that is one window, and returns its address.
pub(crate) fn insert(address: usize, size: usize, kind: Kind, owner: Owner, backing: Backing) -> usize {
    let window = Window { id: handle::next_id(), address, size, owner };
    let region = Region { size, kind, windows: vec![window], backing: Arc::new(backing) };
    lock(&REGIONS).insert(address, region);
    address
}

/// Adds a registered host range; false when it overlaps a region that is there.
pub(crate) fn insert_registered(address: usize, size: usize, flags: u32, owner: Owner) -> bool {
    let mut regions = lock(&REGIONS);
    let before = regions.range(..address.saturating_add(size)).next_back();
    if before.is_some_and(|(start, region)| start + region.size > address) {
        return false;
    }
    let window = Window { id: handle::next_id(), address, size, owner };
    let kind = Kind::Registered { flags };
    regions.insert(address, Region { size, kind, windows: vec![window], backing: Arc::new(Backing::Caller) });
    true
}

/// Adds a window onto an import that is mapped at `base`.
pub(crate) fn insert_imported(import: Arc<Import>, base: usize, offset: usize, size: usize, owner: Owner) {
    let window = Window { id: handle::next_id(), address: base + offset, size, owner };
    let mut regions = lock(&REGIONS);
    let region = regions.entry(base).or_insert_with(|| Region {
        size: import.size,
        kind: Kind::Imported,
        windows: Vec::new(),
        backing: Arc::new(Backing::Import(import)),
    });
    region.windows.push(window);
}

/// Removes the window that starts at `address` and is of a kind that `wanted` accepts.
pub(crate) fn remove(address: usize, wanted: impl Fn(Kind) -> bool) -> Option<Window> {
    let mut regions = lock(&REGIONS);
    let (&base, region) = regions.range_mut(..=address).next_back()?;
    if !wanted(region.kind) {
        return None;
    }
    let index = region.windows.iter().rposition(|window| window.address == address)?;
    let window = region.windows.remove(index);
    let gone = if region.windows.is_empty() { regions.remove(&base) } else { None };
    // Pages are released with the table unlocked: that may call Vulkan.
    drop(regions);
    drop(gone);
    Some(window)
}

/// The window that contains `address`.
pub(crate) fn find(address: usize) -> Option<Found> {
    find_range(address, 1)
}

fn find_range(address: usize, len: usize) -> Option<Found> {
    let regions = lock(&REGIONS);
    let (_, region) = regions.range(..=address).next_back()?;
    let window = region.windows.iter().rev().find(|window| window.contains(address, len))?;
    Some(Found { kind: region.kind, window: *window })
}

/// The range as a span, if one window contains all of it.
pub(crate) fn span(address: usize, len: usize) -> Option<Span> {
    let found = find_range(address, len)?;
    Some(Span { address, kind: found.kind, window: found.window.id })
}

/// Keeps the span's pages for as long as the result lives; `None` when its window is gone.
pub(crate) fn pin(span: &Span) -> Option<Pinned> {
    let regions = lock(&REGIONS);
    let (_, region) = regions.range(..=span.address).next_back()?;
    let live = region.windows.iter().any(|window| window.id == span.window);
    live.then(|| Pinned(Arc::clone(&region.backing)))
}

/// How many windows of the kinds that `wanted` accepts are live.
pub(crate) fn count(wanted: impl Fn(Kind) -> bool) -> usize {
    lock(&REGIONS).values().filter(|region| wanted(region.kind)).map(|region| region.windows.len()).sum()
}

/// Removes everything that a destroyed context still owned.
pub(crate) fn release_all_of(owner: Owner) {
    let mut regions = lock(&REGIONS);
    for region in regions.values_mut() {
        region.windows.retain(|window| window.owner != owner);
    }
    let empty: Vec<usize> =
        regions.iter().filter(|(_, region)| region.windows.is_empty()).map(|(&base, _)| base).collect();
    let gone: Vec<Region> = empty.iter().filter_map(|base| regions.remove(base)).collect();
    drop(regions);
    drop(gone);
}
