//! Arithmetic on f32 and f64.
#![expect(clippy::cast_possible_truncation, reason = "values are cut to their type's width")]

use super::lanewise::{WideBinary, WideTernary, WideUnary, lanewise};
use super::rounding::{self, NEAREST};
use super::{Binary, Ternary, Unary};
use crate::types::Type;
use rustc_apfloat::ieee::{Double, Single};

/// The rounding, flushing and saturation of an instruction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Style {
    /// A mode of [`rounding`].
    pub(crate) round: u8,
    /// `.ftz`: subnormal operands and results become zero.
    pub(crate) flush: bool,
    /// `.sat`: results lie in 0 to 1.
    pub(crate) saturate: bool,
}

/// The canonical NaN of f32 arithmetic.
pub(crate) const NAN_F32: u64 = 0x7fff_ffff;

pub(crate) fn f32_of(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

pub(crate) fn f64_of(bits: u64) -> f64 {
    f64::from_bits(bits)
}

/// The operand, flushed if required.
pub(crate) fn operand<const FLUSH: bool>(bits: u64) -> f32 {
    let value = f32_of(bits);
    if FLUSH && value.is_subnormal() { 0f32.copysign(value) } else { value }
}

/// The result's bits.
pub(crate) fn result<const FLUSH: bool, const SATURATE: bool>(value: f32) -> u64 {
    if value.is_nan() {
        return if SATURATE { 0 } else { NAN_F32 };
    }
    // clamp would keep a negative zero.
    let value = if SATURATE { if value > 0.0 { value.min(1.0) } else { 0.0 } } else { value };
    let value = if FLUSH && value.is_subnormal() { 0f32.copysign(value) } else { value };
    u64::from(value.to_bits())
}

/// Chooses an f32 function of so many operands by rounding, flushing and saturation.
macro_rules! f32_styles {
    ($style:expr, $operands:tt, $function:ident) => {
        match ($style.round, $style.flush, $style.saturate) {
            (0, false, false) => lanewise!($operands, $function::<0, false, false>),
            (0, false, true) => lanewise!($operands, $function::<0, false, true>),
            (0, true, false) => lanewise!($operands, $function::<0, true, false>),
            (0, true, true) => lanewise!($operands, $function::<0, true, true>),
            (1, false, false) => f32_styles!(@one $operands $function::<1, false, false>),
            (1, false, true) => f32_styles!(@one $operands $function::<1, false, true>),
            (1, true, false) => f32_styles!(@one $operands $function::<1, true, false>),
            (1, true, true) => f32_styles!(@one $operands $function::<1, true, true>),
            (2, false, false) => f32_styles!(@one $operands $function::<2, false, false>),
            (2, false, true) => f32_styles!(@one $operands $function::<2, false, true>),
            (2, true, false) => f32_styles!(@one $operands $function::<2, true, false>),
            (2, true, true) => f32_styles!(@one $operands $function::<2, true, true>),
            (_, false, false) => f32_styles!(@one $operands $function::<3, false, false>),
            (_, false, true) => f32_styles!(@one $operands $function::<3, false, true>),
            (_, true, false) => f32_styles!(@one $operands $function::<3, true, false>),
            (_, true, true) => f32_styles!(@one $operands $function::<3, true, true>),
        }
    };
    (@one 1 $function:expr) => { WideUnary::from($function as Unary) };
    (@one 2 $function:expr) => { WideBinary::from($function as Binary) };
    (@one 3 $function:expr) => { WideTernary::from($function as Ternary) };
}

macro_rules! f64_styles {
    ($style:expr, $operands:tt, $function:ident) => {
        match $style.round {
            0 => lanewise!($operands, $function::<0>),
            1 => f32_styles!(@one $operands $function::<1>),
            2 => f32_styles!(@one $operands $function::<2>),
            _ => f32_styles!(@one $operands $function::<3>),
        }
    };
}

/// An operation on two operands, for f32 and f64.
macro_rules! binary {
    ($name:ident, $f32:ident, $f64:ident, $operator:tt) => {
        fn $f32<const ROUND: u8, const FLUSH: bool, const SATURATE: bool>(a: u64, b: u64) -> u64 {
            let (a, b) = (operand::<FLUSH>(a), operand::<FLUSH>(b));
            let value = if ROUND == NEAREST { a $operator b } else {
                f32_of(rounding::$name::<Single>(u64::from(a.to_bits()), u64::from(b.to_bits()), ROUND))
            };
            result::<FLUSH, SATURATE>(value)
        }

        fn $f64<const ROUND: u8>(a: u64, b: u64) -> u64 {
            if ROUND == NEAREST {
                return (f64_of(a) $operator f64_of(b)).to_bits();
            }
            rounding::$name::<Double>(a, b, ROUND)
        }

        pub(crate) fn $name(type_: Type, style: Style) -> Option<WideBinary> {
            match type_ {
                Type::F32 => Some(f32_styles!(style, 2, $f32)),
                Type::F64 => Some(f64_styles!(style, 2, $f64)),
                _ => None,
            }
        }
    };
}

binary!(add, add_f32, add_f64, +);
binary!(sub, sub_f32, sub_f64, -);
binary!(mul, mul_f32, mul_f64, *);
binary!(div, div_f32, div_f64, /);

/// `a * b + c`, rounded once: what `f32::mul_add` gives, by instructions that every processor has for several lanes.
///
/// The product is exact in f64. The sum is rounded to odd, that is, if it is inexact its last bit is made a 1. Of a number
/// with at least two bits more than f32 the final rounding is then that of the exact sum: S. Boldo and G. Melquiond,
/// "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", IEEE Transactions on Computers 57.
pub(super) fn fused(a: f32, b: f32, c: f32) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    // Knuth's TwoSum: the exact error of the sum; NaN if it is not finite.
    let part = sum - product;
    let error = (product - (sum - part)) + (c - part);
    let bits = sum.to_bits();
    let inexact = error.abs() > 0.0;
    // Away from zero if the error has the sum's sign, otherwise towards it.
    let step = if (error.to_bits() ^ bits) >> 63 == 0 { 1 } else { u64::MAX };
    let odd = if inexact && bits & 1 == 0 { bits.wrapping_add(step) } else { bits };
    f64::from_bits(odd) as f32
}

