//! Lowers conversions: `cvt` in all its forms.

use super::arithmetic::{style, type_of};
use super::{Instruction, Lower, Lowered, Modifiers, Reason, UNSUPPORTED, operands};
use crate::arithmetic::convert::{Convert, extend};
use crate::arithmetic::lanewise::{WideUnary, lanewise};
use crate::arithmetic::pack::pack;
use crate::arithmetic::{Ternary, Unary, rounding, tf32};
use crate::op::Op;
use crate::types::Type;

impl<'a> Lower<'_, 'a> {
    pub(super) fn convert(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        if m.take("pack") {
            self.cvt_pack(i, m)
        } else if i.modifiers.contains(&"tf32") {
            self.cvt_tf32(i, m)
        } else {
            self.cvt(i, m)
        }
    }

    fn cvt(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        let relu = m.take("relu");
        let integral = m.take_any(&["rni", "rzi", "rmi", "rpi"]);
        let style = style(m);
        let (to, from) = (type_of(m)?, type_of(m)?);
        if let Type::F16x2 | Type::BF16x2 = to {
            let narrow = if to == Type::F16x2 { Type::F16 } else { Type::BF16 };
            let how = Convert {
                from,
                to: narrow,
                round: style.round,
                integral: false,
                flush: style.flush,
                saturate: style.saturate,
                relu,
                width: 16,
            };
            return if from == Type::F32 && integral.is_none() { self.cvt_pair(i, to, how) } else { Err(UNSUPPORTED) };
        }
        let round = match integral {
            Some("rzi") => rounding::ZERO,
            Some("rmi") => rounding::DOWN,
            Some("rpi") => rounding::UP,
            _ => style.round,
        };
        let pair = matches!(from, Type::F16x2 | Type::BF16x2) || from == Type::Pred || to == Type::Pred;
        let to_integer = from.is_float() && !to.is_float();
        if pair
            || to_integer != integral.is_some() && (to_integer || from != to)
            || relu && !matches!(to, Type::F16 | Type::BF16)
        {
            return Err(Reason::unsupported("this conversion is not supported"));
        }
        let [d, a] = operands(i)?;
        let a = self.wide_source(a, from)?;
        let (d, width) = self.wide_destination(d, to)?;
        let simple = !from.is_float() && !to.is_float() && !style.saturate;
        if let Some(f) = extend(from, to, width).filter(|_| simple) {
            self.emit(Op::Unary { f, d, a });
            return Ok(());
        }
        let width = u8::try_from(width).unwrap_or(64);
        let (flush, saturate, integral) = (style.flush, style.saturate, integral.is_some());
        let how = Convert { from, to, round, integral, flush, saturate, relu, width };
        self.emit(match how.common() {
            Some(f) => Op::Unary { f, d, a },
            None => Op::Convert { d, a, how },
        });
        Ok(())
    }

    /// The first operand is the upper half.
    fn cvt_pair(&mut self, i: &Instruction<'a>, to: Type, how: Convert) -> Lowered<()> {
        let [d, high, low] = operands(i)?;
        let (high, low) = (self.source(high, Type::F32)?, self.source(low, Type::F32)?);
        let d = self.destination(d, to)?;
        let (a, b) = (self.temporary(), self.temporary());
        self.emit(Op::Convert { d: a, a: high, how });
        self.emit(Op::Convert { d: b, a: low, how });
        self.emit(Op::Binary { f: lanewise!(|high, low| high << 16 | low), d, a, b });
        Ok(())
    }

    /// `cvt.pack.sat.convertType.s32 d, a, b` into halves, or `cvt.pack.sat.convertType.s32.b32 d, a, b, c`, which moves
    /// `c` up by two elements. `a` is the upper element.
    fn cvt_pack(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        let narrow = m.take_any(&["u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"]).ok_or(UNSUPPORTED)?;
        if !m.take("sat") || type_of(m)? != Type::S32 {
            return Err(UNSUPPORTED);
        }
        let (f, [a, b, d], rest): (Ternary, _, _) = match (narrow, i.operands.as_slice()) {
            ("u16", [d, a, b]) => (pack::<16, false>, [a, b, d], None),
            ("s16", [d, a, b]) => (pack::<16, true>, [a, b, d], None),
            ("u8", [d, a, b, c]) => (pack::<8, false>, [a, b, d], Some(c)),
            ("s8", [d, a, b, c]) => (pack::<8, true>, [a, b, d], Some(c)),
            ("u4", [d, a, b, c]) => (pack::<4, false>, [a, b, d], Some(c)),
            ("s4", [d, a, b, c]) => (pack::<4, true>, [a, b, d], Some(c)),
            ("u2", [d, a, b, c]) => (pack::<2, false>, [a, b, d], Some(c)),
            ("s2", [d, a, b, c]) => (pack::<2, true>, [a, b, d], Some(c)),
            _ => return Err("the number of operands is wrong".into()),
        };
        let c = match rest {
            Some(c) if m.take("b32") => self.source(c, Type::B32)?,
            Some(_) => return Err(UNSUPPORTED),
            None => self.value(0),
        };
        let (a, b) = (self.source(a, Type::S32)?, self.source(b, Type::S32)?);
        let d = self.destination(d, Type::B32)?;
        self.emit(Op::Ternary { f: f.into(), d, a, b, c });
        Ok(())
    }

    /// `cvt.rna.tf32.f32`, the only rounding of this GPU.
    fn cvt_tf32(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        if !(m.take("rna") && m.take("tf32")) || type_of(m)? != Type::F32 {
            return Err(UNSUPPORTED);
        }
        let [d, a] = operands(i)?;
        let a = self.source(a, Type::F32)?;
        let d = self.destination(d, Type::B32)?;
        self.emit(Op::Unary { f: WideUnary::from(tf32::round as Unary), d, a });
        Ok(())
    }
}
