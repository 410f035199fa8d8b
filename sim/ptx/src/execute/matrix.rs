//! Operations of a whole warp on matrices in its lanes' registers, and their loads and stores by single lanes.

use super::access::View;
use crate::arithmetic::lanewise::{LANES, Lanes};
use crate::arithmetic::matrix::{spread, transposed};
use crate::fault::FaultKind;
use crate::op::{Access, Matrix, Slot, Tile};

/// Performs an operation of the 32 lanes, whose frame starts the registers.
pub(super) fn perform(registers: &mut [Lanes], matrix: &Matrix) {
    match matrix {
        Matrix::Product { product, a, b, c, d } => {
            let of = |(lane, slot): (usize, Slot)| registers[slot as usize][lane];
            let gathered = |slots: &[Slot]| -> Vec<u64> {
                (0..LANES).flat_map(|lane| slots.iter().map(move |slot| (lane, *slot))).map(of).collect()
            };
            let results = product.of(&gathered(a), &gathered(b), &gathered(c));
            for (lane, results) in results.chunks(d.len()).enumerate() {
                d.iter().zip(results).for_each(|(slot, value)| registers[*slot as usize][lane] = *value);
            }
        }
        Matrix::Spread { rows, d, transposed } => {
            let rows: Vec<[u64; 2]> = (0..LANES).map(|lane| rows.map(|slot| registers[slot as usize][lane])).collect();
            for (slot, rows) in d.iter().zip(rows.chunks(8)) {
                registers[*slot as usize] = std::array::from_fn(|lane| spread(rows, lane, *transposed));
            }
        }
        Matrix::Transpose { d, a } => {
            let values = registers[*a as usize];
            registers[*d as usize] = std::array::from_fn(|lane| transposed(&values, lane));
        }
    }
}

/// A failed access: its kind and address.
type Failed = (FaultKind, u64, Access);

/// Loads a lane's part of a matrix.
pub(super) fn load(view: &View<'_>, registers: &mut [Lanes], lane: usize, tile: &Tile) -> Result<(), Failed> {
    let element = tile.fragment.element;
    let start = Start::of(registers, lane, tile);
    for (slot, register) in tile.registers.iter().zip(0u32..) {
        let mut value = 0;
        for part in 0..element.packed() {
            let (address, shift) = start.address(tile, tile.fragment.place(number(lane), register, part));
            let bits = view.load(lane, address, tile.access).map_err(|kind| (kind, address, tile.access))?;
            value |= (bits >> shift & crate::arithmetic::mask(element.bits())) << (part * element.bits());
        }
        registers[*slot as usize][lane] = value;
    }
    Ok(())
}

/// Stores a lane's part of an accumulator, whose elements are whole bytes.
pub(super) fn store(view: &mut View<'_>, registers: &[Lanes], lane: usize, tile: &Tile) -> Result<(), Failed> {
    let element = tile.fragment.element;
    let start = Start::of(registers, lane, tile);
    for (slot, register) in tile.registers.iter().zip(0u32..) {
        for part in 0..element.packed() {
            let (address, _) = start.address(tile, tile.fragment.place(number(lane), register, part));
            let value = registers[*slot as usize][lane] >> (part * element.bits());
            view.store(lane, address, tile.access, value).map_err(|kind| (kind, address, tile.access))?;
        }
    }
    Ok(())
}

fn number(lane: usize) -> u32 {
    u32::try_from(lane).unwrap_or(0)
}

/// The address of a matrix, and the distance of its rows or columns in elements.
struct Start {
    address: u64,
    stride: u64,
}

impl Start {
    fn of(registers: &[Lanes], lane: usize, tile: &Tile) -> Start {
        let address = registers[tile.base as usize][lane].wrapping_add(tile.offset);
        Start { address, stride: registers[tile.stride as usize][lane] }
    }

    /// The address of an element's byte, and the element's shift in it.
    fn address(&self, tile: &Tile, (outer, inner): (u32, u32)) -> (u64, u64) {
        let (major, minor) = if tile.outer_first { (outer, inner) } else { (inner, outer) };
        let index = self.stride.wrapping_mul(u64::from(major)).wrapping_add(u64::from(minor));
        let bits = index.wrapping_mul(u64::from(tile.fragment.element.bits()));
        (self.address.wrapping_add(bits / 8), bits % 8)
    }
}
