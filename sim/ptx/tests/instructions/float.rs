//! Floating-point arithmetic.
#![allow(clippy::cast_possible_truncation, reason = "values are cut to their type's width")]

use crate::{Case, agrees, check};

fn f32(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

fn f64(bits: u64) -> f64 {
    f64::from_bits(bits)
}

/// NaNs of f32 have one form.
fn bits(value: f32) -> u64 {
    if value.is_nan() { 0x7fff_ffff } else { value.to_bits().into() }
}

fn flush(value: f32) -> f32 {
    if value.is_subnormal() { 0f32.copysign(value) } else { value }
}

fn saturate(value: f32) -> f32 {
    if value > 0.0 { value.min(1.0) } else { 0.0 }
}

const F32: &[&str] = &["f32", "f32", "f32", "f32"];
const F64: &[&str] = &["f64", "f64", "f64", "f64"];

agrees!(
    f32_is_that_of_ieee_754,
    &[
        Case("add.f32 %d, %a, %b;", F32, |a, b, _| bits(f32(a) + f32(b))),
        Case("sub.rn.f32 %d, %a, %b;", F32, |a, b, _| bits(f32(a) - f32(b))),
        Case("mul.f32 %d, %a, 0f40490FDB;", F32, |a, _, _| bits(f32(a) * std::f32::consts::PI)),
        Case("div.rn.f32 %d, %a, %b;", F32, |a, b, _| bits(f32(a) / f32(b))),
        Case("fma.rn.f32 %d, %a, %b, %c;", F32, |a, b, c| bits(f32(a).mul_add(f32(b), f32(c)))),
        Case("mad.rn.f32 %d, %a, %b, %c;", F32, |a, b, c| bits(f32(a).mul_add(f32(b), f32(c)))),
        Case("sqrt.rn.f32 %d, %a;", F32, |a, _, _| bits(f32(a).sqrt())),
        Case("rcp.rn.f32 %d, %a;", F32, |a, _, _| bits(1.0 / f32(a))),
        Case("neg.f32 %d, %a;", F32, |a, _, _| a ^ 0x8000_0000),
        Case("abs.f32 %d, %a;", F32, |a, _, _| a & 0x7fff_ffff),
        Case("copysign.f32 %d, %a, %b;", F32, |a, b, _| f32(b).copysign(f32(a)).to_bits().into()),
    ]
);

agrees!(
    f32_flushes_and_saturates,
    &[
        Case("add.ftz.f32 %d, %a, %b;", F32, |a, b, _| bits(flush(flush(f32(a)) + flush(f32(b))))),
        Case("mul.ftz.f32 %d, %a, %b;", F32, |a, b, _| bits(flush(flush(f32(a)) * flush(f32(b))))),
        Case("add.sat.f32 %d, %a, %b;", F32, |a, b, _| bits(saturate(f32(a) + f32(b)))),
        Case("fma.rn.ftz.sat.f32 %d, %a, %b, %c;", F32, |a, b, c| bits(flush(saturate(
            flush(f32(a)).mul_add(flush(f32(b)), flush(f32(c)))
        )))),
        Case("div.approx.ftz.f32 %d, %a, %b;", F32, |a, b, _| bits(flush(flush(f32(a)) / flush(f32(b))))),
    ]
);

/// The smaller or larger value; -0 is smaller than +0.
fn extreme(a: f32, b: f32, larger: bool) -> f32 {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if a == b => {
            if a.is_sign_negative() == larger {
                b
            } else {
                a
            }
        }
        _ => {
            if larger {
                a.max(b)
            } else {
                a.min(b)
            }
        }
    }
}

/// The sign is that of the product; a NaN has none.
fn with_sign_of_both(magnitude: f32, sign: u64) -> u64 {
    if magnitude.is_nan() { 0x7fff_ffff } else { u64::from(magnitude.to_bits()) | sign & 0x8000_0000 }
}

