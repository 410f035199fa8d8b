//! Loads and stores in every state space, of one lane or of all.
//!
//! Where all lanes access the same state space at aligned addresses, as they nearly always do, the checks are made for all
//! at once. Otherwise each lane's access is made and checked by itself, in the order of the lanes.

use super::active::Active;
use crate::arithmetic::lanewise::{LANES, Lanes};
use crate::arithmetic::{mask, sign_extend};
use crate::fault::FaultKind;
use crate::lanes::members;
use crate::memory::Memory;
use crate::op::Access;
use crate::window::Window;

/// The memory visible to the lanes of a warp.
pub(super) struct View<'v> {
    pub(super) memory: &'v dyn Memory,
    pub(super) shared: &'v mut [u8],
    /// Each lane's local memory, of all its frames.
    pub(super) local: &'v mut [Vec<u8>; LANES],
    pub(super) parameters: &'v [u8],
}

/// The lane whose access failed.
type Failed = (usize, FaultKind);

impl View<'_> {
    pub(super) fn load(&self, lane: usize, address: u64, access: Access) -> Result<u64, FaultKind> {
        check(address, access)?;
        let (window, at) = locate(address, access);
        let bytes = u32::from(access.bytes);
        let value = match window {
            Window::Global | Window::Generic if access.weak => self.memory.load_weak(at, bytes),
            Window::Global | Window::Generic => self.memory.load(at, bytes),
            Window::Shared => read(self.shared, at, bytes),
            Window::Local => read(&self.local[lane], at, bytes),
            Window::Param => read(self.parameters, at, bytes),
        };
        let value = value.or_else(|| self.parameter(window, at, bytes)).ok_or(FaultKind::IllegalAddress)?;
        Ok(if access.extend == 0 { value } else { extended(value, access) })
    }

    /// What is at an address of global memory that lies in the window of the kernel's parameters, which global memory
    /// contains (PTX ISA, `isspacep`).
    #[cold]
    fn parameter(&self, window: Window, address: u64, bytes: u32) -> Option<u64> {
        match (window, Window::of(address)) {
            (Window::Global, (Window::Param, at)) => read(self.parameters, at, bytes),
            _ => None,
        }
    }

    pub(super) fn store(&mut self, lane: usize, address: u64, access: Access, value: u64) -> Result<(), FaultKind> {
        check(address, access)?;
        let (window, at) = locate(address, access);
        let bytes = u32::from(access.bytes);
        let stored = match window {
            Window::Global | Window::Generic => self.memory.store(at, bytes, value & mask(8 * bytes)),
            Window::Shared => write(self.shared, at, bytes, value),
            Window::Local => write(&mut self.local[lane], at, bytes, value),
            Window::Param => None,
        };
        stored.ok_or(FaultKind::IllegalAddress)
    }

    /// Loads for every active lane. Other lanes' addresses and values may change.
    pub(super) fn load_all(
        &self,
        active: &impl Active,
        addresses: &mut Lanes,
        access: Access,
        values: &mut Lanes,
    ) -> Result<(), Failed> {
        let bytes = u32::from(access.bytes);
        let done = match located(active, addresses, access) {
            Some((Window::Global | Window::Generic, _)) if access.weak => {
                self.memory.load_lanes_weak(addresses, active.set(), bytes, values).is_ok()
            }
            Some((Window::Global | Window::Generic, _)) => {
                self.memory.load_lanes(addresses, active.set(), bytes, values).is_ok()
            }
            Some((Window::Shared, start)) => gather(self.shared, addresses, start, bytes, values),
            Some((Window::Param, start)) => gather(self.parameters, addresses, start, bytes, values),
            _ => false,
        };
        if !done {
            for lane in members(active.set()) {
                values[lane] = self.load(lane, addresses[lane], access).map_err(|kind| (lane, kind))?;
            }
            return Ok(());
        }
        if access.extend != 0 {
            values.iter_mut().for_each(|value| *value = extended(*value, access));
        }
        Ok(())
    }

    /// Stores for every active lane, in order. Other lanes' addresses may change.
    pub(super) fn store_all(
        &mut self,
        active: &impl Active,
        addresses: &mut Lanes,
        access: Access,
        values: &Lanes,
    ) -> Result<(), Failed> {
        let bytes = u32::from(access.bytes);
        match located(active, addresses, access) {
            Some((Window::Global | Window::Generic, _)) => {
                let done = self.memory.store_lanes(addresses, active.set(), bytes, values);
                done.map_err(|lane| (lane, FaultKind::IllegalAddress))
            }
            Some((Window::Shared, start)) if scatter(self.shared, active, addresses, start, bytes, values) => Ok(()),
            _ => {
                for lane in members(active.set()) {
                    self.store(lane, addresses[lane], access, values[lane]).map_err(|kind| (lane, kind))?;
                }
                Ok(())
            }
        }
    }

    /// Updates for every active lane, in order: `change` makes a lane's new value of the old one. Other lanes' addresses and
    /// old values may change.
    pub(super) fn update_all(
        &mut self,
        active: &impl Active,
        addresses: &mut Lanes,
        access: Access,
        mut change: impl FnMut(usize, u64) -> u64,
        old: &mut Lanes,
    ) -> Result<(), Failed> {
        if !active.are_few()
            && let Some((Window::Global | Window::Generic, _)) = located(active, addresses, access)
        {
            let done = self.memory.update_lanes(addresses, active.set(), access.bytes.into(), &mut change, old);
            return done.map_err(|lane| (lane, FaultKind::IllegalAddress));
        }
        for lane in members(active.set()) {
            let change = |value| change(lane, value);
            old[lane] = self.update(lane, addresses[lane], access, change).map_err(|kind| (lane, kind))?;
        }
        Ok(())
    }

    /// The size of the thread's or block's own memory that an illegal access missed; empty for global memory.
    pub(super) fn size(&self, lane: usize, address: u64, access: Access) -> String {
        let (space, bytes) = match locate(address, access).0 {
            Window::Shared => ("shared memory", self.shared.len()),
            Window::Local => ("local memory", self.local[lane].len()),
            Window::Param => ("the kernel's parameters", self.parameters.len()),
            Window::Global | Window::Generic => return String::new(),
        };
        format!("outside the {bytes} bytes of {space}")
    }

    /// Returns the old value.
    pub(super) fn update(
        &mut self,
        lane: usize,
        address: u64,
        access: Access,
        mut change: impl FnMut(u64) -> u64,
    ) -> Result<u64, FaultKind> {
        check(address, access)?;
        let (window, at) = locate(address, access);
        let bytes = u32::from(access.bytes);
        // No other thread of the machine accesses a block's own memory.
        let mut own = |memory: &mut [u8]| {
            let old = read(memory, at, bytes)?;
            write(memory, at, bytes, change(old))?;
            Some(old)
        };
        let old = match window {
            Window::Shared => own(self.shared),
            Window::Local => own(&mut self.local[lane]),
            Window::Param => None,
            Window::Global | Window::Generic => self.memory.update(at, bytes, &mut change),
        };
        old.ok_or(FaultKind::IllegalAddress)
    }
}

