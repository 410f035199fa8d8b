//! Operations of a whole warp on matrices in its lanes' registers, and their loads and stores by single lanes.

use super::access::View;
use super::thread::Thread;
use crate::arithmetic::matrix::{LANES, spread, transposed};
use crate::fault::FaultKind;
use crate::op::{Access, Matrix, Slot, Tile};

/// Performs an operation of the 32 lanes.
pub(super) fn perform(lanes: &mut [Thread], matrix: &Matrix) {
    match matrix {
        Matrix::Product { product, a, b, c, d } => {
            let gathered = |slots: &[Slot]| -> Vec<u64> {
                lanes.iter().flat_map(|lane| slots.iter().map(|slot| lane.slot(*slot))).collect()
            };
            let results = product.of(&gathered(a), &gathered(b), &gathered(c));
            for (lane, results) in lanes.iter_mut().zip(results.chunks(d.len())) {
                d.iter().zip(results).for_each(|(slot, value)| lane.set_slot(*slot, *value));
            }
        }
        Matrix::Spread { rows, d, transposed } => {
            let rows: Vec<[u64; 2]> = lanes.iter().map(|lane| rows.map(|slot| lane.slot(slot))).collect();
            for (number, lane) in lanes.iter_mut().enumerate() {
                for (slot, rows) in d.iter().zip(rows.chunks(8)) {
                    lane.set_slot(*slot, spread(rows, number, *transposed));
                }
            }
        }
        Matrix::Transpose { d, a } => {
            let values: [u64; LANES] = std::array::from_fn(|number| lanes.get(number).map_or(0, |lane| lane.slot(*a)));
            for (number, lane) in lanes.iter_mut().enumerate() {
                lane.set_slot(*d, transposed(&values, number));
            }
        }
    }
}

/// A failed access: its kind and address.
type Failed = (FaultKind, u64, Access);

/// Loads a lane's part of a matrix.
pub(super) fn load(view: &View<'_>, slots: &mut [u64], lane: u32, tile: &Tile) -> Result<(), Failed> {
    let element = tile.fragment.element;
    let start = Start::of(slots, tile);
    for (slot, register) in tile.registers.iter().zip(0u32..) {
        let mut value = 0;
        for part in 0..element.packed() {
            let (address, shift) = start.address(tile, tile.fragment.place(lane, register, part));
            let bits = view.load(address, tile.access).map_err(|kind| (kind, address, tile.access))?;
            value |= (bits >> shift & crate::arithmetic::mask(element.bits())) << (part * element.bits());
        }
        slots[*slot as usize] = value;
    }
    Ok(())
}

/// Stores a lane's part of an accumulator, whose elements are whole bytes.
pub(super) fn store(view: &mut View<'_>, slots: &[u64], lane: u32, tile: &Tile) -> Result<(), Failed> {
    let element = tile.fragment.element;
    let start = Start::of(slots, tile);
    for (slot, register) in tile.registers.iter().zip(0u32..) {
        for part in 0..element.packed() {
            let (address, _) = start.address(tile, tile.fragment.place(lane, register, part));
            let value = slots[*slot as usize] >> (part * element.bits());
            view.store(address, tile.access, value).map_err(|kind| (kind, address, tile.access))?;
        }
    }
    Ok(())
}

/// The address of a matrix, and the distance of its rows or columns in elements.
struct Start {
    address: u64,
    stride: u64,
}

impl Start {
    fn of(slots: &[u64], tile: &Tile) -> Start {
        let address = slots[tile.base as usize].wrapping_add(tile.offset);
        Start { address, stride: slots[tile.stride as usize] }
    }

    /// The address of an element's byte, and the element's shift in it.
    fn address(&self, tile: &Tile, (outer, inner): (u32, u32)) -> (u64, u64) {
        let (major, minor) = if tile.outer_first { (outer, inner) } else { (inner, outer) };
        let index = self.stride.wrapping_mul(u64::from(major)).wrapping_add(u64::from(minor));
        let bits = index.wrapping_mul(u64::from(tile.fragment.element.bits()));
        (self.address.wrapping_add(bits / 8), bits % 8)
    }
}
