//! f16 and bf16.
#![allow(clippy::cast_possible_truncation, reason = "values are cut to their type's width")]

use crate::{Case, agrees};
use half::{bf16, f16};

fn h(bits: u64) -> f32 {
    f16::from_bits(bits as u16).to_f32()
}

fn b(bits: u64) -> f32 {
    bf16::from_bits(bits as u16).to_f32()
}

fn to_h(value: f32) -> u64 {
    if value.is_nan() { 0x7fff } else { f16::from_f32(value).to_bits().into() }
}

fn to_b(value: f32) -> u64 {
    if value.is_nan() { 0x7fff } else { bf16::from_f32(value).to_bits().into() }
}

/// On both halves.
fn pair(a: u64, b: u64, f: impl Fn(u64, u64) -> u64) -> u64 {
    f(a & 0xffff, b & 0xffff) | f(a >> 16 & 0xffff, b >> 16 & 0xffff) << 16
}

const H: &[&str] = &["b16", "b16", "b16", "b16"];
const H2: &[&str] = &["b32", "b32", "b32", "b32"];

agrees!(
    f16_rounds_once,
    &[
        Case("add.f16 %d, %a, %b;", H, |a, b, _| to_h(h(a) + h(b))),
        Case("sub.rn.f16 %d, %a, %b;", H, |a, b, _| to_h(h(a) - h(b))),
        Case("mul.f16 %d, %a, %b;", H, |a, b, _| to_h(h(a) * h(b))),
        Case("mul.sat.f16 %d, %a, %b;", H, |a, b, _| {
            let p = h(a) * h(b);
            if p > 0.0 { to_h(p.min(1.0)) } else { 0 }
        }),
        Case("mov.b16 %c, 0x3c00; fma.rn.f16 %d, %a, %b, %c;", H, |a, b, _| fused(a, b, 0x3c00)),
        Case("neg.f16 %d, %a;", H, |a, _, _| a ^ 0x8000),
        Case("abs.f16 %d, %a;", H, |a, _, _| a & 0x7fff),
        Case("add.f16x2 %d, %a, %b;", H2, |a, b, _| pair(a, b, |a, b| to_h(h(a) + h(b)))),
        Case("mul.rn.f16x2 %d, %a, %b;", H2, |a, b, _| pair(a, b, |a, b| to_h(h(a) * h(b)))),
    ]
);

/// Exact for all but sums whose parts lie more than 2^53 apart, where the smaller decides ties only.
fn fused(a: u64, b: u64, c: u64) -> u64 {
    let (product, addend) = (f64::from(h(a)) * f64::from(h(b)), f64::from(h(c)));
    let sum = product + addend;
    if sum.is_nan() {
        return 0x7fff;
    }
    // Round to odd at 53 bits, so that the second rounding sees what was lost.
    let part = sum - product;
    let lost = (product - (sum - part)) + (addend - part);
    let odd = if lost == 0.0 || !sum.is_finite() || sum.to_bits() & 1 == 1 {
        sum
    } else if (lost > 0.0) == (sum > 0.0) {
        f64::from_bits(sum.to_bits() + 1)
    } else {
        f64::from_bits(sum.to_bits() - 1)
    };
    let single = odd as f32;
    let exact = f64::from(single) == odd;
    let single = if exact || single.to_bits() & 1 == 1 || !single.is_finite() {
        single
    } else if f64::from(single).abs() < odd.abs() {
        f32::from_bits(single.to_bits() + 1)
    } else {
        f32::from_bits(single.to_bits() - 1)
    };
    to_h(single)
}

agrees!(
    bf16_rounds_once,
    &[
        Case("add.bf16 %d, %a, %b;", H, |x, y, _| to_b(b(x) + b(y))),
        Case("mul.bf16 %d, %a, %b;", H, |x, y, _| to_b(b(x) * b(y))),
        Case("sub.bf16x2 %d, %a, %b;", H2, |x, y, _| pair(x, y, |x, y| to_b(b(x) - b(y)))),
        Case("mov.b16 %c, 0x3f80; fma.rn.bf16 %d, %a, %c, %b;", H, |x, y, _| to_b(b(x) + b(y))),
        Case("neg.bf16x2 %d, %a;", H2, |x, _, _| x ^ 0x8000_8000),
    ]
);

/// The PTX ISA: "clamps the result to 0 if negative. NaN result is converted to canonical NaN."
fn clamped(bits: u64) -> u64 {
    if bits & 0x8000 == 0 { bits } else { 0 }
}

/// Subnormal inputs and results are zero.
fn flushed(bits: u64) -> u64 {
    if bits & 0x7c00 == 0 { bits & 0x8000 } else { bits }
}

