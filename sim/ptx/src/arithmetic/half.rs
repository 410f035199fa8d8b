//! Arithmetic on f16 and bf16, alone and in pairs.
#![expect(clippy::cast_possible_truncation, reason = "values are cut to their type's width")]

use super::comparison::Comparison;
use super::rounding::{self, NEAREST};
use super::{Binary, Ternary, Unary};
use crate::types::Type;
use half::{bf16, f16};
use rustc_apfloat::ieee::{BFloat, Half};

/// The canonical NaN of both formats.
const NAN: u16 = 0x7fff;

/// One of the two 16-bit formats. f32 holds the sum and the product of two values exactly enough for a single
/// rounding; fused operations go through rustc_apfloat.
trait Narrow {
    fn widen(bits: u16) -> f32;
    fn narrow(value: f32) -> u16;
    fn fma(a: u16, b: u16, c: u16) -> u16;
    /// The exponent's bits.
    const EXPONENT: u16;
}

struct F16;
struct BF16;

impl Narrow for F16 {
    fn widen(bits: u16) -> f32 {
        f16::from_bits(bits).to_f32()
    }
    fn narrow(value: f32) -> u16 {
        f16::from_f32(value).to_bits()
    }
    fn fma(a: u16, b: u16, c: u16) -> u16 {
        rounding::fma::<Half>(a.into(), b.into(), c.into(), NEAREST) as u16
    }
    const EXPONENT: u16 = 0x7c00;
}

impl Narrow for BF16 {
    fn widen(bits: u16) -> f32 {
        bf16::from_bits(bits).to_f32()
    }
    fn narrow(value: f32) -> u16 {
        bf16::from_f32(value).to_bits()
    }
    fn fma(a: u16, b: u16, c: u16) -> u16 {
        rounding::fma::<BFloat>(a.into(), b.into(), c.into(), NEAREST) as u16
    }
    const EXPONENT: u16 = 0x7f80;
}

fn is_nan<N: Narrow>(bits: u16) -> bool {
    bits & 0x7fff > N::EXPONENT
}

fn flush<N: Narrow, const FLUSH: bool>(bits: u16) -> u16 {
    if FLUSH && bits & N::EXPONENT == 0 { bits & 0x8000 } else { bits }
}

fn finish<N: Narrow, const FLUSH: bool, const SATURATE: bool>(bits: u16) -> u16 {
    let value = N::widen(bits);
    match bits {
        _ if is_nan::<N>(bits) => {
            if SATURATE {
                0
            } else {
                NAN
            }
        }
        _ if SATURATE && value <= 0.0 => 0,
        _ if SATURATE && value >= 1.0 => N::narrow(1.0),
        _ => flush::<N, FLUSH>(bits),
    }
}

/// `f(a, b, c)` on each half of a pair, or on a single value, above which the result is zero.
fn each(pair: bool, f: impl Fn(u16, u16, u16) -> u16, a: u64, b: u64, c: u64) -> u64 {
    let low = u64::from(f(a as u16, b as u16, c as u16));
    if !pair {
        return low;
    }
    u64::from(f((a >> 16) as u16, (b >> 16) as u16, (c >> 16) as u16)) << 16 | low
}

/// The modifiers of a function.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Style {
    pub(crate) flush: bool,
    pub(crate) saturate: bool,
}

/// One function for each format, single and in pairs, and each style.
macro_rules! styles {
    ($type:expr, $style:expr, $function:ident) => {{
        macro_rules! of {
            ($n:ty, $pair:literal) => {
                match ($style.flush, $style.saturate) {
                    (false, false) => $function::<$n, $pair, false, false>,
                    (false, true) => $function::<$n, $pair, false, true>,
                    (true, false) => $function::<$n, $pair, true, false>,
                    (true, true) => $function::<$n, $pair, true, true>,
                }
            };
        }
        match $type {
            Type::F16 => Some(of!(F16, false)),
            Type::F16x2 => Some(of!(F16, true)),
            Type::BF16 => Some(of!(BF16, false)),
            Type::BF16x2 => Some(of!(BF16, true)),
            _ => None,
        }
    }};
}

macro_rules! arithmetic {
    ($name:ident, $operator:tt) => {
        pub(crate) fn $name(type_: Type, style: Style) -> Option<Binary> {
            fn function<N: Narrow, const PAIR: bool, const F: bool, const S: bool>(a: u64, b: u64) -> u64 {
                let one = |a, b, _| {
                    let value = N::widen(flush::<N, F>(a)) $operator N::widen(flush::<N, F>(b));
                    finish::<N, F, S>(N::narrow(value))
                };
                each(PAIR, one, a, b, 0)
            }
            styles!(type_, style, function)
        }
    };
}

arithmetic!(add, +);
arithmetic!(sub, -);
arithmetic!(mul, *);

fn fused<N: Narrow, const F: bool, const S: bool>(a: u16, b: u16, c: u16) -> u16 {
    finish::<N, F, S>(N::fma(flush::<N, F>(a), flush::<N, F>(b), flush::<N, F>(c)))
}

