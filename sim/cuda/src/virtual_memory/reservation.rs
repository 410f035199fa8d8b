//! Reserved ranges of addresses, and what is mapped in them.
//!
//! Lock order: the reservations, then the memory's table.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};

use super::GRANULARITY;
use super::physical::Physical;
use crate::code::{Code, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, Outcome};
use crate::handle;
use crate::memory::table::{self, Kind};
use crate::memory::window::Backing;
use crate::owner::Owner;
use crate::pages;
use crate::sync::lock;

struct Reservation {
    /// Unique in the process, also among windows.
    id: u64,
    size: usize,
    /// By address. They do not overlap.
    mappings: BTreeMap<usize, Mapping>,
}

struct Mapping {
    /// Unique in the process, also among windows.
    id: u64,
    size: usize,
    physical: Arc<Physical>,
    /// Whether the device may read and write, so that the mapping is in the memory's table.
    accessible: bool,
}

/// By address.
static RESERVATIONS: Mutex<BTreeMap<usize, Reservation>> = Mutex::new(BTreeMap::new());

type Reservations = MutexGuard<'static, BTreeMap<usize, Reservation>>;

/// The number of reserved ranges.
pub(crate) fn count() -> usize {
    lock(&RESERVATIONS).len()
}

pub(super) fn reserve(size: usize, alignment: usize, wanted: usize) -> Result<usize, Code> {
    let alignment = alignment.max(GRANULARITY);
    let mut reservations = lock(&RESERVATIONS);
    let address = pages::reserve(size, alignment, wanted).ok_or(OUT_OF_MEMORY)?;
    reservations.insert(address, Reservation { id: handle::next_id(), size, mappings: BTreeMap::new() });
    Ok(address)
}

/// A range is given back as a whole, and without mappings.
pub(super) fn free(address: usize, size: usize) -> Outcome {
    let mut reservations = lock(&RESERVATIONS);
    let known = reservations.get(&address).filter(|known| known.size == size && known.mappings.is_empty());
    known.ok_or(INVALID_VALUE)?;
    reservations.remove(&address);
    pages::unmap(address, size);
    Ok(())
}

/// The reservation that contains all of a range.
fn containing(reservations: &mut Reservations, address: usize, size: usize) -> Result<&mut Reservation, Code> {
    let (start, found) = reservations.range_mut(..=address).next_back().ok_or(INVALID_VALUE)?;
    let inside = size <= found.size && address - start <= found.size - size;
    if inside && size > 0 { Ok(found) } else { Err(INVALID_VALUE) }
}

impl Reservation {
    /// The mapping of an address.
    fn mapping(&self, address: usize) -> Option<(usize, &Mapping)> {
        let (start, mapping) = self.mappings.range(..=address).next_back()?;
        (address - start < mapping.size).then_some((*start, mapping))
    }

    /// The addresses of the mappings that make up a range, each of which lies in it as a whole.
    fn whole(&self, address: usize, size: usize) -> Result<Vec<usize>, Code> {
        let (mut found, mut at) = (Vec::new(), address);
        while at < address + size {
            let mapping = self.mappings.get(&at).ok_or(INVALID_VALUE)?;
            found.push(at);
            at += mapping.size;
        }
        if at == address + size { Ok(found) } else { Err(INVALID_VALUE) }
    }
}

impl Mapping {
    /// Puts it into the memory's table. It belongs to no context.
    fn show(&self, at: usize) {
        let owner = Owner::new(0, self.physical.properties.device);
        table::insert(at, self.size, Kind::Virtual, owner, Backing::shared(Arc::clone(&self.physical)));
    }
}

/// Maps the first `size` bytes of an allocation. The device has no access yet.
pub(super) fn map(address: usize, size: usize, physical: Arc<Physical>) -> Outcome {
    let mut reservations = lock(&RESERVATIONS);
    let reservation = containing(&mut reservations, address, size)?;
    let before = reservation.mappings.range(..address + size).next_back();
    if before.is_some_and(|(start, mapping)| start + mapping.size > address) {
        return Err(INVALID_VALUE);
    }
    if !pages::map_reserved(address, size, &physical.file) {
        return Err(OUT_OF_MEMORY);
    }
    reservation.mappings.insert(address, Mapping { id: handle::next_id(), size, physical, accessible: false });
    Ok(())
}

/// Unmaps whole mappings. Waits for copies and accesses of kernels that are under way; work that comes later faults.
pub(super) fn unmap(address: usize, size: usize) -> Outcome {
    let mut reservations = lock(&RESERVATIONS);
    let reservation = containing(&mut reservations, address, size)?;
    let parts = reservation.whole(address, size)?;
    let accessible = |(_, mapping): &(&usize, &Mapping)| mapping.accessible;
    let range = address..address + size;
    reservation.mappings.range(range.clone()).filter(accessible).for_each(|(at, _)| hide(*at));
    if !pages::unmap_reserved(address, size) {
        // All is as before.
        reservation.mappings.range(range).filter(accessible).for_each(|(at, mapping)| mapping.show(*at));
        return Err(OUT_OF_MEMORY);
    }
    let gone: Vec<_> = parts.iter().map(|at| reservation.mappings.remove(at)).collect();
    drop(reservations);
    drop(gone);
    Ok(())
}

