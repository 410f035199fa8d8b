//! Barriers, fences and sleeping.

use super::arithmetic::type_of;
use super::memory::scope;
use super::{Instruction, Lower, Lowered, Modifiers, UNSUPPORTED, append, operands};
use crate::ast::Operand;
use crate::lexer::Number;
use crate::memory::Scope;
use crate::op::{Barrier, BarrierKind, Op, Reduction, WarpKind, wrong_count};
use crate::types::Type;

impl<'a> Lower<'_, 'a> {
    pub(super) fn synchronise(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        match i.opcode {
            "membar" | "fence" => {
                let scope = fence(i.opcode, m)?;
                operands::<0>(i)?;
                self.emit(Op::Fence { scope });
                Ok(())
            }
            "nanosleep" => {
                let type_ = type_of(m)?;
                let [a] = operands(i)?;
                let a = self.source(a, type_)?;
                self.emit(Op::Sleep { a });
                Ok(())
            }
            _ => self.barrier(i, m),
        }
    }

    fn barrier(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        if m.take("warp") {
            return self.warp_barrier(i, m);
        }
        m.take("cta");
        let what = m.take_any(&["sync", "arrive", "red"]).ok_or(UNSUPPORTED)?;
        m.take("aligned");
        let (kind, rest) = match what {
            "red" => self.reduction(i, m)?,
            "sync" => (BarrierKind::Sync, i.operands.as_slice()),
            _ => (BarrierKind::Arrive, i.operands.as_slice()),
        };
        let (id, count) = match rest {
            [id] if what != "arrive" => (id, None),
            [id, count] => (id, Some(count)),
            _ => return Err("the number of operands is wrong".into()),
        };
        if matches!(id, Operand::Number(Number::Integer(id)) if *id > 15) {
            return Err("a block has the barriers 0 to 15".into());
        }
        if let Some(Operand::Number(Number::Integer(count))) = count
            && let Some(problem) = wrong_count(*count, what == "arrive")
        {
            return Err(problem.into());
        }
        let id = self.source(id, Type::U32)?;
        let count = match count {
            Some(count) => Some(self.source(count, Type::U32)?),
            None => None,
        };
        let barrier = append(&mut self.function.barriers, Barrier { kind, id, count });
        self.emit(Op::Barrier { barrier });
        Ok(())
    }

    /// `d, id{, count}, {!}p`; returns the operands in between.
    fn reduction<'i>(
        &mut self,
        i: &'i Instruction<'a>,
        m: &mut Modifiers<'a>,
    ) -> Lowered<(BarrierKind, &'i [Operand<'a>])> {
        let how = match m.take_any(&["popc", "and", "or"]).ok_or(UNSUPPORTED)? {
            "popc" => Reduction::Count,
            "and" => Reduction::And,
            _ => Reduction::Or,
        };
        let type_ = type_of(m)?;
        if type_ != if how == Reduction::Count { Type::U32 } else { Type::Pred } {
            return Err(UNSUPPORTED);
        }
        let [d, rest @ .., p] = i.operands.as_slice() else {
            return Err("the number of operands is wrong".into());
        };
        let (p, negated) = self.negatable(p)?;
        let d = self.destination(d, type_)?;
        Ok((BarrierKind::Reduce { how, d, p, negated }, rest))
    }

    fn warp_barrier(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        if !m.take("sync") {
            return Err(UNSUPPORTED);
        }
        let [mask] = operands(i)?;
        let d = self.temporary();
        self.lanes(WarpKind::Sync, d, None, [None; 3], Some(mask))
    }
}

/// Every fence is executed as the strongest one of its scope. Fences between proxies order nothing more: there is only one path to
/// memory.
fn fence(opcode: &str, m: &mut Modifiers<'_>) -> Lowered<Scope> {
    if opcode == "membar" {
        let scope = m.take_any(&["cta", "gl", "sys"]).ok_or(UNSUPPORTED)?;
        return Ok(if scope == "sys" { Scope::System } else { Scope::Device });
    }
    if m.take("proxy") {
        m.take_any(&["alias", "async", "async.global", "async.shared::cta", "generic"]).ok_or(UNSUPPORTED)?;
        m.take_any(&["global", "shared::cta"]);
        return Ok(Scope::Device);
    }
    m.take("mbarrier_init");
    m.take_any(&["sc", "acq_rel", "acquire", "release"]);
    scope(m).ok_or(UNSUPPORTED)
}