fn fma_f32<const ROUND: u8, const FLUSH: bool, const SATURATE: bool>(a: u64, b: u64, c: u64) -> u64 {
    let (a, b, c) = (operand::<FLUSH>(a), operand::<FLUSH>(b), operand::<FLUSH>(c));
    let bits = |value: f32| u64::from(value.to_bits());
    let value = if ROUND == NEAREST {
        fused(a, b, c)
    } else {
        f32_of(rounding::fma::<Single>(bits(a), bits(b), bits(c), ROUND))
    };
    result::<FLUSH, SATURATE>(value)
}

fn fma_f64<const ROUND: u8>(a: u64, b: u64, c: u64) -> u64 {
    if ROUND == NEAREST {
        return f64_of(a).mul_add(f64_of(b), f64_of(c)).to_bits();
    }
    rounding::fma::<Double>(a, b, c, ROUND)
}

pub(crate) fn fma(type_: Type, style: Style) -> Option<WideTernary> {
    match type_ {
        Type::F32 => Some(f32_styles!(style, 3, fma_f32)),
        Type::F64 => Some(f64_styles!(style, 3, fma_f64)),
        _ => None,
    }
}

fn rcp_f32<const ROUND: u8, const FLUSH: bool, const SATURATE: bool>(a: u64) -> u64 {
    div_f32::<ROUND, FLUSH, SATURATE>(u64::from(1f32.to_bits()), a)
}

fn rcp_f64<const ROUND: u8>(a: u64) -> u64 {
    div_f64::<ROUND>(1f64.to_bits(), a)
}

