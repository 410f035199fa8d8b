//! The advice on managed memory that was given, by pages, and the functions that ask for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use cudarc::driver::sys::{CUmem_range_attribute, CUmemLocationType};

use super::table::{self, Found};
use crate::boundary::exports;
use crate::code::{Code, INVALID_VALUE, Outcome};
use crate::context;
use crate::ffi::{In, Out};
use crate::layout::Location;
use crate::sync::lock;

/// `CU_DEVICE_CPU` in cuda.h: the host, where a device is expected.
pub(super) const HOST: i32 = -1;

pub(super) const ON_HOST: u32 = CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST as u32;
/// The host's pages, of which advice holds for whole ones.
const PAGE: usize = 4096;
/// `CU_DEVICE_INVALID`.
const NO_DEVICE: i32 = -2;
/// `CU_MEM_LOCATION_TYPE_INVALID`.
const NO_LOCATION: Location = Location { kind: 0, id: 0 };

/// What was said of a page.
#[derive(Clone, Default, PartialEq)]
pub(super) struct Advice {
    pub(super) read_mostly: bool,
    pub(super) preferred: Option<Location>,
    pub(super) accessed_by: BTreeSet<i32>,
    pub(super) prefetched: Option<Location>,
}

/// The advice of one allocation: each entry holds from its offset to the next one. The first is at 0.
type Pages = BTreeMap<usize, Advice>;

/// By the identity of the allocation's window, with its address.
static ADVICE: Mutex<BTreeMap<u64, (usize, Pages)>> = Mutex::new(BTreeMap::new());

/// The allocation of managed memory that contains all of the range.
pub(super) fn managed(address: usize, len: usize) -> Result<Found, Code> {
    let found = table::find(address).filter(|found| found.kind.is_managed()).ok_or(INVALID_VALUE)?;
    if len > 0 && found.window.contains(address, len) { Ok(found) } else { Err(INVALID_VALUE) }
}

/// Changes the advice of the pages of a range of managed memory.
pub(super) fn change(address: usize, len: usize, change: impl Fn(&mut Advice)) -> Outcome {
    let window = managed(address, len)?.window;
    let mut all = lock(&ADVICE);
    // Freed memory is forgotten here, since nothing else asks.
    all.retain(|id, (address, _)| table::find(*address).is_some_and(|found| found.window.id == *id));
    let (_, pages) = all.entry(window.id).or_insert_with(|| (window.address, BTreeMap::from([(0, Advice::default())])));
    let offset = address - window.address;
    let (start, end) = (offset - offset % PAGE, (offset + len).next_multiple_of(PAGE));
    for edge in [start, end] {
        let before = pages.range(..=edge).next_back().map(|(_, advice)| advice.clone()).unwrap_or_default();
        pages.insert(edge, before);
    }
    pages.range_mut(start..end).for_each(|(_, advice)| change(advice));
    Ok(())
}

/// The different advice of the pages of a range.
fn of_range(address: usize, len: usize) -> Result<Vec<Advice>, Code> {
    let window = managed(address, len)?.window;
    let all = lock(&ADVICE);
    let Some((_, pages)) = all.get(&window.id) else { return Ok(vec![Advice::default()]) };
    let start = address - window.address;
    let first = pages.range(..=start).next_back().map_or(0, |(edge, _)| *edge);
    Ok(pages.range(first..start + len).map(|(_, advice)| advice.clone()).collect())
}

/// A property that all pages have.
fn common<T: PartialEq>(pages: &[Advice], of: impl Fn(&Advice) -> Option<T>) -> Option<T> {
    let first = of(pages.first()?)?;
    pages.iter().all(|page| of(page).as_ref() == Some(&first)).then_some(first)
}

/// The number by which the attributes of CUDA 8 know a location.
fn device(location: Option<Location>) -> i32 {
    match location {
        Some(Location { kind: Location::ON_DEVICE, id }) => id,
        Some(Location { kind: ON_HOST, .. }) => HOST,
        _ => NO_DEVICE,
    }
}

fn value(attribute: u32, pages: &[Advice]) -> Result<i32, Code> {
    const READ_MOSTLY: u32 = CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY as u32;
    const PREFERRED: u32 = CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION as u32;
    const PREFETCHED: u32 = CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION as u32;
    const PREFERRED_TYPE: u32 = CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE as u32;
    const PREFERRED_ID: u32 = CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID as u32;
    const PREFETCHED_TYPE: u32 = CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE as u32;
    const PREFETCHED_ID: u32 = CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID as u32;
    let preferred = || common(pages, |page| page.preferred);
    let prefetched = || common(pages, |page| page.prefetched);
    let kind = |location: Option<Location>| location.unwrap_or(NO_LOCATION).kind.cast_signed();
    Ok(match attribute {
        READ_MOSTLY => i32::from(pages.iter().all(|page| page.read_mostly)),
        PREFERRED => device(preferred()),
        PREFETCHED => device(prefetched()),
        PREFERRED_TYPE => kind(preferred()),
        PREFERRED_ID => preferred().unwrap_or(NO_LOCATION).id,
        PREFETCHED_TYPE => kind(prefetched()),
        PREFETCHED_ID => prefetched().unwrap_or(NO_LOCATION).id,
        _ => return Err(INVALID_VALUE),
    })
}

fn get(out: Out<i32>, size: usize, attribute: u32, address: usize, len: usize) -> Outcome {
    const ACCESSED_BY: u32 = CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY as u32;
    out.required()?;
    context::usable()?;
    let pages = of_range(address, len)?;
    if attribute != ACCESSED_BY {
        let value = value(attribute, &pages)?;
        return if size == 4 { out.set(value) } else { Err(INVALID_VALUE) };
    }
    if size == 0 || !size.is_multiple_of(4) {
        return Err(INVALID_VALUE);
    }
    // The devices that all pages have; the rest of the array is filled up.
    let everywhere = |device: &&i32| pages.iter().all(|page| page.accessed_by.contains(device));
    let devices = pages.first().map(|page| page.accessed_by.iter().filter(everywhere).copied().collect::<Vec<_>>());
    let devices = devices.unwrap_or_default();
    (0..size / 4).for_each(|index| out.element(index).set_if_wanted(devices.get(index).copied().unwrap_or(NO_DEVICE)));
    Ok(())
}

fn get_many(
    outs: In<Out<i32>>,
    sizes: In<usize>,
    attributes: In<u32>,
    count: usize,
    address: usize,
    len: usize,
) -> Outcome {
    if count == 0 {
        return Err(INVALID_VALUE);
    }
    (0..count).try_for_each(|index| {
        get(outs.element(index)?, sizes.element(index)?, attributes.element(index)?, address, len)
    })
}

exports! {
    cuMemRangeGetAttribute => get(out: Out<i32>, size: usize, attribute: u32, address: usize, len: usize);
    cuMemRangeGetAttributes =>
        get_many(outs: In<Out<i32>>, sizes: In<usize>, attributes: In<u32>, count: usize, address: usize, len: usize);
}
