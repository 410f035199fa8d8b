//! Extended-precision arithmetic, with carry in and carry out.
#![expect(clippy::cast_possible_truncation, reason = "values are cut to their type's width")]

use crate::types::Type;

/// From the operands and the carry in to the result and the carry out.
pub(crate) type Carry = fn(u64, u64, u64, bool) -> (u64, bool);

fn cut<const BITS: u32>(sum: u128) -> (u64, bool) {
    ((sum as u64) & super::mask(BITS), sum >> BITS != 0)
}

/// `a + b + carry`
pub(crate) fn add(type_: Type, uses_carry: bool) -> Option<Carry> {
    Some(match (type_.bits(), uses_carry) {
        (32, false) => |a, b, _, _| cut::<32>(u128::from(a) + u128::from(b)),
        (32, true) => |a, b, _, carry| cut::<32>(u128::from(a) + u128::from(b) + u128::from(carry)),
        (64, false) => |a, b, _, _| cut::<64>(u128::from(a) + u128::from(b)),
        (64, true) => |a, b, _, carry| cut::<64>(u128::from(a) + u128::from(b) + u128::from(carry)),
        _ => return None,
    })
}

/// After a subtraction, the carry flag is that of `a + !b + 1`, so it is set if there was no borrow. PTX calls the flag
/// the borrow, but nvcc relies on the former: its division of 128-bit integers adds with carry after a subtraction.
fn difference<const BITS: u32>(a: u64, b: u64, carry: bool) -> (u64, bool) {
    cut::<BITS>(u128::from(a) + u128::from(!b & super::mask(BITS)) + u128::from(carry))
}

/// `a - b` minus the previous borrow.
pub(crate) fn sub(type_: Type, uses_carry: bool) -> Option<Carry> {
    Some(match (type_.bits(), uses_carry) {
        (32, false) => |a, b, _, _| difference::<32>(a, b, true),
        (32, true) => |a, b, _, carry| difference::<32>(a, b, carry),
        (64, false) => |a, b, _, _| difference::<64>(a, b, true),
        (64, true) => |a, b, _, carry| difference::<64>(a, b, carry),
        _ => return None,
    })
}

fn product(type_: Type, a: u64, b: u64) -> u128 {
    let wide = |value| {
        if type_.is_signed() {
            i128::from(super::sign_extend(value, type_.bits()).cast_signed())
        } else {
            i128::from(value)
        }
    };
    // Of an unsigned 64-bit product all 128 bits count; as a signed one it would overflow.
    if type_.is_signed() { (wide(a) * wide(b)).cast_unsigned() } else { u128::from(a) * u128::from(b) }
}

macro_rules! mads {
    ($type:expr, $high:expr, $uses:expr, $($name:ident $bits:literal),+) => {
        match ($type, $high, $uses) {
            $(
                (Type::$name, false, false) => |a, b, c, _| cut::<$bits>(u128::from((product(Type::$name, a, b) as u64) & super::mask($bits)) + u128::from(c)),
                (Type::$name, false, true) => |a, b, c, carry| cut::<$bits>(u128::from((product(Type::$name, a, b) as u64) & super::mask($bits)) + u128::from(c) + u128::from(carry)),
                (Type::$name, true, false) => |a, b, c, _| cut::<$bits>(u128::from(((product(Type::$name, a, b) >> $bits) as u64) & super::mask($bits)) + u128::from(c)),
                (Type::$name, true, true) => |a, b, c, carry| cut::<$bits>(u128::from(((product(Type::$name, a, b) >> $bits) as u64) & super::mask($bits)) + u128::from(c) + u128::from(carry)),
            )+
            _ => return None,
        }
    };
}

/// The low or high half of `a * b`, plus `c` and the carry.
pub(crate) fn mad(type_: Type, high: bool, uses_carry: bool) -> Option<Carry> {
    Some(mads!(type_, high, uses_carry, U32 32, S32 32, U64 64, S64 64))
}