pub(crate) fn rcp(type_: Type, style: Style) -> Option<WideUnary> {
    match type_ {
        Type::F32 => Some(f32_styles!(style, 1, rcp_f32)),
        Type::F64 => Some(f64_styles!(style, 1, rcp_f64)),
        _ => None,
    }
}

fn sqrt_f32<const ROUND: u8, const FLUSH: bool, const SATURATE: bool>(a: u64) -> u64 {
    result::<FLUSH, SATURATE>(rounding::sqrt_f32(operand::<FLUSH>(a), ROUND))
}

fn sqrt_f64<const ROUND: u8>(a: u64) -> u64 {
    rounding::sqrt_f64(f64_of(a), ROUND).to_bits()
}

pub(crate) fn sqrt(type_: Type, style: Style) -> Option<WideUnary> {
    match type_ {
        Type::F32 => Some(f32_styles!(style, 1, sqrt_f32)),
        Type::F64 => Some(f64_styles!(style, 1, sqrt_f64)),
        _ => None,
    }
}

/// Only the sign changes; NaNs stay as they are.
pub(crate) fn neg(type_: Type, flush: bool) -> Option<WideUnary> {
    Some(match (type_, flush) {
        (Type::F32, false) => lanewise!(|a| a ^ 1 << 31),
        (Type::F32, true) => lanewise!(|a| u64::from((-operand::<true>(a)).to_bits())),
        (Type::F64, _) => lanewise!(|a| a ^ 1 << 63),
        _ => return None,
    })
}

pub(crate) fn abs(type_: Type, flush: bool) -> Option<WideUnary> {
    Some(match (type_, flush) {
        (Type::F32, false) => lanewise!(|a| a & 0x7fff_ffff),
        (Type::F32, true) => lanewise!(|a| u64::from(operand::<true>(a).abs().to_bits())),
        (Type::F64, _) => lanewise!(|a| a & !(1 << 63)),
        _ => return None,
    })
}

/// The smaller, or the larger; -0 is smaller than +0. A number takes precedence over a NaN, except with `.NaN`.
fn extreme_f32<const LARGER: bool, const FLUSH: bool, const NAN: bool>(a: u64, b: u64) -> u64 {
    let (a, b) = (operand::<FLUSH>(a), operand::<FLUSH>(b));
    if a.is_nan() && b.is_nan() || NAN && (a.is_nan() || b.is_nan()) {
        return NAN_F32;
    }
    let first = b.is_nan() || !a.is_nan() && (a.total_cmp(&b).is_gt() == LARGER);
    u64::from(if first { a } else { b }.to_bits())
}

fn extreme_f64<const LARGER: bool>(a: u64, b: u64) -> u64 {
    let (x, y) = (f64_of(a), f64_of(b));
    if x.is_nan() && y.is_nan() {
        return 0x7fff_ffff_ffff_ffff;
    }
    let first = y.is_nan() || !x.is_nan() && (x.total_cmp(&y).is_gt() == LARGER);
    if first { a } else { b }
}

/// The sign is that of the product. The canonical NaN has none (PTX ISA, `min`: "if (.xorsign && !isNaN(d))").
fn xor_sign<const LARGER: bool, const FLUSH: bool, const NAN: bool>(a: u64, b: u64) -> u64 {
    let magnitude = extreme_f32::<LARGER, FLUSH, NAN>(a & 0x7fff_ffff, b & 0x7fff_ffff);
    if magnitude == NAN_F32 { NAN_F32 } else { magnitude | (a ^ b) & 1 << 31 }
}

