//! Integer arithmetic.
#![expect(clippy::cast_possible_truncation, reason = "values are cut to their type's width")]
#![allow(clippy::cast_lossless, clippy::unnecessary_cast, reason = "one expression serves all widths")]

use super::lanewise::{WideBinary, WideTernary, WideUnary, lanewise};
use super::{Binary, Ternary, for_integers};
use crate::types::Type;

pub(crate) fn add(type_: Type) -> Option<WideBinary> {
    for_integers!(type_, |a, b| a.wrapping_add(b))
}

pub(crate) fn sub(type_: Type) -> Option<WideBinary> {
    for_integers!(type_, |a, b| a.wrapping_sub(b))
}

pub(crate) fn add_saturating(type_: Type) -> Option<Binary> {
    (type_ == Type::S32).then_some(|a, b| u64::from((a as i32).saturating_add(b as i32) as u32))
}

pub(crate) fn sub_saturating(type_: Type) -> Option<Binary> {
    (type_ == Type::S32).then_some(|a, b| u64::from((a as i32).saturating_sub(b as i32) as u32))
}

pub(crate) fn mul_low(type_: Type) -> Option<WideBinary> {
    for_integers!(type_, |a, b| a.wrapping_mul(b))
}

pub(crate) fn mul_high(type_: Type) -> Option<WideBinary> {
    for_integers!(type_, |a, b| ((a as i128).wrapping_mul(b as i128) >> T::BITS) as T)
}

/// The product has twice the width.
pub(crate) fn mul_wide(type_: Type) -> Option<WideBinary> {
    Some(match type_ {
        Type::U16 => lanewise!(|a, b| a.wrapping_mul(b)),
        Type::S16 => lanewise!(|a, b| u64::from((i32::from(a as i16) * i32::from(b as i16)) as u32)),
        Type::U32 => lanewise!(|a, b| u64::from(a as u32) * u64::from(b as u32)),
        Type::S32 => lanewise!(|a, b| (i64::from(a as i32) * i64::from(b as i32)).cast_unsigned()),
        _ => return None,
    })
}

pub(crate) fn mad_low(type_: Type) -> Option<WideTernary> {
    for_integers!(type_, |a, b, c| a.wrapping_mul(b).wrapping_add(c))
}

pub(crate) fn mad_high(type_: Type) -> Option<WideTernary> {
    for_integers!(type_, |a, b, c| (((a as i128).wrapping_mul(b as i128) >> T::BITS) as T).wrapping_add(c))
}

pub(crate) fn mad_high_saturating(type_: Type) -> Option<Ternary> {
    (type_ == Type::S32).then_some(|a, b, c| {
        let high = ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as i32;
        u64::from(high.saturating_add(c as i32) as u32)
    })
}

/// `c` and the sum have twice the width.
pub(crate) fn mad_wide(type_: Type) -> Option<WideTernary> {
    Some(match type_ {
        Type::U16 => lanewise!(|a, b, c| a.wrapping_mul(b).wrapping_add(c) & 0xffff_ffff),
        Type::S16 => lanewise!(|a, b, c| {
            u64::from((i32::from(a as i16) * i32::from(b as i16)).wrapping_add(c as i32) as u32)
        }),
        Type::U32 => lanewise!(|a, b, c| (u64::from(a as u32) * u64::from(b as u32)).wrapping_add(c)),
        Type::S32 => lanewise!(|a, b, c| {
            (i64::from(a as i32) * i64::from(b as i32)).wrapping_add(c.cast_signed()).cast_unsigned()
        }),
        _ => return None,
    })
}

/// The 48-bit product of the operands' low 24 bits.
fn product24(signed: bool, a: u64, b: u64) -> i64 {
    let low = |value: u64| if signed { i64::from((value << 8) as i32 >> 8) } else { (value & 0xff_ffff).cast_signed() };
    low(a) * low(b)
}

/// `.lo`: the product's bits 0 to 31; `.hi`: its bits 16 to 47.
pub(crate) fn mul24(type_: Type, high: bool) -> Option<Binary> {
    Some(match (type_, high) {
        (Type::U32, false) => |a, b| u64::from(product24(false, a, b) as u32),
        (Type::S32, false) => |a, b| u64::from(product24(true, a, b) as u32),
        (Type::U32, true) => |a, b| u64::from((product24(false, a, b) >> 16) as u32),
        (Type::S32, true) => |a, b| u64::from((product24(true, a, b) >> 16) as u32),
        _ => return None,
    })
}

pub(crate) fn mad24(type_: Type, high: bool) -> Option<Ternary> {
    Some(match (type_, high) {
        (Type::U32, false) => |a, b, c| u64::from((product24(false, a, b) as u32).wrapping_add(c as u32)),
        (Type::S32, false) => |a, b, c| u64::from((product24(true, a, b) as u32).wrapping_add(c as u32)),
        (Type::U32, true) => |a, b, c| u64::from(((product24(false, a, b) >> 16) as u32).wrapping_add(c as u32)),
        (Type::S32, true) => |a, b, c| u64::from(((product24(true, a, b) >> 16) as u32).wrapping_add(c as u32)),
        _ => return None,
    })
}

/// `mad24.hi.sat`, which PTX has for `.s32` only.
pub(crate) fn mad24_high_saturating(type_: Type) -> Option<Ternary> {
    (type_ == Type::S32).then_some(|a, b, c| {
        let high = (product24(true, a, b) >> 16) as i32;
        u64::from(high.saturating_add(c as i32) as u32)
    })
}

/// `c + |a - b|`
pub(crate) fn sad(type_: Type) -> Option<WideTernary> {
    for_integers!(type_, |a, b, c| c.wrapping_add(a.max(b).wrapping_sub(a.min(b))))
}

/// Division by zero gives all ones, as on GPUs; PTX leaves it unspecified. It is slow, and hence not done for lanes that
/// do not execute.
pub(crate) fn div(type_: Type) -> Option<WideBinary> {
    for_integers!(type_, |a, b| if b == 0 { !0 } else { a.wrapping_div(b) }).map(WideBinary::one_by_one)
}

/// The remainder by zero is the dividend, as on GPUs; PTX leaves it unspecified.
pub(crate) fn rem(type_: Type) -> Option<WideBinary> {
    for_integers!(type_, |a, b| if b == 0 { a } else { a.wrapping_rem(b) }).map(WideBinary::one_by_one)
}

pub(crate) fn min(type_: Type) -> Option<WideBinary> {
    for_integers!(type_, |a, b| a.min(b))
}

pub(crate) fn max(type_: Type) -> Option<WideBinary> {
    for_integers!(type_, |a, b| a.max(b))
}

pub(crate) fn abs(type_: Type) -> Option<WideUnary> {
    Some(match type_ {
        Type::S16 => lanewise!(|a| u64::from((a as i16).wrapping_abs() as u16)),
        Type::S32 => lanewise!(|a| u64::from((a as i32).wrapping_abs() as u32)),
        Type::S64 => lanewise!(|a| (a as i64).wrapping_abs().cast_unsigned()),
        _ => return None,
    })
}

pub(crate) fn neg(type_: Type) -> Option<WideUnary> {
    if !type_.is_signed() {
        return None;
    }
    for_integers!(type_, |a| a.wrapping_neg())
}
