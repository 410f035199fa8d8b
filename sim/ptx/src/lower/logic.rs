//! Lowers logic, shifts, and operations on single bits and bytes.

use super::arithmetic::type_of;
use super::operand::number;
use super::{Instruction, Lower, Lowered, Modifiers, UNSUPPORTED, operands};
use crate::arithmetic::{Ternary, bits, dot};
use crate::types::Type;

const PRMT_MODES: [&str; 6] = ["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"];

impl<'a> Lower<'_, 'a> {
    pub(super) fn logic(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        let clamp = m.take_any(&["clamp", "wrap"]);
        match i.opcode {
            "shf" => return self.funnel(i, m, clamp),
            "prmt" => {
                let f = bits::prmt(m.take_any(&PRMT_MODES));
                return self.of_words(i, m, f);
            }
            "dp4a" | "dp2a" => return self.dot(i, m),
            "vabsdiff2" | "vabsdiff4" => return self.differences(i, m),
            "lop3" => return self.lop3(i, m),
            "bmsk" | "szext" => return self.masks(i, m, clamp),
            _ if clamp.is_some() => return Err(UNSUPPORTED),
            _ => {}
        }
        let shift_amount = m.take("shiftamt");
        let t = type_of(m)?;
        if shift_amount && i.opcode != "bfind" || !is_allowed(i.opcode, t) {
            return Err(UNSUPPORTED);
        }
        match i.opcode {
            "and" => self.binary(i, t, bits::and(t)),
            "or" => self.binary(i, t, bits::or(t)),
            "xor" => self.binary(i, t, bits::xor(t)),
            "not" => self.unary(i, t, bits::not(t)),
            "cnot" => self.unary(i, t, bits::cnot(t)),
            "shl" => self.binary_as(i, [t, t, Type::U32], bits::shl(t)),
            "shr" => self.binary_as(i, [t, t, Type::U32], bits::shr(t)),
            "popc" => self.unary_as(i, [Type::U32, t], bits::popc(t)),
            "clz" => self.unary_as(i, [Type::U32, t], bits::clz(t)),
            "bfind" => self.unary_as(i, [Type::U32, t], bits::bfind(t, shift_amount)),
            "brev" => self.unary(i, t, bits::brev(t)),
            "bfe" => self.ternary(i, [t, t, Type::U32, Type::U32], bits::bfe(t)),
            "bfi" => self.quaternary(i, [t, t, t, Type::U32, Type::U32], bits::bfi(t)),
            "fns" => self.ternary(i, [t, t, Type::B32, Type::S32], Some(bits::find_nth_set as Ternary)),
            _ => Err(UNSUPPORTED),
        }
    }

    fn funnel(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>, clamp: Option<&str>) -> Lowered<()> {
        let (direction, clamp) = (m.take_any(&["l", "r"]).ok_or(UNSUPPORTED)?, clamp.ok_or(UNSUPPORTED)?);
        let f = bits::funnel(direction == "l", clamp == "wrap");
        self.of_words(i, m, Some(f))
    }

    fn of_words(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>, f: Option<Ternary>) -> Lowered<()> {
        match type_of(m)? {
            Type::B32 => self.ternary(i, [Type::B32; 4], f),
            _ => Err(UNSUPPORTED),
        }
    }

    fn dot(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        let half = m.take_any(&["lo", "hi"]);
        let (a, b) = (type_of(m)?, type_of(m)?);
        if !matches!((a, b), (Type::U32 | Type::S32, Type::U32 | Type::S32)) {
            return Err(UNSUPPORTED);
        }
        let f = match (i.opcode, half) {
            ("dp4a", None) => dot::four(a.is_signed(), b.is_signed()),
            ("dp2a", Some(half)) => dot::two(a.is_signed(), b.is_signed(), half == "hi"),
            _ => return Err(UNSUPPORTED),
        };
        self.ternary(i, [Type::B32; 4], Some(f))
    }

    /// Without selectors and masks, which are written after operands, nor saturation.
    fn differences(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        let add = m.take("add");
        let (d, a, b) = (type_of(m)?, type_of(m)?, type_of(m)?);
        if [d, a, b].iter().any(|t| !matches!(t, Type::U32 | Type::S32)) {
            return Err(UNSUPPORTED);
        }
        let f = dot::absolute_differences(i.opcode == "vabsdiff4", (a.is_signed(), b.is_signed()), add);
        self.ternary(i, [Type::B32; 4], Some(f))
    }

    fn lop3(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        if type_of(m)? != Type::B32 {
            return Err(UNSUPPORTED);
        }
        let [_, _, _, _, table] = operands(i)?;
        if number(table)? > 0xff {
            return Err("the table of lop3 has eight bits".into());
        }
        self.quaternary(i, [Type::B32; 5], Some(bits::lop3))
    }

    fn masks(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>, clamp: Option<&str>) -> Lowered<()> {
        let clamp = clamp.ok_or(UNSUPPORTED)? == "clamp";
        let f = match (i.opcode, type_of(m)?) {
            ("bmsk", Type::B32) => bits::bmsk(clamp),
            ("szext", t @ (Type::U32 | Type::S32)) => bits::szext(t.is_signed(), clamp),
            _ => return Err(UNSUPPORTED),
        };
        self.binary_as(i, [Type::B32, Type::B32, Type::U32], Some(f))
    }
}

fn is_allowed(opcode: &str, t: Type) -> bool {
    let word = matches!(t, Type::B32 | Type::B64);
    let bits = word || t == Type::B16;
    match opcode {
        "and" | "or" | "xor" | "not" => bits || t == Type::Pred,
        "cnot" | "shl" => bits,
        "shr" => bits || t.is_integer() && t.bits() > 8,
        "popc" | "clz" | "brev" | "bfi" => word,
        "fns" => t == Type::B32,
        // Their functions know.
        _ => true,
    }
}
