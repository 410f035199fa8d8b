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

/// The lanes that execute an operation together: [`Several`], or a [`Single`] one.
pub(super) trait Active {
    /// Whether it is a [`Single`] lane.
    const IS_SINGLE: bool;

    fn new(set: u32) -> Self;

    fn change(&mut self, set: u32);

    fn set(&self) -> u32;

    fn are_all(&self) -> bool;

    /// Whether they are computed one by one.
    fn are_few(&self) -> bool;

    /// Those of them for which a value is not 0.
    fn where_set(&self, values: &Lanes) -> u32;

    /// Writes the values of the active lanes.
    fn write(&self, d: &mut Lanes, values: &Lanes);

    /// Writes one value for all active lanes.
    fn fill(&self, d: &mut Lanes, value: u64);

    fn copy(&self, registers: &mut [Lanes], d: Slot, a: Slot);

    fn unary(&self, registers: &mut [Lanes], f: &WideUnary, d: Slot, a: Slot);

    fn binary(&self, registers: &mut [Lanes], f: &WideBinary, d: Slot, operands: [Slot; 2]);

    fn ternary(&self, registers: &mut [Lanes], f: &WideTernary, d: Slot, operands: [Slot; 3]);
}

/// One lane, which never parts nor joins: the only one of its frame.
pub(super) struct Single {
    lane: usize,
}

impl Active for Single {
    const IS_SINGLE: bool = true;

    fn new(set: u32) -> Single {
        Single { lane: set.trailing_zeros() as usize % LANES }
    }

    fn change(&mut self, set: u32) {
        *self = Single::new(set);
    }

    fn set(&self) -> u32 {
        1 << self.lane
    }

    fn are_all(&self) -> bool {
        false
    }

    fn are_few(&self) -> bool {
        true
    }

    fn where_set(&self, values: &Lanes) -> u32 {
        u32::from(values[self.lane] != 0) << self.lane
    }

    fn write(&self, d: &mut Lanes, values: &Lanes) {
        d[self.lane] = values[self.lane];
    }

    fn fill(&self, d: &mut Lanes, value: u64) {
        d[self.lane] = value;
    }

    fn copy(&self, registers: &mut [Lanes], d: Slot, a: Slot) {
        registers[d as usize][self.lane] = registers[a as usize][self.lane];
    }

    fn unary(&self, registers: &mut [Lanes], f: &WideUnary, d: Slot, a: Slot) {
        registers[d as usize][self.lane] = (f.one)(registers[a as usize][self.lane]);
    }

    fn binary(&self, registers: &mut [Lanes], f: &WideBinary, d: Slot, operands: [Slot; 2]) {
        let [a, b] = operands.map(|slot| registers[slot as usize][self.lane]);
        registers[d as usize][self.lane] = (f.one)(a, b);
    }

    fn ternary(&self, registers: &mut [Lanes], f: &WideTernary, d: Slot, operands: [Slot; 3]) {
        let [a, b, c] = operands.map(|slot| registers[slot as usize][self.lane]);
        registers[d as usize][self.lane] = (f.one)(a, b, c);
    }
}

/// Any lanes.
pub(super) struct Several {
    set: u32,
    are_few: bool,
    /// All ones for each of them.
    select: Lanes,
}

impl Active for Several {
    const IS_SINGLE: bool = false;

    fn new(set: u32) -> Several {
        let mut several = Several { set: 0, are_few: true, select: [0; LANES] };
        several.change(set);
        several
    }

    fn change(&mut self, set: u32) {
        self.set = set;
        self.are_few = set.count_ones() <= FEW;
        if !self.are_all() && !self.are_few {
            self.select = std::array::from_fn(|lane| 0u64.wrapping_sub(u64::from(set >> lane & 1)));
        }
    }

    fn set(&self) -> u32 {
        self.set
    }

    fn are_all(&self) -> bool {
        self.set == u32::MAX
    }

    fn are_few(&self) -> bool {
        self.are_few
    }

    fn where_set(&self, values: &Lanes) -> u32 {
        set_of(values) & self.set
    }

    fn write(&self, d: &mut Lanes, values: &Lanes) {
        if self.are_all() {
            *d = *values;
        } else if self.are_few {
            members(self.set).for_each(|lane| d[lane] = values[lane]);
        } else {
            for ((d, value), select) in d.iter_mut().zip(values).zip(&self.select) {
                *d = value & select | *d & !select;
            }
        }
    }

    fn fill(&self, d: &mut Lanes, value: u64) {
        self.write(d, &[value; LANES]);
    }

    fn copy(&self, registers: &mut [Lanes], d: Slot, a: Slot) {
        let values = registers[a as usize];
        self.write(&mut registers[d as usize], &values);
    }

    fn unary(&self, registers: &mut [Lanes], f: &WideUnary, d: Slot, a: Slot) {
        let (d, a) = (d as usize, a as usize);
        match f.all.filter(|_| !self.are_few) {
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

    fn binary(&self, registers: &mut [Lanes], f: &WideBinary, d: Slot, operands: [Slot; 2]) {
        let [d, a, b] = [d, operands[0], operands[1]].map(|slot| slot as usize);
        match f.all.filter(|_| !self.are_few) {
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

    fn ternary(&self, registers: &mut [Lanes], f: &WideTernary, d: Slot, operands: [Slot; 3]) {
        let [d, a, b, c] = [d, operands[0], operands[1], operands[2]].map(|slot| slot as usize);
        match f.all.filter(|_| !self.are_few) {
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