/// The sums of the lanes' bases and an offset.
pub(super) fn sums(bases: &Lanes, offset: u64) -> Lanes {
    let mut sums = [0; LANES];
    for (sum, base) in sums.iter_mut().zip(bases) {
        *sum = base.wrapping_add(offset);
    }
    sums
}

fn extended(value: u64, access: Access) -> u64 {
    sign_extend(value, 8 * u32::from(access.bytes)) & mask(u32::from(access.extend))
}

fn check(address: u64, access: Access) -> Result<(), FaultKind> {
    // Alignments are powers of two.
    if address & (u64::from(access.align) - 1) == 0 { Ok(()) } else { Err(FaultKind::MisalignedAddress) }
}

fn locate(address: u64, access: Access) -> (Window, u64) {
    match access.window {
        Window::Generic => Window::of(address),
        Window::Shared if access.wraps => (Window::Shared, address & 0xffff_ffff),
        window => (window, address),
    }
}

/// The state space of all active lanes' addresses, and its start; `None` if an address is misaligned or in another space.
/// Lanes that are not active get the address of one that is.
fn located(active: &impl Active, addresses: &mut Lanes, access: Access) -> Option<(Window, u64)> {
    let first = addresses[active.set().trailing_zeros() as usize % LANES];
    if !active.are_all() {
        let mut all = [first; LANES];
        active.write(&mut all, addresses);
        *addresses = all;
    }
    let misaligned = addresses.iter().fold(0, |bits, address| bits | address) & (u64::from(access.align) - 1);
    if misaligned != 0 {
        return None;
    }
    let (window, inside) = locate(first, access);
    match access.window {
        Window::Generic => {
            let others =
                addresses.iter().fold(0, |differs, &address| differs | u64::from(Window::of(address).0 != window));
            (others == 0).then_some((window, first - inside))
        }
        Window::Shared if access.wraps => {
            addresses.iter_mut().for_each(|address| *address &= 0xffff_ffff);
            Some((window, 0))
        }
        _ => Some((window, 0)),
    }
}

