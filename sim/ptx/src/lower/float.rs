//! Lowers floating-point functions.

use super::arithmetic::{style, type_of};
use super::{Instruction, Lower, Lowered, Modifiers, UNSUPPORTED};
use crate::arithmetic::float::{self, Style};
use crate::arithmetic::lanewise::WideUnary;
use crate::arithmetic::{Unary, approximate, half};
use crate::types::Type;

const PROPERTIES: [&str; 6] = ["finite", "infinite", "number", "notanumber", "normal", "subnormal"];

impl<'a> Lower<'_, 'a> {
    pub(super) fn float(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        if i.opcode == "testp" {
            let property = m.take_any(&PROPERTIES).ok_or(UNSUPPORTED)?;
            let type_ = type_of(m)?;
            return self.unary_as(i, [Type::Pred, type_], float::test(type_, property));
        }
        let approximate = m.take("approx");
        let rounds = ["rn", "rz", "rm", "rp"].iter().any(|mode| i.modifiers.contains(mode));
        let style = style(m);
        let type_ = type_of(m)?;
        if style.saturate {
            return Err(UNSUPPORTED);
        }
        let f = match (i.opcode, approximate, rounds) {
            ("copysign", false, false) if !style.flush => return self.binary(i, type_, float::copysign(type_)),
            (_, true, false) => function(i.opcode, type_, style).map(WideUnary::from),
            ("rcp", false, true) if type_ == Type::F32 || !style.flush => float::rcp(type_, style),
            ("sqrt", false, true) if type_ == Type::F32 || !style.flush => float::sqrt(type_, style),
            _ => None,
        };
        self.unary(i, type_, f)
    }
}

fn function(opcode: &str, type_: Type, style: Style) -> Option<Unary> {
    let narrow = half::Style { flush: style.flush, saturate: false };
    match (opcode, type_) {
        ("rcp", Type::F32) => Some(approximate::rcp(style.flush)),
        ("sqrt", Type::F32) => Some(approximate::sqrt(style.flush)),
        ("rsqrt", Type::F32) => Some(approximate::rsqrt(style.flush)),
        ("sin", Type::F32) => Some(approximate::sin(style.flush)),
        ("cos", Type::F32) => Some(approximate::cos(style.flush)),
        ("lg2", Type::F32) => Some(approximate::lg2(style.flush)),
        ("ex2", Type::F32) => Some(approximate::ex2(style.flush)),
        ("tanh", Type::F32) => Some(approximate::tanh(style.flush)),
        ("rcp", Type::F64) if style.flush => Some(approximate::rcp_f64_upper),
        ("rsqrt", Type::F64) if style.flush => Some(approximate::rsqrt_f64_upper),
        ("rsqrt", Type::F64) => Some(approximate::rsqrt_f64),
        ("ex2", Type::F16 | Type::F16x2 | Type::BF16 | Type::BF16x2) => half::ex2(type_, narrow),
        ("tanh", Type::F16 | Type::F16x2 | Type::BF16 | Type::BF16x2) => half::tanh(type_, narrow),
        _ => None,
    }
}