/// Takes a mapping out of the memory's table, and waits until nothing accesses it.
fn hide(address: usize) {
    if let Some((_, pages, _)) = table::take(address, |kind| kind == Kind::Virtual) {
        pages.wait_for_others();
    }
}

/// Gives the device access to whole mappings of its own memory, or takes it.
pub(super) fn set_access(address: usize, size: usize, device: i32, accessible: bool) -> Outcome {
    let mut reservations = lock(&RESERVATIONS);
    let reservation = containing(&mut reservations, address, size)?;
    let parts = reservation.whole(address, size)?;
    let of_device =
        |at: &usize| reservation.mappings.get(at).is_some_and(|part| part.physical.properties.device == device);
    if !parts.iter().all(of_device) {
        return Err(INVALID_VALUE);
    }
    for at in parts {
        let Some(mapping) = reservation.mappings.get_mut(&at) else { continue };
        match (mapping.accessible, accessible) {
            (false, true) => mapping.show(at),
            (true, false) => hide(at),
            _ => {}
        }
        mapping.accessible = accessible;
    }
    Ok(())
}

/// Whether a device has access to an address, which must be mapped.
pub(super) fn access(address: usize, device: i32) -> Result<bool, Code> {
    let mut reservations = lock(&RESERVATIONS);
    let (_, mapping) = containing(&mut reservations, address, 1)?.mapping(address).ok_or(INVALID_VALUE)?;
    Ok(mapping.accessible && mapping.physical.properties.device == device)
}

/// The allocation that is mapped at an address.
pub(super) fn at(address: usize) -> Result<Arc<Physical>, Code> {
    let mut reservations = lock(&RESERVATIONS);
    let (_, mapping) = containing(&mut reservations, address, 1)?.mapping(address).ok_or(INVALID_VALUE)?;
    Ok(Arc::clone(&mapping.physical))
}

/// A reservation, and what is mapped at one of its addresses.
#[derive(Clone, Copy)]
pub(crate) struct Reserved {
    pub(crate) id: u64,
    pub(crate) address: usize,
    pub(crate) size: usize,
    pub(crate) mapped: Option<Mapped>,
}

/// A mapping in a reservation.
#[derive(Clone, Copy)]
pub(crate) struct Mapped {
    pub(crate) id: u64,
    /// The id of the allocation, which may be mapped elsewhere, too.
    pub(crate) block_id: u64,
    pub(crate) address: usize,
    pub(crate) size: usize,
    pub(crate) device: i32,
    /// Whether the device may read and write.
    pub(crate) accessible: bool,
}

/// The reservation that contains an address.
pub(crate) fn reserved(address: usize) -> Option<Reserved> {
    let reservations = lock(&RESERVATIONS);
    let (&start, found) = reservations.range(..=address).next_back()?;
    let mapped = found.mapping(address).map(|(address, mapping)| Mapped {
        id: mapping.id,
        block_id: mapping.physical.id,
        address,
        size: mapping.size,
        device: mapping.physical.properties.device,
        accessible: mapping.accessible,
    });
    (address - start < found.size).then_some(Reserved { id: found.id, address: start, size: found.size, mapped })
}

/// The handle types for which the memory at an address was created.
pub(crate) fn handle_types(address: usize) -> u32 {
    at(address).map_or(0, |physical| physical.properties.handle_types)
}

/// Whether the memory at an address was created for network cards.
pub(crate) fn is_for_rdma(address: usize) -> bool {
    at(address).is_ok_and(|physical| physical.properties.rdma)
}

/// A descriptor of a range, if it is mapped here; `None` for other memory. A file begins with its range, so that the range
/// must start where an allocation does, and lie in one.
pub(crate) fn dma_buf(address: usize, size: usize, writable: bool) -> Result<Option<OwnedFd>, Code> {
    let mut reservations = lock(&RESERVATIONS);
    let Ok(reservation) = containing(&mut reservations, address, size) else { return Ok(None) };
    let Some((start, mapping)) = reservation.mapping(address) else { return Err(INVALID_VALUE) };
    if start != address || size > mapping.size {
        // Unlocked first: stderr may be a full pipe, whose reader calls the driver.
        drop(reservations);
        simcommon::say!(
            "simcuda: an export of mapped memory that does not start with an allocation, or has several, is not simulated"
        );
        return Err(NOT_SUPPORTED);
    }
    Ok(Some(mapping.physical.reopened(writable)?))
}