agrees!(
    f32_extremes_know_nan_and_zero,
    &[
        Case("min.f32 %d, %a, %b;", F32, |a, b, _| bits(extreme(f32(a), f32(b), false))),
        Case("max.f32 %d, %a, %b;", F32, |a, b, _| bits(extreme(f32(a), f32(b), true))),
        Case("max.NaN.f32 %d, %a, %b;", F32, |a, b, _| if f32(a).is_nan() || f32(b).is_nan() {
            0x7fff_ffff
        } else {
            bits(extreme(f32(a), f32(b), true))
        }),
        Case("min.xorsign.abs.f32 %d, %a, %b;", F32, |a, b, _| with_sign_of_both(
            extreme(f32(a).abs(), f32(b).abs(), false),
            a ^ b
        )),
        Case("max.NaN.xorsign.abs.f32 %d, %a, %b;", F32, |a, b, _| if f32(a).is_nan() || f32(b).is_nan() {
            0x7fff_ffff
        } else {
            with_sign_of_both(extreme(f32(a).abs(), f32(b).abs(), true), a ^ b)
        }),
        Case("min.ftz.f32 %d, %a, %b;", F32, |a, b, _| bits(extreme(flush(f32(a)), flush(f32(b)), false))),
        Case("min.f64 %d, %a, %b; setp.nan.f64 %p, %d, %d; selp.b64 %d, 1, %d, %p;", F64, |a, b, _| {
            let (x, y) = (f64(a), f64(b));
            match (x.is_nan(), y.is_nan()) {
                (true, true) => 1,
                (true, _) => b,
                (_, true) => a,
                _ if x == y => {
                    if x.is_sign_negative() {
                        a
                    } else {
                        b
                    }
                }
                _ => f64::to_bits(x.min(y)),
            }
        }),
    ]
);

/// A NaN of f64 becomes 1, as its bits are not specified.
fn quiet(value: f64) -> u64 {
    if value.is_nan() { 1 } else { f64::to_bits(value) }
}

macro_rules! f64_case {
    ($text:literal, $model:expr) => {
        Case(concat!($text, " setp.nan.f64 %p, %d, %d; selp.b64 %d, 1, %d, %p;"), F64, $model)
    };
}

agrees!(
    f64_is_that_of_ieee_754,
    &[
        f64_case!("add.f64 %d, %a, %b;", |a, b, _| quiet(f64(a) + f64(b))),
        f64_case!("sub.f64 %d, %a, %b;", |a, b, _| quiet(f64(a) - f64(b))),
        f64_case!("mul.f64 %d, %a, 0d3FE0000000000000;", |a, _, _| quiet(f64(a) * 0.5)),
        f64_case!("div.rn.f64 %d, %a, %b;", |a, b, _| quiet(f64(a) / f64(b))),
        f64_case!("fma.rn.f64 %d, %a, %b, %c;", |a, b, c| quiet(f64(a).mul_add(f64(b), f64(c)))),
        f64_case!("sqrt.rn.f64 %d, %a;", |a, _, _| quiet(f64(a).sqrt())),
        f64_case!("rcp.rn.f64 %d, %a;", |a, _, _| quiet(1.0 / f64(a))),
    ]
);

/// The neighbours of a value that is not an exact result: the largest f32 not above it and the smallest not below.
fn around(exact: f64) -> (f32, f32) {
    let near = exact as f32;
    match f64::from(near).partial_cmp(&exact) {
        Some(std::cmp::Ordering::Less) => (near, near.next_up()),
        Some(std::cmp::Ordering::Greater) => (near.next_down(), near),
        _ => (near, near),
    }
}

/// Both operands finite and not too far from 1, so that f64 holds products exactly and comparisons decide roots.
fn tame(value: u64) -> f32 {
    f32::from_bits(0x3f00_0000 + (value as u32 & 0x00ff_ffff))
}

