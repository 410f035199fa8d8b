//! The table of address ranges that the device knows: device memory, page-locked host memory, mapped imports.
//!
//! A *region* is a stretch of memory with one owner of its pages; a *window* is what one driver call handed out:
//! the whole region for an allocation, any part of it for a buffer mapped from external memory (windows of one
//! region may overlap). Work refers to memory by *span*, which names its window, so that memory that was freed and
//! allocated again at the same address is not mistaken for the old. Kernels see the table through `view`.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use super::cache;
use super::window::{Backing, Pinned, Window};
use crate::context;
use crate::heap::Block;
use crate::owner::Owner;
use crate::sync::lock;
use crate::vulkan::Import;

/// Where a region came from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Device,
    /// From a memory pool.
    Pooled {
        pool: usize,
    },
    /// From another process.
    Shared,
    /// Mapped at reserved addresses, with access for the device.
    Virtual,
    Managed,
    Host {
        flags: u32,
    },
    Registered {
        flags: u32,
    },
    Imported,
    /// A module's `__device__` or `__constant__` variables, or those that are also `__managed__`.
    Variable {
        managed: bool,
    },
}

impl Kind {
    /// Whether the address is a device address, not to be accessed by host code.
    pub(crate) fn is_device(self) -> bool {
        !self.is_managed() && !matches!(self, Kind::Host { .. } | Kind::Registered { .. })
    }

