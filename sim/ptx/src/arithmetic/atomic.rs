//! The functions of atomic operations and of reductions in a warp.
#![expect(clippy::cast_possible_truncation, reason = "values are cut to their type's width")]

use super::float::{self, Style};
use super::{Ternary, half};
use crate::types::Type;

/// The new value from the old one and one or two operands.
pub(crate) fn change(operation: &str, type_: Type, flush: bool) -> Option<Ternary> {
    let bits = type_.bits();
    Some(match (operation, type_) {
        ("add", Type::U32 | Type::S32) => |old, b, _| u64::from((old as u32).wrapping_add(b as u32)),
        ("add", Type::U64 | Type::S64) => |old, b, _| old.wrapping_add(b),
        ("add", Type::F32) if flush => |old, b, _| float_add::<true>(old, b),
        ("add", Type::F32) => |old, b, _| float_add::<false>(old, b),
        ("add", Type::F64) => |old, b, _| (f64::from_bits(old) + f64::from_bits(b)).to_bits(),
        ("add", Type::F16) => |old, b, _| half_add(Type::F16, old, b),
        ("add", Type::F16x2) => |old, b, _| half_add(Type::F16x2, old, b),
        ("add", Type::BF16) => |old, b, _| half_add(Type::BF16, old, b),
        ("add", Type::BF16x2) => |old, b, _| half_add(Type::BF16x2, old, b),
        ("min", Type::U32 | Type::U64) => |old, b, _| old.min(b),
        ("max", Type::U32 | Type::U64) => |old, b, _| old.max(b),
        ("min", Type::S32) => |old, b, _| u64::from((old as i32).min(b as i32) as u32),
        ("max", Type::S32) => |old, b, _| u64::from((old as i32).max(b as i32) as u32),
        ("min", Type::S64) => |old, b, _| old.cast_signed().min(b.cast_signed()).cast_unsigned(),
        ("max", Type::S64) => |old, b, _| old.cast_signed().max(b.cast_signed()).cast_unsigned(),
        ("inc", Type::U32) => |old, b, _| if old >= b { 0 } else { old + 1 },
        ("dec", Type::U32) => |old, b, _| if old == 0 || old > b { b } else { old - 1 },
        ("and", Type::B32 | Type::B64) => |old, b, _| old & b,
        ("or", Type::B32 | Type::B64) => |old, b, _| old | b,
        ("xor", Type::B32 | Type::B64) => |old, b, _| old ^ b,
        ("exch", _) if bits >= 32 && !type_.is_float() => |_, b, _| b,
        ("cas", _) if bits >= 16 && !type_.is_float() => |old, b, c| if old == b { c } else { old },
        _ => return None,
    })
}

fn float_add<const FLUSH: bool>(old: u64, b: u64) -> u64 {
    let style = Style { flush: FLUSH, ..Style::default() };
    float::add(Type::F32, style).map_or(old, |add| (add.one)(old, b))
}

fn half_add(type_: Type, old: u64, b: u64) -> u64 {
    half::add(type_, half::Style::default()).map_or(old, |add| add(old, b))
}
