//! Lowers atomic operations on memory.

use super::arithmetic::type_of;
use super::cache::drop_cache_hints;
use super::memory::{access_of, scope};
use super::operand::Address;
use super::{Instruction, Lower, Lowered, Modifiers, UNSUPPORTED, append};
use crate::arithmetic::atomic;
use crate::memory::Scope;
use crate::op::{Atomic, Op};
use crate::types::Type;
use crate::window::Window;

const OPERATIONS: [&str; 10] = ["add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas"];

impl<'a> Lower<'_, 'a> {
    pub(super) fn atomic(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        let order = m.take_any(&["relaxed", "acquire", "release", "acq_rel"]).unwrap_or("relaxed");
        let scope = scope(m).unwrap_or(Scope::Device);
        let window = self.take_window(m).unwrap_or(Window::Generic);
        let operation = m.take_any(&OPERATIONS).ok_or(UNSUPPORTED)?;
        m.take("noftz");
        drop_cache_hints(m);
        let type_ = type_of(m)?;
        // Only in global memory, subnormal numbers are flushed.
        let flushes = matches!(window, Window::Global | Window::Generic);
        let f = atomic::change(operation, type_, flushes).ok_or(UNSUPPORTED)?;
        let differs = window == Window::Generic && (operation, type_) == ("add", Type::F32);
        let elsewhere = if differs { atomic::change(operation, type_, false) } else { None };
        let returns = i.opcode == "atom";
        let values = if operation == "cas" { 2 } else { 1 };
        if i.operands.len() != usize::from(returns) + 1 + values || !returns && matches!(operation, "cas" | "exch") {
            return Err("the number of operands is wrong".into());
        }
        let (result, rest) = i.operands.split_at(usize::from(returns));
        let address = self.address(&rest[0], window)?;
        let b = self.source(&rest[1], type_)?;
        let c = match rest.get(2) {
            Some(c) => self.source(c, type_)?,
            None => b,
        };
        let d = match result.first() {
            Some(d) => Some(self.destination(d, type_)?),
            None => None,
        };
        let access = access_of(address, type_, 0, 1);
        let fence_before = matches!(order, "release" | "acq_rel").then_some(scope);
        let fence_after = matches!(order, "acquire" | "acq_rel").then_some(scope);
        let Address { base, offset, .. } = address;
        let atomic = Atomic { f, elsewhere, d, base, offset, b, c, access, fence_before, fence_after };
        let atomic = append(&mut self.function.atomics, atomic);
        self.emit(Op::Atomic { atomic });
        Ok(())
    }
}