agrees!(
    directed_rounding_stays_on_its_side,
    &[
        Case(
            "and.b32 %a, %a, 0xffffff; add.u32 %a, %a, 0x3f000000; and.b32 %b, %b, 0xffffff; add.u32 %b, %b, 0x3f000000; mul.rm.f32 %d, %a, %b;",
            F32,
            |a, b, _| bits(around(f64::from(tame(a)) * f64::from(tame(b))).0)
        ),
        Case(
            "and.b32 %a, %a, 0xffffff; add.u32 %a, %a, 0x3f000000; and.b32 %b, %b, 0xffffff; add.u32 %b, %b, 0x3f000000; mul.rp.f32 %d, %a, %b;",
            F32,
            |a, b, _| bits(around(f64::from(tame(a)) * f64::from(tame(b))).1)
        ),
        Case(
            "and.b32 %a, %a, 0xffffff; add.u32 %a, %a, 0x3f000000; and.b32 %b, %b, 0xffffff; add.u32 %b, %b, 0x3f000000; add.rz.f32 %d, %a, %b;",
            F32,
            |a, b, _| bits(around(f64::from(tame(a)) + f64::from(tame(b))).0)
        ),
        Case("and.b32 %a, %a, 0xffffff; add.u32 %a, %a, 0x3f000000; sqrt.rp.f32 %d, %a;", F32, |a, _, _| {
            let (x, root) = (f64::from(tame(a)), tame(a).sqrt());
            bits(if f64::from(root) * f64::from(root) < x { root.next_up() } else { root })
        }),
        Case("and.b32 %a, %a, 0xffffff; add.u32 %a, %a, 0x3f000000; sqrt.rz.f32 %d, %a;", F32, |a, _, _| {
            let (x, root) = (f64::from(tame(a)), tame(a).sqrt());
            bits(if f64::from(root) * f64::from(root) > x { root.next_down() } else { root })
        }),
    ]
);

#[test]
fn roots_of_f64_round_up_and_down() {
    // 2 has no root in f64; 4 has one; of the smallest number it is exact.
    let (root, tiny) = (2f64.sqrt(), f64::from_bits(1));
    assert!(root * root > 2.0);
    let case = |text, model| Case(text, F64, model);
    let operands = [[2f64.to_bits(), 0, 0], [4f64.to_bits(), 0, 0], [tiny.to_bits(), 0, 0]];
    check(&[case("sqrt.rp.f64 %d, %a;", |a, _, _| f64(a).sqrt().to_bits())], &operands);
    let down = |a, _, _| if f64(a) == 2.0 { f64(a).sqrt().next_down() } else { f64(a).sqrt() }.to_bits();
    check(&[case("sqrt.rm.f64 %d, %a;", down), case("sqrt.rz.f64 %d, %a;", down)], &operands);
}

agrees!(
    approximations_are_close,
    &[
        Case("rcp.approx.f32 %d, %a;", F32, |a, _, _| bits(1.0 / f32(a))),
        Case("sqrt.approx.f32 %d, %a;", F32, |a, _, _| bits(f32(a).sqrt())),
        Case(
            "and.b32 %a, %a, 0xffffff; add.u32 %a, %a, 0x3f000000; sin.approx.f32 %d, %a; cos.approx.f32 %a, %a; mul.f32 %d, %d, %d; fma.rn.f32 %d, %a, %a, %d; sub.f32 %d, %d, 0f3F800000; abs.f32 %d, %d; setp.lt.f32 %p, %d, 0f35000000; selp.b32 %d, 1, 0, %p;",
            F32,
            |_, _, _| 1
        ),
        Case(
            "and.b32 %a, %a, 0xffffff; add.u32 %a, %a, 0x3f000000; lg2.approx.f32 %d, %a; ex2.approx.f32 %d, %d; div.rn.f32 %d, %d, %a; sub.f32 %d, %d, 0f3F800000; abs.f32 %d, %d; setp.lt.f32 %p, %d, 0f35000000; selp.b32 %d, 1, 0, %p;",
            F32,
            |_, _, _| 1
        ),
        Case("rcp.approx.ftz.f64 %d, %a; and.b64 %d, %d, 0xffffffff;", F64, |_, _, _| 0),
    ]
);

agrees!(
    properties_are_tested,
    &[
        Case("testp.finite.f32 %p, %a; selp.b32 %d, 1, 0, %p;", F32, |a, _, _| f32(a).is_finite().into()),
        Case("testp.normal.f64 %p, %a; selp.b64 %d, 1, 0, %p;", F64, |a, _, _| f64(a).is_normal().into()),
        Case("testp.subnormal.f32 %p, %a; selp.b32 %d, 1, 0, %p;", F32, |a, _, _| f32(a).is_subnormal().into()),
        Case("testp.notanumber.f64 %p, %a; selp.b64 %d, 1, 0, %p;", F64, |a, _, _| f64(a).is_nan().into()),
    ]
);
