//! Logic, shifts, and bits within words.
#![expect(clippy::cast_possible_truncation, reason = "values are cut to their type's width")]
#![allow(clippy::cast_lossless, clippy::unnecessary_cast, reason = "one expression serves all widths")]

use super::lanewise::{WideBinary, WideUnary, lanewise};
use super::{Binary, Quaternary, Ternary, Unary, for_integers, mask, sign_extend};
use crate::types::Type;

/// Logic on whole registers needs no width: above it both operands are zero.
pub(crate) fn and(_: Type) -> Option<WideBinary> {
    Some(lanewise!(|a, b| a & b))
}

pub(crate) fn or(_: Type) -> Option<WideBinary> {
    Some(lanewise!(|a, b| a | b))
}

pub(crate) fn xor(_: Type) -> Option<WideBinary> {
    Some(lanewise!(|a, b| a ^ b))
}

pub(crate) fn not(type_: Type) -> Option<WideUnary> {
    match type_ {
        Type::Pred => Some(lanewise!(|a| a ^ 1)),
        _ => for_integers!(type_, |a| !a),
    }
}

pub(crate) fn cnot(_: Type) -> Option<WideUnary> {
    Some(lanewise!(|a| u64::from(a == 0)))
}

/// Shifts by the width or more give 0.
pub(crate) fn shl(type_: Type) -> Option<WideBinary> {
    Some(match type_.bits() {
        16 => lanewise!(shift | a, b | if b > 15 { 0 } else { (a << b) & 0xffff }),
        32 => lanewise!(shift | a, b | if b > 31 { 0 } else { (a << b) & 0xffff_ffff }),
        _ => lanewise!(shift | a, b | if b > 63 { 0 } else { a << b }),
    })
}

/// Shifts by the width or more give 0, or the sign in every bit.
pub(crate) fn shr(type_: Type) -> Option<WideBinary> {
    Some(match type_ {
        Type::S16 => lanewise!(shift | a, b | u64::from((a as i16 >> b.min(15)) as u16)),
        Type::S32 => lanewise!(shift | a, b | u64::from((a as i32 >> b.min(31)) as u32)),
        Type::S64 => lanewise!(shift | a, b | (a as i64 >> b.min(63)).cast_unsigned()),
        _ => lanewise!(shift | a, b | if b > 63 { 0 } else { a >> b }),
    })
}

/// Funnel shifts of `b:a`: the upper word of a left shift, the lower word of a right shift.
pub(crate) fn funnel(left: bool, wrap: bool) -> Ternary {
    fn both(a: u64, b: u64) -> u64 {
        b << 32 | a
    }
    match (left, wrap) {
        (true, true) => |a, b, c| (both(a, b) << (c & 31)) >> 32,
        (true, false) => |a, b, c| ((u128::from(both(a, b)) << c.min(32)) as u64) >> 32,
        (false, true) => |a, b, c| (both(a, b) >> (c & 31)) & 0xffff_ffff,
        (false, false) => |a, b, c| (both(a, b) >> c.min(32)) & 0xffff_ffff,
    }
}

pub(crate) fn popc(_: Type) -> Option<WideUnary> {
    Some(lanewise!(|a| u64::from(a.count_ones())))
}

pub(crate) fn clz(type_: Type) -> Option<WideUnary> {
    Some(match type_.bits() {
        32 => lanewise!(|a| u64::from((a as u32).leading_zeros())),
        _ => lanewise!(|a| u64::from(a.leading_zeros())),
    })
}

pub(crate) fn brev(type_: Type) -> Option<WideUnary> {
    Some(match type_.bits() {
        32 => lanewise!(|a| u64::from((a as u32).reverse_bits())),
        _ => lanewise!(|a| a.reverse_bits()),
    })
}

/// The highest bit that differs from the sign, or all ones where there is none.
fn highest<const BITS: u32, const SIGNED: bool>(a: u64) -> u64 {
    let a = if SIGNED && a >> (BITS - 1) != 0 { !a & mask(BITS) } else { a };
    if a == 0 { 0xffff_ffff } else { u64::from(63 - a.leading_zeros()) }
}

pub(crate) fn bfind(type_: Type, shift_amount: bool) -> Option<Unary> {
    fn amount<const BITS: u32, const SIGNED: bool>(a: u64) -> u64 {
        match highest::<BITS, SIGNED>(a) {
            0xffff_ffff => 0xffff_ffff,
            bit => u64::from(BITS) - 1 - bit,
        }
    }
    Some(match (type_, shift_amount) {
        (Type::U32, false) => highest::<32, false>,
        (Type::S32, false) => highest::<32, true>,
        (Type::U64, false) => highest::<64, false>,
        (Type::S64, false) => highest::<64, true>,
        (Type::U32, true) => amount::<32, false>,
        (Type::S32, true) => amount::<32, true>,
        (Type::U64, true) => amount::<64, false>,
        (Type::S64, true) => amount::<64, true>,
        _ => return None,
    })
}

