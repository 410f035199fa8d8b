//! The arithmetic of instructions, as functions over register values.
//!
//! A value is the low bits of a `u64`, zero above its type's width; a predicate is 0 or 1. Each function is for
//! one type and one set of modifiers, so that execution is one call through a pointer.

pub(crate) mod approximate;
pub(crate) mod atomic;
pub(crate) mod bits;
pub(crate) mod carry;
pub(crate) mod compare;
pub(crate) mod comparison;
pub(crate) mod convert;
pub(crate) mod dot;
pub(crate) mod float;
pub(crate) mod half;
pub(crate) mod integer;
pub(crate) mod lanewise;
pub(crate) mod matrix;
pub(crate) mod mbarrier;
pub(crate) mod pack;
pub(crate) mod rounding;
pub(crate) mod tf32;

pub(crate) type Unary = fn(u64) -> u64;
pub(crate) type Binary = fn(u64, u64) -> u64;
pub(crate) type Ternary = fn(u64, u64, u64) -> u64;
pub(crate) type Quaternary = fn(u64, u64, u64, u64) -> u64;

/// Makes a wide function of one expression for each integer type of 16 bits and more: in it, the operands have the type,
/// `T` is the type and `U` its unsigned one. Bits count as unsigned.
macro_rules! for_integers {
    ($type:expr, |$($operand:ident),+| $body:expr) => {{
        use crate::types::Type;
        macro_rules! of {
            ($t:ty, $u:ty) => {
                $crate::arithmetic::lanewise::lanewise!(|$($operand),+| {
                    #[allow(dead_code, reason = "not every expression names its type")]
                    type T = $t;
                    type U = $u;
                    $(let $operand = $operand as T;)+
                    let result: T = $body;
                    u64::from(result as U)
                })
            };
        }
        match $type {
            Type::B16 | Type::U16 => Some(of!(u16, u16)),
            Type::B32 | Type::U32 => Some(of!(u32, u32)),
            Type::B64 | Type::U64 => Some(of!(u64, u64)),
            Type::S16 => Some(of!(i16, u16)),
            Type::S32 => Some(of!(i32, u32)),
            Type::S64 => Some(of!(i64, u64)),
            _ => None,
        }
    }};
}
pub(crate) use for_integers;

/// A mask of the width's bits.
pub(crate) fn mask(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// Sign-extends a value of `from` bits to 64 bits.
pub(crate) fn sign_extend(value: u64, from: u32) -> u64 {
    let shift = 64 - from.clamp(1, 64);
    ((value << shift).cast_signed() >> shift).cast_unsigned()
}