    pub(crate) fn is_managed(self) -> bool {
        matches!(self, Kind::Managed | Kind::Variable { managed: true })
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

/// A checked range inside one window, or in several windows of virtual memory that lie side by side.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    pub(crate) address: usize,
    len: usize,
    pub(crate) kind: Kind,
    pub(crate) owner: Owner,
    /// The first one.
    window: u64,
    /// Whether a window of it is [`Window::synchronous`].
    pub(crate) synchronous: bool,
}

// Regions by start address. They do not overlap.
static REGIONS: Mutex<BTreeMap<usize, Region>> = Mutex::new(BTreeMap::new());

// The windows removed last, newest first, to explain a kernel's illegal access.
static FREED: Mutex<VecDeque<Window>> = Mutex::new(VecDeque::new());
const REMEMBERED: usize = 64;

/// Adds a region that is one window, and returns its address.
pub(crate) fn insert(address: usize, size: usize, kind: Kind, owner: Owner, backing: Backing) -> usize {
    insert_window(address, size, kind, owner, backing).address
}

/// As [`insert`]; returns the window.
pub(crate) fn insert_window(address: usize, size: usize, kind: Kind, owner: Owner, backing: Backing) -> Window {
    let window = Window::new(address, size, owner);
    let region = Region { size, kind, windows: vec![window], backing: Arc::new(backing) };
    lock(&REGIONS).insert(address, region);
    window
}

/// Adds a registered host range; false when it overlaps an existing region.
pub(crate) fn insert_registered(address: usize, size: usize, flags: u32, owner: Owner) -> bool {
    let mut regions = lock(&REGIONS);
    let before = regions.range(..address.saturating_add(size)).next_back();
    if before.is_some_and(|(start, region)| start + region.size > address) {
        return false;
    }
    let window = Window::new(address, size, owner);
    let kind = Kind::Registered { flags };
    regions.insert(address, Region { size, kind, windows: vec![window], backing: Arc::new(Backing::of_caller()) });
    true
}

/// Adds a window onto an import that is mapped at `base`.
pub(crate) fn insert_imported(import: Arc<Import>, base: usize, offset: usize, size: usize, owner: Owner) {
    let window = Window::new(base + offset, size, owner);
    let mut regions = lock(&REGIONS);
    let region = regions.entry(base).or_insert_with(|| Region {
        size: import.size,
        kind: Kind::Imported,
        windows: Vec::new(),
        backing: Arc::new(Backing::shared(import)),
    });
    region.windows.push(window);
}

/// Adds a region with a window for each of `ranges`, which are offsets in the block.
pub(crate) fn insert_variables(
    block: Block,
    size: usize,
    ranges: &[Range<usize>],
    managed: bool,
    owner: Owner,
) -> Vec<Window> {
    let base = block.address;
    let window = |range: &Range<usize>| Window::new(base + range.start, range.len(), owner);
    let windows: Vec<Window> = ranges.iter().map(window).collect();
    let backing = Arc::new(Backing::block(block));
    lock(&REGIONS).insert(base, Region { size, kind: Kind::Variable { managed }, windows: windows.clone(), backing });
    windows
}

/// Removes a region of variables by its windows, unless the destruction of its context already has.
pub(crate) fn remove_variables(windows: &[Window]) {
    let Some(first) = windows.first() else { return };
    let mut regions = lock(&REGIONS);
    let base = regions.range(..=first.address).next_back().map(|(&base, _)| base);
    let same = |region: &Region| region.windows.iter().any(|window| window.id == first.id);
    let gone = base.filter(|base| regions.get(base).is_some_and(same)).and_then(|base| regions.remove(&base));
    drop(regions);
    forget(windows.iter().copied());
    drop(gone);
}

// Invalidates the kernels' cached windows. Afterwards, no window that is missing from the table is accessed.
fn forget(windows: impl IntoIterator<Item = Window>) {
    let mut freed = lock(&FREED);
    windows.into_iter().for_each(|window| freed.push_front(window));
    freed.truncate(REMEMBERED);
    drop(freed);
    cache::forget_all();
}

/// Removes the window that starts at `address` and is of a kind that `wanted` accepts. Work that is already
/// queued keeps the pages of memory that the driver allocated itself, since CUDA's functions may wait for such work.
/// Imported and registered memory is released regardless.
pub(crate) fn remove(address: usize, wanted: impl Fn(Kind) -> bool) -> Option<Window> {
    let (window, pages, _) = take(address, wanted)?;
    drop(pages);
    Some(window)
}

/// As [`remove`], once the kernels have ended that were launched in the memory's context.
pub(crate) fn remove_after_kernels(address: usize, wanted: impl Fn(Kind) -> bool) -> Option<Window> {
    let found = find(address).filter(|found| found.window.address == address && wanted(found.kind))?;
    context::wait_for_kernels(found.window.owner);
    remove(address, wanted)
}

/// As [`remove`]; also returns the kind of the memory, and its pages, which live at least for as long as the result.
pub(crate) fn take(address: usize, wanted: impl Fn(Kind) -> bool) -> Option<(Window, Pinned, Kind)> {
    let (window, pages, kind) = {
        let regions = lock(&REGIONS);
        let (_, region) = regions.range(..=address).next_back().filter(|(_, region)| wanted(region.kind))?;
        let window = *region.windows.iter().rfind(|window| window.address == address)?;
        (window, Pinned::new(&region.backing), region.kind)
    };
    // With the table unlocked: the order is the list of caches, a cache, the table.
    if pages.is_block() {
        cache::keep(window, &pages);
    }
    let mut regions = lock(&REGIONS);
    let (&base, region) = regions.range_mut(..=address).next_back()?;
    // Another thread may have removed it meanwhile.
    let index = region.windows.iter().position(|candidate| candidate.id == window.id)?;
    region.windows.remove(index);
    let gone = if region.windows.is_empty() { regions.remove(&base) } else { None };
    // Pages are released with the table unlocked, since that may call Vulkan.
    drop(regions);
    forget([window]);
    drop(gone);
    Some((window, pages, kind))
}

/// The window that contains `address`.
pub(crate) fn find(address: usize) -> Option<Found> {
    find_range(address, 1)
}

fn find_range(address: usize, len: usize) -> Option<Found> {
    let regions = lock(&REGIONS);
    let (region, window) = look_up(&regions, address, len)?;
    Some(Found { kind: region.kind, window })
}

// The latest window that contains all of the range, and its region.
fn look_up(regions: &BTreeMap<usize, Region>, address: usize, len: usize) -> Option<(&Region, Window)> {
    let (_, region) = regions.range(..=address).next_back()?;
    let window = region.windows.iter().rev().find(|window| window.contains(address, len))?;
    Some((region, *window))
}

/// Sets [`Window::synchronous`] of the window that contains `address`, if its memory is a device's. Whether there is one.
pub(crate) fn set_synchronous(address: usize, synchronous: bool) -> bool {
    let mut regions = lock(&REGIONS);
    let region = regions.range_mut(..=address).next_back().map(|(_, region)| region);
    let windows = region.filter(|region| region.kind.is_device()).map(|region| region.windows.iter_mut().rev());
    let window = windows.and_then(|mut windows| windows.find(|window| window.contains(address, 1)));
    let Some(window) = window else { return false };
    window.synchronous = synchronous;
    true
}

/// Whether a range, which must not wrap, has bytes of a live window of a kind that `wanted` accepts.
pub(super) fn overlaps(address: usize, len: usize, wanted: impl Fn(Kind) -> bool) -> bool {
    let regions = lock(&REGIONS);
    let before = regions.range(..address).next_back();
    before.into_iter().chain(regions.range(address..address + len)).any(|(_, region)| {
        let overlaps = |window: &Window| window.address < address + len && address < window.address + window.size;
        wanted(region.kind) && region.windows.iter().any(overlaps)
    })
}

/// The range as a span, if one window contains all of it, or mappings of virtual memory without a gap.
pub(crate) fn span(address: usize, len: usize) -> Option<Span> {
    let regions = lock(&REGIONS);
    if let Some((Region { kind, .. }, Window { id, owner, synchronous, .. })) = look_up(&regions, address, len) {
        return Some(Span { address, len, kind: *kind, owner, window: id, synchronous });
    }
    let parts = side_by_side(&regions, address, len)?;
    let first = parts.first()?;
    let window = first.windows.first()?;
    let synchronous = parts.iter().flat_map(|part| &part.windows).any(|window| window.synchronous);
    Some(Span { address, len, kind: first.kind, owner: window.owner, window: window.id, synchronous })
}

/// The regions of virtual memory that have all of a range, without a gap.
fn side_by_side(regions: &BTreeMap<usize, Region>, address: usize, len: usize) -> Option<Vec<&Region>> {
    let end = address.checked_add(len)?;
    let (mut found, mut at) = (Vec::new(), address);
    while at < end {
        let (start, region) = regions.range(..=at).next_back()?;
        if region.kind != Kind::Virtual || start + region.size <= at {
            return None;
        }
        found.push(region);
        at = start + region.size;
    }
    Some(found)
}

/// Pins the span's pages while the result lives; `None` when its window is gone.
pub(crate) fn pin(span: &Span) -> Option<Pinned> {
    let regions = lock(&REGIONS);
    let (_, region) = regions.range(..=span.address).next_back()?;
    let window = region.windows.iter().find(|window| window.id == span.window)?;
    if window.contains(span.address, span.len) {
        return Some(Pinned::new(&region.backing));
    }
    let all = side_by_side(&regions, span.address, span.len)?;
    Some(Pinned::of_all(all.iter().map(|region| &region.backing)))
}

/// A span of queued work. The pages stay alive for it if the driver allocated them; see [`remove`].
pub(crate) struct Queued {
    span: Span,
    kept: Option<Pinned>,
}

impl Queued {
    pub(crate) fn new(span: Span) -> Queued {
        let kept = pin(&span).filter(Pinned::is_block);
        Queued { span, kept }
    }