pub(crate) fn fma(type_: Type, style: Style) -> Option<Ternary> {
    fn function<N: Narrow, const PAIR: bool, const F: bool, const S: bool>(a: u64, b: u64, c: u64) -> u64 {
        each(PAIR, fused::<N, F, S>, a, b, c)
    }
    styles!(type_, style, function)
}

/// `.relu`: negative results are zero, and NaN stays NaN. It excludes `.sat`.
pub(crate) fn fma_relu(type_: Type, style: Style) -> Option<Ternary> {
    fn function<N: Narrow, const PAIR: bool, const F: bool, const S: bool>(a: u64, b: u64, c: u64) -> u64 {
        let one = |a, b, c| match fused::<N, F, S>(a, b, c) {
            negative if negative & 0x8000 != 0 => 0,
            result => result,
        };
        each(PAIR, one, a, b, c)
    }
    if style.saturate {
        return None;
    }
    styles!(type_, style, function)
}

/// Ignores the style's `saturate`.
pub(crate) fn neg(type_: Type, style: Style) -> Option<Unary> {
    fn function<N: Narrow, const PAIR: bool, const F: bool, const S: bool>(a: u64) -> u64 {
        each(PAIR, |a, _, _| flush::<N, F>(a) ^ 0x8000, a, 0, 0)
    }
    styles!(type_, style, function)
}

pub(crate) fn abs(type_: Type, style: Style) -> Option<Unary> {
    fn function<N: Narrow, const PAIR: bool, const F: bool, const S: bool>(a: u64) -> u64 {
        each(PAIR, |a, _, _| flush::<N, F>(a) & 0x7fff, a, 0, 0)
    }
    styles!(type_, style, function)
}

fn extreme<N: Narrow, const LARGER: bool, const WINS: bool>(a: u16, b: u16) -> u16 {
    let (a_nan, b_nan) = (is_nan::<N>(a), is_nan::<N>(b));
    if a_nan && b_nan || WINS && (a_nan || b_nan) {
        return NAN;
    }
    let first = b_nan || !a_nan && (N::widen(a).total_cmp(&N::widen(b)).is_gt() == LARGER);
    if first { a } else { b }
}

/// As for f32; the style's `saturate` stands for `.NaN`.
pub(crate) fn min(type_: Type, style: Style) -> Option<Binary> {
    fn function<N: Narrow, const PAIR: bool, const F: bool, const W: bool>(a: u64, b: u64) -> u64 {
        each(PAIR, |a, b, _| extreme::<N, false, W>(flush::<N, F>(a), flush::<N, F>(b)), a, b, 0)
    }
    styles!(type_, style, function)
}

/// As for f32; the style's `saturate` stands for `.NaN`.
pub(crate) fn max(type_: Type, style: Style) -> Option<Binary> {
    fn function<N: Narrow, const PAIR: bool, const F: bool, const W: bool>(a: u64, b: u64) -> u64 {
        each(PAIR, |a, b, _| extreme::<N, true, W>(flush::<N, F>(a), flush::<N, F>(b)), a, b, 0)
    }
    styles!(type_, style, function)
}

macro_rules! function {
    ($name:ident, |$x:ident| $body:expr) => {
        pub(crate) fn $name(type_: Type, style: Style) -> Option<Unary> {
            fn function<N: Narrow, const PAIR: bool, const F: bool, const S: bool>(a: u64) -> u64 {
                let one = |a, _, _| {
                    let $x = f64::from(N::widen(flush::<N, F>(a)));
                    finish::<N, F, S>(N::narrow($body as f32))
                };
                each(PAIR, one, a, 0, 0)
            }
            styles!(type_, style, function)
        }
    };
}

function!(ex2, |x| x.exp2());
function!(tanh, |x| x.tanh());

/// Compares two values, or the low halves of two pairs.
pub(crate) fn compare(type_: Type, comparison: Comparison, flushing: bool) -> Option<Binary> {
    macro_rules! of {
        ($n:ty, $($name:ident),+) => {
            match (comparison, flushing) {
                $(
                    (Comparison::$name, false) => |a, b| u64::from(Comparison::$name.holds(f64::from(<$n>::widen(a as u16)), f64::from(<$n>::widen(b as u16)))),
                    (Comparison::$name, true) => |a, b| u64::from(Comparison::$name.holds(f64::from(<$n>::widen(flush::<$n, true>(a as u16))), f64::from(<$n>::widen(flush::<$n, true>(b as u16))))),
                )+
                _ => return None,
            }
        };
    }
    Some(match type_ {
        Type::F16 | Type::F16x2 => of!(F16, Eq, Ne, Lt, Le, Gt, Ge, Equ, Neu, Ltu, Leu, Gtu, Geu, Num, Nan),
        Type::BF16 | Type::BF16x2 => of!(BF16, Eq, Ne, Lt, Le, Gt, Ge, Equ, Neu, Ltu, Leu, Gtu, Geu, Num, Nan),
        _ => return None,
    })
}

/// A value as f64, exactly.
pub(crate) fn to_f64(type_: Type, bits: u64) -> f64 {
    let bits = bits as u16;
    f64::from(if type_ == Type::BF16 { BF16::widen(bits) } else { F16::widen(bits) })
}