macro_rules! extremes {
    ($function:ident, $larger:expr, $flush:expr, $nan:expr) => {
        match ($larger, $flush, $nan) {
            (false, false, false) => lanewise!(2, $function::<false, false, false>),
            (false, false, true) => lanewise!(2, $function::<false, false, true>),
            (false, true, false) => lanewise!(2, $function::<false, true, false>),
            (false, true, true) => lanewise!(2, $function::<false, true, true>),
            (true, false, false) => lanewise!(2, $function::<true, false, false>),
            (true, false, true) => lanewise!(2, $function::<true, false, true>),
            (true, true, false) => lanewise!(2, $function::<true, true, false>),
            (true, true, true) => lanewise!(2, $function::<true, true, true>),
        }
    };
}

/// The variants of `min` and `max`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extreme {
    pub(crate) larger: bool,
    pub(crate) flush: bool,
    pub(crate) nan: bool,
    pub(crate) xor_sign: bool,
}

pub(crate) fn extreme(type_: Type, how: Extreme) -> Option<WideBinary> {
    Some(match (type_, how.larger) {
        (Type::F32, larger) if how.xor_sign => extremes!(xor_sign, larger, how.flush, how.nan),
        (Type::F32, larger) => extremes!(extreme_f32, larger, how.flush, how.nan),
        (Type::F64, false) => lanewise!(2, extreme_f64::<false>),
        (Type::F64, true) => lanewise!(2, extreme_f64::<true>),
        _ => return None,
    })
}

/// The value of `b` with the sign of `a`.
pub(crate) fn copysign(type_: Type) -> Option<WideBinary> {
    Some(match type_ {
        Type::F32 => lanewise!(|a, b| a & 1 << 31 | b & 0x7fff_ffff),
        Type::F64 => lanewise!(|a, b| a & 1 << 63 | b & !(1 << 63)),
        _ => return None,
    })
}

/// `testp.property`
pub(crate) fn test(type_: Type, property: &str) -> Option<Unary> {
    Some(match (type_, property) {
        (Type::F32, "finite") => |a| u64::from(f32_of(a).is_finite()),
        (Type::F32, "infinite") => |a| u64::from(f32_of(a).is_infinite()),
        (Type::F32, "number") => |a| u64::from(!f32_of(a).is_nan()),
        (Type::F32, "notanumber") => |a| u64::from(f32_of(a).is_nan()),
        (Type::F32, "normal") => |a| u64::from(f32_of(a).is_normal()),
        (Type::F32, "subnormal") => |a| u64::from(f32_of(a).is_subnormal()),
        (Type::F64, "finite") => |a| u64::from(f64_of(a).is_finite()),
        (Type::F64, "infinite") => |a| u64::from(f64_of(a).is_infinite()),
        (Type::F64, "number") => |a| u64::from(!f64_of(a).is_nan()),
        (Type::F64, "notanumber") => |a| u64::from(f64_of(a).is_nan()),
        (Type::F64, "normal") => |a| u64::from(f64_of(a).is_normal()),
        (Type::F64, "subnormal") => |a| u64::from(f64_of(a).is_subnormal()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::fused;
    use proptest::prelude::*;

    /// Any bits, and values around the places where rounding is hard.
    fn value() -> impl Strategy<Value = f32> {
        let near = (0u32..256, 0u32..16, any::<bool>()).prop_map(|(exponent, low, negative)| {
            f32::from_bits(u32::from(negative) << 31 | (exponent << 23).wrapping_add(low.wrapping_sub(8)) & 0x7fff_ffff)
        });
        prop_oneof![any::<u32>().prop_map(f32::from_bits), near]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn a_fused_sum_is_rounded_once(a in value(), b in value(), c in value()) {
            let (sum, expected) = (fused(a, b, c), a.mul_add(b, c));
            prop_assert!(sum.to_bits() == expected.to_bits() || sum.is_nan() && expected.is_nan(), "{a:e} {b:e} {c:e}");
            // Products that nearly cancel.
            let c = -a * b;
            let (sum, expected) = (fused(a, b, c), a.mul_add(b, c));
            prop_assert!(sum.to_bits() == expected.to_bits() || sum.is_nan() && expected.is_nan(), "{a:e} {b:e} {c:e}");
        }
    }
}
