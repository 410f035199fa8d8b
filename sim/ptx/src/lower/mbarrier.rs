//! Lowers the operations on mbarriers.

use super::memory::scope;
use super::{Instruction, Lower, Lowered, Modifiers, UNSUPPORTED, append, operands};
use crate::arithmetic::Unary;
use crate::arithmetic::lanewise::WideUnary;
use crate::arithmetic::mbarrier::{Operation, pending_count};
use crate::ast::Operand;
use crate::lexer::Number;
use crate::op::{Access, Mbarrier, Op, Slot};
use crate::types::Type;
use crate::window::Window;

const WHAT: [&str; 6] = ["init", "inval", "arrive", "arrive_drop", "test_wait", "pending_count"];

impl<'a> Lower<'_, 'a> {
    pub(super) fn mbarrier(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        let what = m.take_any(&WHAT).ok_or(UNSUPPORTED)?;
        if what == "pending_count" {
            let [d, state] = operands(i)?;
            let a = self.source(state, Type::B64)?;
            let d = self.destination(d, Type::B32)?;
            self.emit(Op::Unary { f: WideUnary::from(pending_count as Unary), d, a });
            return expect_b64(m);
        }
        let incomplete = matches!(what, "arrive" | "arrive_drop") && m.take("noComplete");
        let parity = what == "test_wait" && m.take("parity");
        m.take_any(&["acquire", "release", "relaxed"]);
        scope(m);
        let window = self.mbarrier_window(m)?;
        expect_b64(m)?;
        match (what, i.operands.as_slice()) {
            ("init", [at, count]) => {
                let a = self.count(count)?;
                self.operate(Operation::Initialise, at, window, a)
            }
            ("inval", [at]) => {
                let none = self.value(0);
                self.operate(Operation::Invalidate, at, window, none)
            }
            ("arrive" | "arrive_drop", [state, at, rest @ ..]) if rest.len() <= 1 => {
                let a = match rest.first() {
                    Some(count) => self.count(count)?,
                    None if incomplete => return Err("the number of operands is wrong".into()),
                    None => self.value(1),
                };
                let d = Some(self.destination(state, Type::B64)?);
                let what = Operation::Arrive { drop: what == "arrive_drop", incomplete };
                self.emit_mbarrier(what, d, at, window, a)
            }
            ("test_wait", [p, at, state]) => {
                let a = self.source(state, if parity { Type::B32 } else { Type::B64 })?;
                let d = Some(self.destination(p, Type::Pred)?);
                let test = if parity { Operation::TestParity } else { Operation::Test };
                self.emit_mbarrier(test, d, at, window, a)
            }
            _ => Err("the number of operands is wrong".into()),
        }
    }

    /// `cp.async.mbarrier.arrive`: the copies are complete, so that it is an arrival, if its count includes that one.
    pub(super) fn copies_arrive(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        if !m.take("arrive") {
            return Err(UNSUPPORTED);
        }
        let counted = m.take("noinc");
        let window = self.mbarrier_window(m)?;
        expect_b64(m)?;
        let [at] = operands(i)?;
        let one = self.value(1);
        let arrival = Operation::Arrive { drop: false, incomplete: false };
        self.operate(if counted { arrival } else { Operation::Check }, at, window, one)
    }

    fn mbarrier_window(&mut self, m: &mut Modifiers<'a>) -> Lowered<Window> {
        match self.take_window(m).unwrap_or(Window::Generic) {
            window @ (Window::Generic | Window::Shared) => Ok(window),
            _ => Err(UNSUPPORTED),
        }
    }

    /// A number of arrivals; one that is a number in the text must be possible (PTX ISA, "mbarrier.init").
    fn count(&mut self, operand: &Operand<'a>) -> Lowered<Slot> {
        match *operand {
            Operand::Number(Number::Integer(count)) if !(1..1 << 20).contains(&count) => {
                Err(format!("a count of arrivals is 1 to {}", (1 << 20) - 1).into())
            }
            _ => self.source(operand, Type::U32),
        }
    }

    fn operate(&mut self, what: Operation, at: &Operand<'a>, window: Window, a: Slot) -> Lowered<()> {
        self.emit_mbarrier(what, None, at, window, a)
    }

    fn emit_mbarrier(
        &mut self,
        what: Operation,
        d: Option<Slot>,
        at: &Operand<'a>,
        window: Window,
        a: Slot,
    ) -> Lowered<()> {
        let address = self.address(at, window)?;
        let access =
            Access { window: address.window, bytes: 8, align: 8, extend: 0, weak: false, wraps: address.wraps };
        let (base, offset) = (address.base, address.offset);
        let mbarrier = Mbarrier { what, d, base, offset, a, access };
        let mbarrier = append(&mut self.function.mbarriers, mbarrier);
        self.emit(Op::Mbarrier { mbarrier });
        Ok(())
    }
}

fn expect_b64(m: &mut Modifiers<'_>) -> Lowered<()> {
    if m.take("b64") { Ok(()) } else { Err(UNSUPPORTED) }
}
