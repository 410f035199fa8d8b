//! Lowers elements of arrays, `array[4]` and `array[%r1+4]`, which moves, loads and stores accept.

use super::operand::Address;
use super::{Lower, Lowered};
use crate::arithmetic::lanewise::lanewise;
use crate::ast::Operand;
use crate::op::Slot;
use crate::types::Type;
use crate::window::Window;

impl<'a> Lower<'_, 'a> {
    /// `[base+offset]`, or an element of an array, in the window that the instruction names.
    pub(super) fn address_or_element(&mut self, operand: &Operand<'a>, window: Window) -> Lowered<Address> {
        let Operand::Element { name, register, index } = *operand else { return self.address(operand, window) };
        let (base, start, window) = self.variable_in(name, window)?;
        let Some(register) = register else {
            let offset = start.wrapping_add(self.step(name)?.wrapping_mul(index));
            return Ok(Address { base, offset, window, wraps: false });
        };
        let (offset, bits) = self.indexed(name, register, index)?;
        let base = self.applied(lanewise!(2, u64::wrapping_add), base, offset);
        Ok(Address { base, offset: start, window, wraps: bits == 32 })
    }

    /// The offset of an element from its array, and the bits in which the index is computed. The index is the sum of a
    /// register and a constant modulo 2^32, or 2^64 for a register of 64 bits. It is unsigned: ptxas extends it with
    /// zeros, even in a signed register.
    pub(super) fn indexed(&mut self, name: &'a str, register: &'a str, index: u64) -> Lowered<(Slot, u32)> {
        let (slot, bits) = self.index_register(register)?;
        let step = self.step(name)?;
        let (index, step) = (self.value(index), self.value(step));
        let sum = self.applied(lanewise!(2, u64::wrapping_add), slot, index);
        let f = match bits {
            32 => lanewise!(|index, step| (index & 0xffff_ffff).wrapping_mul(step)),
            _ => lanewise!(2, u64::wrapping_mul),
        };
        Ok((self.applied(f, sum, step), bits))
    }

    fn index_register(&mut self, name: &'a str) -> Lowered<(Slot, u32)> {
        match self.find_register(name) {
            Some((_, type_)) if type_.is_float() || !matches!(type_.bits(), 16 | 32 | 64) || type_ == Type::Pred => {
                Err(format!("{name} has the type {type_:?}, which is no index").into())
            }
            Some((slot, type_)) => Ok((slot, type_.bits().max(32))),
            None if name.starts_with('%') => Ok((self.computed(&Operand::Name(name), Type::U32)?, 32)),
            None => Err(format!("{name} is not declared as a register").into()),
        }
    }

    /// The bytes by which an index moves in an array.
    pub(super) fn step(&self, name: &'a str) -> Lowered<u64> {
        match self.scopes.step(name).or_else(|| self.symbols.steps.get(name).copied()) {
            Some(bytes) if bytes > 0 => Ok(bytes),
            _ => Err(format!("{name} is not an array").into()),
        }
    }
}
