//! The approximate functions. PTX bounds their error; these are more exact than a GPU's, so results differ in the last
//! places.
#![expect(clippy::cast_possible_truncation, reason = "computed in f64 and rounded once")]

use super::Unary;
use super::float::{f64_of, operand, result};

macro_rules! f32_function {
    ($name:ident, |$x:ident| $body:expr) => {
        pub(crate) fn $name(flush: bool) -> Unary {
            fn value($x: f64) -> f64 {
                $body
            }
            match flush {
                false => |a| result::<false, false>(value(f64::from(operand::<false>(a))) as f32),
                true => |a| result::<true, false>(value(f64::from(operand::<true>(a))) as f32),
            }
        }
    };
}

f32_function!(rcp, |x| 1.0 / x);
f32_function!(sqrt, |x| x.sqrt());
f32_function!(rsqrt, |x| 1.0 / x.sqrt());
f32_function!(sin, |x| x.sin());
f32_function!(cos, |x| x.cos());
f32_function!(lg2, |x| x.log2());
f32_function!(ex2, |x| x.exp2());
f32_function!(tanh, |x| x.tanh());

/// Without `.ftz`, PTX guarantees almost full precision.
pub(crate) fn rsqrt_f64(a: u64) -> u64 {
    (1.0 / f64_of(a).sqrt()).to_bits()
}

/// With `.ftz`, the lower half of an approximate f64 is zero.
fn upper_half(value: f64) -> u64 {
    value.to_bits() & !0xffff_ffff
}

fn flushed(a: u64) -> f64 {
    let value = f64_of(a);
    if value.is_subnormal() { 0f64.copysign(value) } else { value }
}

pub(crate) fn rcp_f64_upper(a: u64) -> u64 {
    upper_half(1.0 / flushed(a))
}

pub(crate) fn rsqrt_f64_upper(a: u64) -> u64 {
    upper_half(1.0 / flushed(a).sqrt())
}
