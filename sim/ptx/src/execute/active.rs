//! Sets of lanes, and the lanes that execute an operation together.

use crate::arithmetic::lanewise::{LANES, Lanes, WideBinary, WideTernary, WideUnary};
use crate::lanes::members;
use crate::op::Slot;

/// Up to so many lanes are computed one by one: less work than all 32 in vector instructions.
const FEW: u32 = 4;

/// The lanes for which a value is not 0.
pub(super) fn set_of(values: &Lanes) -> u32 {
    values.iter().zip(0..).fold(0, |set, (&value, lane)| set | u32::from(value != 0) << lane)
}

/// The lanes that execute an operation together.
pub(super) struct Active {
    set: u32,
    /// All ones for each of them.
    select: Lanes,
}

impl Active {
    pub(super) fn new(set: u32) -> Active {
        let mut active = Active { set: 0, select: [0; LANES] };
        active.change(set);
        active
    }

    pub(super) fn change(&mut self, set: u32) {
        self.set = set;
        if !self.are_all() && !self.are_few() {
            self.select = std::array::from_fn(|lane| 0u64.wrapping_sub(u64::from(set >> lane & 1)));
        }
    }

    pub(super) fn set(&self) -> u32 {
        self.set
    }

    pub(super) fn are_all(&self) -> bool {
        self.set == u32::MAX
    }

    pub(super) fn are_few(&self) -> bool {
        self.set.count_ones() <= FEW
    }

    /// Writes the values of the active lanes.
    pub(super) fn write(&self, d: &mut Lanes, values: &Lanes) {
        if self.are_all() {
            *d = *values;
        } else if self.are_few() {
            members(self.set).for_each(|lane| d[lane] = values[lane]);
        } else {
            for ((d, value), select) in d.iter_mut().zip(values).zip(&self.select) {
                *d = value & select | *d & !select;
            }
        }
    }

    pub(super) fn unary(&self, registers: &mut [Lanes], f: &WideUnary, d: Slot, a: Slot) {
        let (d, a) = (d as usize, a as usize);
        match f.all.filter(|_| !self.are_few()) {
            Some(all) => {
                if self.are_all()
                    && let Ok([d, a]) = registers.get_disjoint_mut([d, a])
                {
                    return all(a, d);
                }
                let mut values = [0; LANES];
                all(&registers[a], &mut values);
                self.write(&mut registers[d], &values);
            }
            None => members(self.set).for_each(|lane| registers[d][lane] = (f.one)(registers[a][lane])),
        }
    }

    pub(super) fn binary(&self, registers: &mut [Lanes], f: &WideBinary, d: Slot, operands: [Slot; 2]) {
        let [d, a, b] = [d, operands[0], operands[1]].map(|slot| slot as usize);
        match f.all.filter(|_| !self.are_few()) {
            Some(all) => {
                if self.are_all()
                    && let Ok([d, a, b]) = registers.get_disjoint_mut([d, a, b])
                {
                    return all(a, b, d);
                }
                let mut values = [0; LANES];
                all(&registers[a], &registers[b], &mut values);
                self.write(&mut registers[d], &values);
            }
            None => members(self.set).for_each(|lane| {
                registers[d][lane] = (f.one)(registers[a][lane], registers[b][lane]);
            }),
        }
    }

    pub(super) fn ternary(&self, registers: &mut [Lanes], f: &WideTernary, d: Slot, operands: [Slot; 3]) {
        let [d, a, b, c] = [d, operands[0], operands[1], operands[2]].map(|slot| slot as usize);
        match f.all.filter(|_| !self.are_few()) {
            Some(all) => {
                if self.are_all()
                    && let Ok([d, a, b, c]) = registers.get_disjoint_mut([d, a, b, c])
                {
                    return all(a, b, c, d);
                }
                let mut values = [0; LANES];
                all(&registers[a], &registers[b], &registers[c], &mut values);
                self.write(&mut registers[d], &values);
            }
            None => members(self.set).for_each(|lane| {
                registers[d][lane] = (f.one)(registers[a][lane], registers[b][lane], registers[c][lane]);
            }),
        }
    }
}