    /// Pins the pages while the result lives; `None` when they are gone.
    pub(crate) fn pin(&self) -> Option<Pinned> {
        self.kept.clone().or_else(|| pin(&self.span))
    }
}

/// The window that contains all of the range, with its pages pinned.
pub(super) fn pin_window(address: usize, len: usize) -> Option<(Window, Pinned)> {
    let regions = lock(&REGIONS);
    let (region, window) = look_up(&regions, address, len)?;
    Some((window, Pinned::new(&region.backing)))
}

/// The window nearest to an illegally accessed address: the live one that the access leaves, one that was freed, or the
/// live one before or after it.
pub(crate) fn near(address: usize) -> Near {
    let regions = lock(&REGIONS);
    let live = || regions.values().flat_map(|region| &region.windows);
    if let Some(window) = live().find(|window| window.contains(address, 1)) {
        return Near::Inside(*window);
    }
    let freed = lock(&FREED).iter().find(|window| window.contains(address, 1)).copied();
    if let Some(window) = freed {
        return Near::Freed(window);
    }
    let before = live().filter(|window| window.address <= address).max_by_key(|window| window.address + window.size);
    let after = live().filter(|window| window.address > address).min_by_key(|window| window.address);
    match (before, after) {
        (Some(before), Some(after)) if after.address - address < address - (before.address + before.size) => {
            Near::Before(*after)
        }
        (Some(before), _) => Near::After(*before),
        (None, Some(after)) => Near::Before(*after),
        (None, None) => Near::Nothing,
    }
}

/// The position of an illegally accessed address.
pub(crate) enum Near {
    Inside(Window),
    Freed(Window),
    Before(Window),
    After(Window),
    Nothing,
}

/// The number of live windows of the kinds that `wanted` accepts.
pub(crate) fn count(wanted: impl Fn(Kind) -> bool) -> usize {
    lock(&REGIONS).values().filter(|region| wanted(region.kind)).map(|region| region.windows.len()).sum()
}

/// Removes everything that a destroyed context owned.
pub(crate) fn release_all_of(owner: Owner) {
    let mut regions = lock(&REGIONS);
    let mut windows = Vec::new();
    for region in regions.values_mut() {
        windows.extend(region.windows.extract_if(.., |window| window.owner == owner));
    }
    let empty: Vec<usize> =
        regions.iter().filter(|(_, region)| region.windows.is_empty()).map(|(&base, _)| base).collect();
    let gone: Vec<Region> = empty.iter().filter_map(|base| regions.remove(base)).collect();
    drop(regions);
    forget(windows);
    drop(gone);
}