/// `length` bits from `position` on; signed, with the field's highest bit repeated.
fn extract<const BITS: u32, const SIGNED: bool>(a: u64, position: u64, length: u64) -> u64 {
    let (position, length) = ((position & 0xff) as u32, (length & 0xff) as u32);
    if length == 0 {
        return 0;
    }
    let wide = if SIGNED { sign_extend(a, BITS) } else { a };
    let shifted = if SIGNED {
        (wide.cast_signed() >> position.min(63)).cast_unsigned()
    } else {
        wide.checked_shr(position).unwrap_or(0)
    };
    let field = if length >= 64 {
        shifted
    } else if SIGNED {
        sign_extend(shifted, length)
    } else {
        shifted & mask(length)
    };
    field & mask(BITS)
}

pub(crate) fn bfe(type_: Type) -> Option<Ternary> {
    Some(match type_ {
        Type::U32 => extract::<32, false>,
        Type::S32 => extract::<32, true>,
        Type::U64 => extract::<64, false>,
        Type::S64 => extract::<64, true>,
        _ => return None,
    })
}

/// `b` with `length` bits of `a` inserted at `position`.
fn insert<const BITS: u32>(a: u64, b: u64, position: u64, length: u64) -> u64 {
    let (position, length) = ((position & 0xff) as u32, (length & 0xff) as u32);
    let field = mask(length.min(BITS)).checked_shl(position).unwrap_or(0) & mask(BITS);
    b & !field | a.checked_shl(position).unwrap_or(0) & field
}

pub(crate) fn bfi(type_: Type) -> Option<Quaternary> {
    Some(if type_.bits() == 32 { insert::<32> } else { insert::<64> })
}

/// The position of the `offset`-th set bit, counted from bit `base`, upwards or downwards.
pub(crate) fn find_nth_set(value: u64, base: u64, offset: u64) -> u64 {
    let (base, offset) = (base as u32, offset as i32);
    if offset == 0 {
        return if base < 32 && value >> base & 1 == 1 { u64::from(base) } else { 0xffff_ffff };
    }
    let is_set = |bit: &u32| value >> bit & 1 == 1;
    let nth = offset.unsigned_abs() as usize - 1;
    let found =
        if offset > 0 { (base..32).filter(is_set).nth(nth) } else { (0..=base.min(31)).rev().filter(is_set).nth(nth) };
    u64::from(found.unwrap_or(u32::MAX))
}

/// Any function of three bits: bit `4a + 2b + c` of the table.
pub(crate) fn lop3(a: u64, b: u64, c: u64, table: u64) -> u64 {
    (0..8).filter(|row| table >> row & 1 == 1).fold(0, |result, row| {
        let pick = |value: u64, bit: u64| if row >> bit & 1 == 1 { value } else { !value };
        result | pick(a, 2) & pick(b, 1) & pick(c, 0)
    }) & 0xffff_ffff
}

fn byte(a: u64, b: u64, selector: u64) -> u64 {
    let byte = ((b << 32 | a) >> (8 * (selector & 7))) & 0xff;
    if selector & 8 == 0 { byte } else { 0xff * (byte >> 7) }
}

fn bytes(a: u64, b: u64, selectors: [u64; 4]) -> u64 {
    selectors.iter().rev().fold(0, |word, &selector| word << 8 | byte(a, b, selector))
}

/// Bytes of `b:a`, chosen one by one or by a named pattern.
pub(crate) fn prmt(mode: Option<&str>) -> Option<Ternary> {
    Some(match mode {
        None => |a, b, c| bytes(a, b, [c & 15, c >> 4 & 15, c >> 8 & 15, c >> 12 & 15]),
        Some("f4e") => |a, b, c| bytes(a, b, [0, 1, 2, 3].map(|i| (c & 3) + i)),
        Some("b4e") => |a, b, c| bytes(a, b, [0, 1, 2, 3].map(|i| (8 + (c & 3) - i) & 7)),
        Some("rc8") => |a, b, c| bytes(a, b, [c & 3; 4]),
        Some("ecl") => |a, b, c| bytes(a, b, [0, 1, 2, 3].map(|i| i.max(c & 3))),
        Some("ecr") => |a, b, c| bytes(a, b, [0, 1, 2, 3].map(|i| i.min(c & 3))),
        Some("rc16") => |a, b, c| bytes(a, b, [0, 1, 0, 1].map(|i| (c & 1) * 2 + i)),
        Some(_) => return None,
    })
}

/// A mask of `b` ones, starting at bit `a`.
pub(crate) fn bmsk(clamp: bool) -> Binary {
    if clamp {
        |a, b| (u128::from(mask(b.min(32) as u32)) << a.min(32)) as u64 & 0xffff_ffff
    } else {
        |a, b| mask((b & 31) as u32) << (a & 31) & 0xffff_ffff
    }
}

/// The low `b` bits of `a`, extended.
pub(crate) fn szext(signed: bool, clamp: bool) -> Binary {
    fn extend<const SIGNED: bool, const CLAMP: bool>(a: u64, b: u64) -> u64 {
        let width = if CLAMP { b.min(32) } else { b & 31 } as u32;
        match (width, SIGNED) {
            (0, _) => 0,
            (_, true) => sign_extend(a, width) & 0xffff_ffff,
            (_, false) => a & mask(width),
        }
    }
    match (signed, clamp) {
        (false, false) => extend::<false, false>,
        (false, true) => extend::<false, true>,
        (true, false) => extend::<true, false>,
        (true, true) => extend::<true, true>,
    }
}
