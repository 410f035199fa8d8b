//! Lowers the collective instructions of a warp.

use super::arithmetic::type_of;
use super::{Instruction, Lower, Lowered, Modifiers, UNSUPPORTED, append, operands};
use crate::arithmetic::atomic;
use crate::ast::Operand;
use crate::op::{Op, Shuffle, Slot, Warp, WarpKind};
use crate::types::Type;

impl<'a> Lower<'_, 'a> {
    pub(super) fn warp(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        let sync = m.take("sync");
        match i.opcode {
            "vote" => self.vote(i, m, sync),
            "match" if sync => self.matching(i, m),
            "shfl" => self.shuffle(i, m, sync),
            "redux" if sync => self.reduce(i, m),
            "activemask" if !sync && type_of(m)? == Type::B32 => {
                let [d] = operands(i)?;
                let d = self.destination(d, Type::B32)?;
                self.lanes(WarpKind::Active, d, None, [None; 3], None)
            }
            _ => Err(UNSUPPORTED),
        }
    }

    pub(super) fn lanes(
        &mut self,
        kind: WarpKind,
        d: Slot,
        p: Option<Slot>,
        values: [Option<Slot>; 3],
        mask: Option<&Operand<'a>>,
    ) -> Lowered<()> {
        let mask = match mask {
            Some(mask) => Some(self.source(mask, Type::B32)?),
            None => None,
        };
        let none = self.value(0);
        let [a, b, c] = values.map(|value| value.unwrap_or(none));
        let warp = append(&mut self.function.warps, Warp { kind, d, p, a, b, c, mask });
        self.emit(Op::Warp { warp });
        Ok(())
    }

    /// `d` or `d|p`
    fn pair(&mut self, operand: &Operand<'a>, type_: Type) -> Lowered<(Slot, Option<Slot>)> {
        match operand {
            Operand::Pair(d, p) => {
                let d = self.destination(&Operand::Name(d), type_)?;
                Ok((d, Some(self.destination(&Operand::Name(p), Type::Pred)?)))
            }
            _ => Ok((self.destination(operand, type_)?, None)),
        }
    }

    fn vote(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>, sync: bool) -> Lowered<()> {
        let how = m.take_any(&["all", "any", "uni", "ballot"]).ok_or(UNSUPPORTED)?;
        let type_ = type_of(m)?;
        if type_ != if how == "ballot" { Type::B32 } else { Type::Pred } {
            return Err(UNSUPPORTED);
        }
        let (d, p, mask) = match i.operands.as_slice() {
            [d, p, mask] if sync => (d, p, Some(mask)),
            [d, p] if !sync => (d, p, None),
            _ => return Err("the number of operands is wrong".into()),
        };
        let (p, negated) = self.negatable(p)?;
        let d = self.destination(d, type_)?;
        let kind = match how {
            "all" => WarpKind::All { negated },
            "any" => WarpKind::Any { negated },
            "uni" => WarpKind::Uniform { negated },
            _ => WarpKind::Ballot { negated },
        };
        self.lanes(kind, d, None, [Some(p), None, None], mask)
    }

    fn matching(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        let how = m.take_any(&["any", "all"]).ok_or(UNSUPPORTED)?;
        let type_ = type_of(m)?;
        if !matches!(type_, Type::B32 | Type::B64) {
            return Err(UNSUPPORTED);
        }
        let [d, a, mask] = operands(i)?;
        let a = self.source(a, type_)?;
        let (d, p) = self.pair(d, Type::B32)?;
        let kind = if how == "any" { WarpKind::MatchAny } else { WarpKind::MatchAll };
        if how == "any" && p.is_some() {
            return Err(UNSUPPORTED);
        }
        self.lanes(kind, d, p, [Some(a), None, None], Some(mask))
    }

    fn shuffle(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>, sync: bool) -> Lowered<()> {
        let how = match m.take_any(&["up", "down", "bfly", "idx"]).ok_or(UNSUPPORTED)? {
            "up" => Shuffle::Up,
            "down" => Shuffle::Down,
            "bfly" => Shuffle::Butterfly,
            _ => Shuffle::Index,
        };
        if type_of(m)? != Type::B32 {
            return Err(UNSUPPORTED);
        }
        let (d, [a, b, c], mask) = match i.operands.as_slice() {
            [d, a, b, c, mask] if sync => (d, [a, b, c], Some(mask)),
            [d, a, b, c] if !sync => (d, [a, b, c], None),
            _ => return Err("the number of operands is wrong".into()),
        };
        let values = [self.source(a, Type::B32)?, self.source(b, Type::B32)?, self.source(c, Type::B32)?];
        let (d, p) = self.pair(d, Type::B32)?;
        self.lanes(WarpKind::Shuffle(how), d, p, values.map(Some), mask)
    }

    fn reduce(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        let how = m.take_any(&["add", "min", "max", "and", "or", "xor"]).ok_or(UNSUPPORTED)?;
        let type_ = type_of(m)?;
        let f = atomic::change(how, type_, false).filter(|_| type_.bits() == 32 && !type_.is_float());
        let f = f.ok_or(UNSUPPORTED)?;
        let [d, a, mask] = operands(i)?;
        let a = self.source(a, type_)?;
        let d = self.destination(d, type_)?;
        self.lanes(WarpKind::Reduce(f), d, None, [Some(a), None, None], Some(mask))
    }
}