/// Whether all accesses of so many bytes are within a length.
fn are_inside(addresses: &Lanes, start: u64, bytes: u32, len: usize) -> bool {
    let Some(last) = (len as u64).checked_sub(u64::from(bytes)) else { return false };
    !addresses.iter().fold(false, |outside, &address| outside | (address.wrapping_sub(start) > last))
}

/// Reads for all lanes, unless one of the addresses is outside.
fn gather(memory: &[u8], addresses: &Lanes, start: u64, bytes: u32, values: &mut Lanes) -> bool {
    if addresses.iter().fold(0, |differs, &other| differs | (other ^ addresses[0])) == 0 {
        let Some(value) = read(memory, addresses[0].wrapping_sub(start), bytes) else { return false };
        *values = [value; LANES];
        return true;
    }
    if !are_inside(addresses, start, bytes, memory.len()) {
        return false;
    }
    macro_rules! of {
        ($int:ty) => {
            for (value, address) in values.iter_mut().zip(addresses) {
                // It is less than the length, and so fits.
                #[allow(clippy::cast_possible_truncation, reason = "the address is inside")]
                let at = address.wrapping_sub(start) as usize;
                let bytes = memory.get(at..).and_then(|rest| rest.first_chunk().copied()).unwrap_or_default();
                *value = u64::from(<$int>::from_le_bytes(bytes));
            }
        };
    }
    match bytes {
        1 => of!(u8),
        2 => of!(u16),
        4 => of!(u32),
        _ => of!(u64),
    }
    true
}

/// Writes for all active lanes in order, unless one of the addresses is outside.
fn scatter(memory: &mut [u8], active: &impl Active, addresses: &Lanes, start: u64, bytes: u32, values: &Lanes) -> bool {
    if !are_inside(addresses, start, bytes, memory.len()) {
        return false;
    }
    macro_rules! of {
        ($int:ty) => {
            members(active.set()).for_each(|lane| {
                #[allow(clippy::cast_possible_truncation, reason = "the address is inside, and the value is cut")]
                let (at, value) = (addresses[lane].wrapping_sub(start) as usize, values[lane] as $int);
                if let Some(place) = memory.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
                    *place = value.to_le_bytes();
                }
            })
        };
    }
    match bytes {
        1 => of!(u8),
        2 => of!(u16),
        4 => of!(u32),
        _ => of!(u64),
    }
    true
}

/// Little-endian, at most eight bytes.
pub(super) fn read(memory: &[u8], at: u64, bytes: u32) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    let slice = memory.get(at..at.checked_add(bytes as usize)?)?;
    Some(match *slice {
        [a] => u64::from(a),
        [a, b] => u64::from(u16::from_le_bytes([a, b])),
        [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => return None,
    })
}

/// The low bytes of the value.
pub(super) fn write(memory: &mut [u8], at: u64, bytes: u32, value: u64) -> Option<()> {
    let at = usize::try_from(at).ok()?;
    let slice = memory.get_mut(at..at.checked_add(bytes as usize)?)?;
    slice.copy_from_slice(value.to_le_bytes().get(..bytes as usize)?);
    Some(())
}