agrees!(
    fused_results_are_clamped_by_relu,
    &[
        Case("mov.b16 %c, 0x3c00; fma.rn.relu.f16 %d, %a, %b, %c;", H, |a, b, _| clamped(fused(a, b, 0x3c00))),
        Case("mov.b16 %c, 0x3c00; fma.rn.ftz.relu.f16 %d, %a, %b, %c;", H, |a, b, _| clamped(flushed(fused(
            flushed(a),
            flushed(b),
            0x3c00
        )))),
        Case("mov.b32 %c, 0x3c003c00; fma.rn.relu.f16x2 %d, %a, %b, %c;", H2, |a, b, _| pair(a, b, |a, b| clamped(
            fused(a, b, 0x3c00)
        ))),
        Case("mov.b16 %c, 0x3f80; fma.rn.relu.bf16 %d, %a, %c, %b;", H, |x, y, _| clamped(to_b(b(x) + b(y)))),
        Case("mov.b32 %c, 0x3f803f80; fma.rn.relu.bf16x2 %d, %a, %c, %b;", H2, |x, y, _| pair(x, y, |x, y| clamped(
            to_b(b(x) + b(y))
        ))),
    ]
);

agrees!(
    halves_compare_and_choose,
    &[
        Case("setp.lt.f16 %p, %a, %b; selp.b16 %d, 1, 0, %p;", H, |a, b, _| (h(a) < h(b)).into()),
        Case("setp.neu.bf16 %p, %a, %b; selp.b16 %d, 1, 0, %p;", H, |x, y, _| (b(x) != b(y)).into()),
        Case("setp.gt.f16x2 %p|%q, %a, %b; selp.b32 %d, 1, 0, %p; @%q add.u32 %d, %d, 2;", H2, |a, b, _| u64::from(
            h(a) > h(b)
        ) + 2
            * u64::from(h(a >> 16) > h(b >> 16))),
        Case("set.le.f16x2.f16x2 %d, %a, %b;", H2, |a, b, _| pair(a, b, |a, b| if h(a) <= h(b) { 0x3c00 } else { 0 })),
        Case("set.neu.bf16x2.bf16x2 %d, %a, %b;", H2, |x, y, _| pair(x, y, |x, y| if b(x) != b(y) {
            0x3f80
        } else {
            0
        })),
        Case("set.eq.u32.f16x2 %d, %a, %b;", H2, |a, b, _| pair(a, b, |a, b| if h(a) == h(b) { 0xffff } else { 0 })),
        Case("setp.lt.u32 %p, %a, %b; set.gt.xor.s32.bf16x2 %d, %a, %b, !%p;", H2, |x, y, _| pair(x, y, |v, w| {
            if (b(v) > b(w)) != (x >= y) { 0xffff } else { 0 }
        })),
        Case("max.NaN.f16 %d, %a, %b;", H, |a, b, _| if h(a).is_nan() || h(b).is_nan() {
            0x7fff
        } else if h(a).total_cmp(&h(b)).is_gt() {
            a
        } else {
            b
        }),
        Case("min.bf16 %d, %a, %b;", H, |x, y, _| match (b(x).is_nan(), b(y).is_nan()) {
            (true, true) => 0x7fff,
            (true, _) => y,
            (_, true) => x,
            _ =>
                if b(x).total_cmp(&b(y)).is_lt() {
                    x
                } else {
                    y
                },
        }),
    ]
);

agrees!(
    halves_convert,
    &[
        Case("cvt.f32.f16 %d, %a;", &["b32", "b16"], |a, _, _| if h(a).is_nan() {
            0x7fff_ffff
        } else {
            h(a).to_bits().into()
        }),
        Case("cvt.f32.bf16 %d, %a;", &["b32", "b16"], |a, _, _| if b(a).is_nan() {
            0x7fff_ffff
        } else {
            b(a).to_bits().into()
        }),
        Case("cvt.rn.f16.f32 %d, %a;", &["b16", "b32"], |a, _, _| to_h(f32::from_bits(a as u32))),
        Case("cvt.rn.bf16.f32 %d, %a;", &["b16", "b32"], |a, _, _| to_b(f32::from_bits(a as u32))),
        Case("cvt.rz.f16.f32 %d, %a;", &["b16", "b32"], |a, _, _| towards_zero(f32::from_bits(a as u32))),
        Case("cvt.rn.f16.s16 %d, %a;", H, |a, _, _| to_h(f32::from(a as i16))),
        Case("cvt.rzi.s32.f16 %d, %a;", &["b32", "b16"], |a, _, _| u64::from((h(a) as i32).cast_unsigned())),
        Case("cvt.rn.f16x2.f32 %d, %a, %b;", H2, |a, b, _| to_h(f32::from_bits(a as u32)) << 16
            | to_h(f32::from_bits(b as u32))),
        Case("cvt.rn.relu.bf16x2.f32 %d, %a, %b;", H2, |a, b, _| relu(a) << 16 | relu(b)),
    ]
);

fn towards_zero(value: f32) -> u64 {
    let near = f16::from_f32(value);
    let bits = near.to_bits();
    if value.is_nan() {
        return 0x7fff;
    }
    u64::from(if near.to_f32().abs() > value.abs() { bits - 1 } else { bits })
}

fn relu(bits: u64) -> u64 {
    let value = f32::from_bits(bits as u32);
    if value <= 0.0 { 0 } else { to_b(value) }
}
