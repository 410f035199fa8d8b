//! Lowers arithmetic whose names integers and floating-point numbers share.

use super::{Instruction, Lower, Lowered, Modifiers, Reason, UNSUPPORTED, operands};
use crate::arithmetic::float::{self, Extreme, Style};
use crate::arithmetic::lanewise::{WideBinary, WideTernary, WideUnary};
use crate::arithmetic::{Quaternary, carry, half, integer, rounding};
use crate::ast::Operand;
use crate::op::Op;
use crate::types::Type;

impl<'a> Lower<'_, 'a> {
    /// Each operation takes the modifiers that PTX has for it and its type; the others are left, and so refused.
    pub(super) fn arithmetic(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        let with_carry = m.take("cc") || matches!(i.opcode, "addc" | "subc" | "madc");
        let type_ = type_of(m)?;
        if with_carry {
            let part = m.take_any(&["lo", "hi"]);
            return self.with_carry(i, type_, part);
        }
        match type_ {
            Type::F32 | Type::F64 => self.float_arithmetic(i, m, type_),
            Type::F16 | Type::F16x2 | Type::BF16 | Type::BF16x2 => self.half_arithmetic(i, m, type_),
            _ => {
                let (part, saturate) = (m.take_any(&["lo", "hi", "wide"]), m.take("sat"));
                self.integer_arithmetic(i, type_, part, saturate)
            }
        }
    }

    fn float_arithmetic(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>, type_: Type) -> Lowered<()> {
        let single = type_ == Type::F32;
        let flush = single && m.take("ftz");
        match i.opcode {
            "add" | "sub" | "mul" | "fma" | "mad" => {
                let style = Style { round: rounding_of(m), flush, saturate: single && m.take("sat") };
                match i.opcode {
                    "add" => self.binary(i, type_, float::add(type_, style)),
                    "sub" => self.binary(i, type_, float::sub(type_, style)),
                    "mul" => self.binary(i, type_, float::mul(type_, style)),
                    _ => self.ternary(i, [type_; 4], float::fma(type_, style)),
                }
            }
            "div" => {
                // Both are exact here.
                let is_fast = single && m.take_any(&["approx", "full"]).is_some();
                let round = if is_fast { rounding::NEAREST } else { rounding_of(m) };
                self.binary(i, type_, float::div(type_, Style { round, flush, saturate: false }))
            }
            // `min` and `max` of three, which PTX has since 8.8.
            "min" | "max" if single && i.operands.len() == 4 => Err(UNSUPPORTED),
            "min" | "max" => {
                let (nan, xor_sign) = (single && m.take("NaN"), single && m.take("xorsign"));
                if xor_sign && !m.take("abs") {
                    return Err("modifier .xorsign needs .abs".into());
                }
                let how = Extreme { larger: i.opcode == "max", flush, nan, xor_sign };
                self.binary(i, type_, float::extreme(type_, how))
            }
            "neg" => self.unary(i, type_, float::neg(type_, flush)),
            "abs" => self.unary(i, type_, float::abs(type_, flush)),
            _ => Err(UNSUPPORTED),
        }
    }

    fn half_arithmetic(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>, type_: Type) -> Lowered<()> {
        // bf16 has neither `.ftz` nor `.sat`.
        let is_f16 = matches!(type_, Type::F16 | Type::F16x2);
        let flush = is_f16 && m.take("ftz");
        match i.opcode {
            "add" | "sub" | "mul" | "fma" => {
                m.take("rn");
                let style = half::Style { flush, saturate: is_f16 && m.take("sat") };
                match i.opcode {
                    "add" => self.binary(i, type_, half::add(type_, style)),
                    "sub" => self.binary(i, type_, half::sub(type_, style)),
                    "mul" => self.binary(i, type_, half::mul(type_, style)),
                    _ if m.take("relu") => self.ternary(i, [type_; 4], half::fma_relu(type_, style)),
                    _ => self.ternary(i, [type_; 4], half::fma(type_, style)),
                }
            }
            "min" | "max" => {
                // `saturate` stands for `.NaN`.
                let style = half::Style { flush, saturate: m.take("NaN") };
                let f = if i.opcode == "min" { half::min(type_, style) } else { half::max(type_, style) };
                self.binary(i, type_, f)
            }
            "neg" | "abs" => {
                let style = half::Style { flush, saturate: false };
                let f = if i.opcode == "neg" { half::neg(type_, style) } else { half::abs(type_, style) };
                self.unary(i, type_, f)
            }
            _ => Err(UNSUPPORTED),
        }
    }

    fn integer_arithmetic(&mut self, i: &Instruction<'a>, t: Type, part: Option<&str>, saturate: bool) -> Lowered<()> {
        let wide = || double(t).ok_or(UNSUPPORTED);
        if t.is_untyped() || t == Type::Pred {
            return Err(UNSUPPORTED);
        }
        match (i.opcode, part, saturate) {
            ("add", None, false) => self.binary(i, t, integer::add(t)),
            ("add", None, true) => self.binary(i, t, integer::add_saturating(t)),
            ("sub", None, false) => self.binary(i, t, integer::sub(t)),
            ("sub", None, true) => self.binary(i, t, integer::sub_saturating(t)),
            ("mul", Some("lo"), false) => self.binary(i, t, integer::mul_low(t)),
            ("mul", Some("hi"), false) => self.binary(i, t, integer::mul_high(t)),
            ("mul", Some("wide"), false) => self.binary_as(i, [wide()?, t, t], integer::mul_wide(t)),
            ("mad", Some("lo"), false) => self.ternary(i, [t; 4], integer::mad_low(t)),
            ("mad", Some("hi"), false) => self.ternary(i, [t; 4], integer::mad_high(t)),
            ("mad", Some("hi"), true) => self.ternary(i, [t; 4], integer::mad_high_saturating(t)),
            ("mad", Some("wide"), false) => self.ternary(i, [wide()?, t, t, wide()?], integer::mad_wide(t)),
            ("mul24", Some(part @ ("lo" | "hi")), false) => self.binary(i, t, integer::mul24(t, part == "hi")),
            ("mad24", Some(part @ ("lo" | "hi")), false) => self.ternary(i, [t; 4], integer::mad24(t, part == "hi")),
            ("mad24", Some("hi"), true) => self.ternary(i, [t; 4], integer::mad24_high_saturating(t)),
            ("sad", None, false) => self.ternary(i, [t; 4], integer::sad(t)),
            ("div", None, false) => self.binary(i, t, integer::div(t)),
            ("rem", None, false) => self.binary(i, t, integer::rem(t)),
            ("min", None, false) => self.binary(i, t, integer::min(t)),
            ("max", None, false) => self.binary(i, t, integer::max(t)),
            ("abs", None, false) => self.unary(i, t, integer::abs(t)),
            ("neg", None, false) => self.unary(i, t, integer::neg(t)),
            _ => Err(UNSUPPORTED),
        }
    }

    fn with_carry(&mut self, i: &Instruction<'a>, type_: Type, part: Option<&str>) -> Lowered<()> {
        let uses = i.opcode.ends_with('c');
        let writes_carry = i.modifiers.contains(&"cc");
        if !type_.is_integer() {
            return Err(UNSUPPORTED);
        }
        let f = match (i.opcode, part) {
            ("add" | "addc", None) => carry::add(type_, uses),
            ("sub" | "subc", None) => carry::sub(type_, uses),
            ("mad" | "madc", Some(part @ ("lo" | "hi"))) => carry::mad(type_, part == "hi", uses),
            _ => None,
        };
        let f = f.ok_or(UNSUPPORTED)?;
        let (d, values) = match i.operands.as_slice() {
            [d, values @ ..] if values.len() == if part.is_some() { 3 } else { 2 } => (d, values),
            _ => return Err("the number of operands is wrong".into()),
        };
        let mut operands = [self.value(0); 3];
        for (slot, value) in operands.iter_mut().zip(values) {
            *slot = self.source(value, type_)?;
        }
        let d = self.destination(d, type_)?;
        self.emit(Op::Carry { f, d, operands, writes_carry });
        Ok(())
    }

    pub(super) fn unary(&mut self, i: &Instruction<'a>, type_: Type, f: Option<impl Into<WideUnary>>) -> Lowered<()> {
        self.unary_as(i, [type_; 2], f)
    }

    /// Types of the result and the operand.
    pub(super) fn unary_as(
        &mut self,
        i: &Instruction<'a>,
        types: [Type; 2],
        f: Option<impl Into<WideUnary>>,
    ) -> Lowered<()> {
        let f = f.ok_or(UNSUPPORTED)?.into();
        let [d, a] = operands(i)?;
        let a = self.source(a, types[1])?;
        let d = self.destination(d, types[0])?;
        self.emit(Op::Unary { f, d, a });
        Ok(())
    }

    pub(super) fn binary(&mut self, i: &Instruction<'a>, type_: Type, f: Option<impl Into<WideBinary>>) -> Lowered<()> {
        self.binary_as(i, [type_; 3], f)
    }

    pub(super) fn binary_as(
        &mut self,
        i: &Instruction<'a>,
        types: [Type; 3],
        f: Option<impl Into<WideBinary>>,
    ) -> Lowered<()> {
        let f = f.ok_or(UNSUPPORTED)?.into();
        let [d, a, b] = operands(i)?;
        let (a, b) = (self.source(a, types[1])?, self.source(b, types[2])?);
        let d = self.destination(d, types[0])?;
        self.emit(Op::Binary { f, d, a, b });
        Ok(())
    }

    pub(super) fn ternary(
        &mut self,
        i: &Instruction<'a>,
        types: [Type; 4],
        f: Option<impl Into<WideTernary>>,
    ) -> Lowered<()> {
        let f = f.ok_or(UNSUPPORTED)?.into();
        let [d, a, b, c] = operands(i)?;
        let (a, b, c) = (self.source(a, types[1])?, self.source(b, types[2])?, self.source(c, types[3])?);
        let d = self.destination(d, types[0])?;
        self.emit(Op::Ternary { f, d, a, b, c });
        Ok(())
    }

    pub(super) fn quaternary(&mut self, i: &Instruction<'a>, types: [Type; 5], f: Option<Quaternary>) -> Lowered<()> {
        let f = f.ok_or(UNSUPPORTED)?;
        let [d, values @ ..]: &[Operand<'a>; 5] = operands(i)?;
        let mut slots = [0; 4];
        for ((slot, value), type_) in slots.iter_mut().zip(values).zip(&types[1..]) {
            *slot = self.source(value, *type_)?;
        }
        let d = self.destination(d, types[0])?;
        self.emit(Op::Quaternary { f, d, operands: slots });
        Ok(())
    }
}

/// `.rn`, `.ftz` and `.sat`
pub(super) fn style(m: &mut Modifiers<'_>) -> Style {
    let round = rounding_of(m);
    Style { round, flush: m.take("ftz"), saturate: m.take("sat") }
}

/// A mode of [`rounding`].
fn rounding_of(m: &mut Modifiers<'_>) -> u8 {
    match m.take_any(&["rn", "rz", "rm", "rp"]) {
        Some("rz") => rounding::ZERO,
        Some("rm") => rounding::DOWN,
        Some("rp") => rounding::UP,
        _ => rounding::NEAREST,
    }
}

pub(super) fn type_of(m: &mut Modifiers<'_>) -> Lowered<Type> {
    m.take_type().ok_or_else(|| match m.first() {
        Some(left) => Reason::unsupported_modifier(left),
        None => "the instruction has no type".into(),
    })
}

fn double(type_: Type) -> Option<Type> {
    Some(match type_ {
        Type::U16 => Type::U32,
        Type::S16 => Type::S32,
        Type::U32 => Type::U64,
        Type::S32 => Type::S64,
        _ => return None,
    })
}
