//! Conversions.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "values are cut to their type's width"
)]

use crate::{Case, agrees};

fn f32(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

fn f64(bits: u64) -> f64 {
    f64::from_bits(bits)
}

fn bits(value: f32) -> u64 {
    if value.is_nan() { 0x7fff_ffff } else { value.to_bits().into() }
}

agrees!(
    integers_are_cut_and_extended,
    &[
        Case("cvt.u32.u64 %d, %a;", &["u32", "u64"], |a, _, _| a),
        Case("cvt.s64.s32 %d, %a;", &["s64", "s32"], |a, _, _| i64::from(a as i32).cast_unsigned()),
        Case("cvt.u64.s32 %d, %a;", &["u64", "s32"], |a, _, _| i64::from(a as i32).cast_unsigned()),
        Case("cvt.s64.u32 %d, %a;", &["s64", "u32"], |a, _, _| a),
        Case("cvt.s32.s8 %d, %a;", &["s32", "s32"], |a, _, _| i64::from(a as i8).cast_unsigned()),
        Case("cvt.u16.s8 %d, %a;", &["u16", "u16"], |a, _, _| i64::from(a as i8).cast_unsigned()),
        // A register wider than the type: the result is extended as the type says.
        Case("cvt.s8.u32 %d, %a;", &["b32", "u32"], |a, _, _| i64::from(a as i8).cast_unsigned()),
        Case("cvt.u8.s32 %d, %a;", &["b32", "s32"], |a, _, _| a & 0xff),
        Case("cvt.u16.s8 %d, %a;", &["b32", "b32"], |a, _, _| u64::from(i16::from(a as i8).cast_unsigned())),
        Case("cvt.sat.u8.s32 %d, %a;", &["b32", "s32"], |a, _, _| (a as i32).clamp(0, 255) as u64),
        Case("cvt.sat.s16.u32 %d, %a;", &["b16", "u32"], |a, _, _| a.min(32767)),
        Case("cvt.sat.s32.s64 %d, %a;", &["s32", "s64"], |a, _, _| a
            .cast_signed()
            .clamp(i32::MIN.into(), i32::MAX.into())
            as u64),
        Case("cvt.sat.u64.s64 %d, %a;", &["u64", "s64"], |a, _, _| a.cast_signed().max(0) as u64),
    ]
);

// The casts of Rust clamp too; NaN is zero, but the highest bit where 64 bits are involved.
agrees!(
    floats_become_integers_by_clamping,
    &[
        Case("cvt.rzi.s32.f32 %d, %a;", &["s32", "f32"], |a, _, _| u64::from((f32(a) as i32).cast_unsigned())),
        Case("cvt.rzi.u32.f32 %d, %a;", &["u32", "f32"], |a, _, _| u64::from(f32(a) as u32)),
        Case("cvt.rni.s32.f32 %d, %a;", &["s32", "f32"], |a, _, _| u64::from(
            (f32(a).round_ties_even() as i32).cast_unsigned()
        )),
        Case("cvt.rmi.s32.f32 %d, %a;", &["s32", "f32"], |a, _, _| u64::from((f32(a).floor() as i32).cast_unsigned())),
        Case("cvt.rpi.ftz.u32.f32 %d, %a;", &["u32", "f32"], |a, _, _| u64::from(if f32(a).is_subnormal() {
            0
        } else {
            f32(a).ceil() as u32
        })),
        Case("cvt.rzi.u8.f32 %d, %a;", &["b32", "f32"], |a, _, _| u64::from(f32(a) as u8)),
        Case("cvt.rzi.s64.f32 %d, %a;", &["s64", "f32"], |a, _, _| if f32(a).is_nan() {
            1 << 63
        } else {
            (f32(a) as i64).cast_unsigned()
        }),
        Case("cvt.rzi.u64.f64 %d, %a;", &["u64", "f64"], |a, _, _| if f64(a).is_nan() {
            1 << 63
        } else {
            f64(a) as u64
        }),
        Case("cvt.rni.s64.f64 %d, %a;", &["s64", "f64"], |a, _, _| if f64(a).is_nan() {
            1 << 63
        } else {
            (f64(a).round_ties_even() as i64).cast_unsigned()
        }),
        Case("cvt.rzi.s32.f64 %d, %a;", &["s32", "f64"], |a, _, _| if f64(a).is_nan() {
            1 << 31
        } else {
            u64::from((f64(a) as i32).cast_unsigned())
        }),
        // `.sat` changes nothing, not even for NaN.
        Case("cvt.rzi.sat.s32.f64 %d, %a;", &["s32", "f64"], |a, _, _| if f64(a).is_nan() {
            1 << 31
        } else {
            u64::from((f64(a) as i32).cast_unsigned())
        }),
        Case("cvt.rzi.sat.s64.f32 %d, %a;", &["s64", "f32"], |a, _, _| if f32(a).is_nan() {
            1 << 63
        } else {
            (f32(a) as i64).cast_unsigned()
        }),
    ]
);

/// The f32 not above, or not below, an integer.
fn f32_beside(value: u64, up: bool) -> u64 {
    let near = value as f32;
    let (wide, exact) = (near as u128, u128::from(value));
    bits(if up && wide < exact {
        near.next_up()
    } else if !up && wide > exact {
        near.next_down()
    } else {
        near
    })
}

agrees!(
    integers_become_floats_by_rounding,
    &[
        Case("cvt.rn.f32.s32 %d, %a;", &["f32", "s32"], |a, _, _| bits(a as i32 as f32)),
        Case("cvt.rn.f32.u64 %d, %a;", &["f32", "u64"], |a, _, _| bits(a as f32)),
        Case("cvt.rz.f32.u64 %d, %a;", &["f32", "u64"], |a, _, _| f32_beside(a, false)),
        Case("cvt.rp.f32.u64 %d, %a;", &["f32", "u64"], |a, _, _| f32_beside(a, true)),
        Case("cvt.rn.f64.s64 %d, %a;", &["f64", "s64"], |a, _, _| (a.cast_signed() as f64).to_bits()),
        Case("cvt.rn.f64.u32 %d, %a;", &["f64", "u32"], |a, _, _| (a as f64).to_bits()),
        Case("cvt.rn.f32.s8 %d, %a;", &["f32", "b16"], |a, _, _| bits(f32::from(a as i8))),
    ]
);

/// The f32 towards zero of an f64.
fn truncated(value: f64) -> f32 {
    let near = value as f32;
    if f64::from(near).abs() > value.abs() { if near > 0.0 { near.next_down() } else { near.next_up() } } else { near }
}

agrees!(
    floats_change_their_width,
    &[
        Case("cvt.f64.f32 %d, %a; setp.nan.f64 %p, %d, %d; selp.b64 %d, 1, %d, %p;", &["f64", "f32"], |a, _, _| {
            if f32(a).is_nan() { 1 } else { f64::from(f32(a)).to_bits() }
        }),
        Case("cvt.rn.f32.f64 %d, %a;", &["f32", "f64"], |a, _, _| bits(f64(a) as f32)),
        Case("cvt.rz.f32.f64 %d, %a;", &["f32", "f64"], |a, _, _| bits(if f64(a).is_finite() {
            truncated(f64(a))
        } else {
            f64(a) as f32
        })),
        Case("cvt.rn.sat.f32.f64 %d, %a;", &["f32", "f64"], |a, _, _| bits(if f64(a) > 0.0 {
            (f64(a) as f32).min(1.0)
        } else {
            0.0
        })),
        Case("cvt.rmi.f32.f32 %d, %a;", &["f32", "f32"], |a, _, _| bits(f32(a).floor())),
        Case("cvt.rni.f32.f32 %d, %a;", &["f32", "f32"], |a, _, _| bits(f32(a).round_ties_even())),
        Case("cvt.sat.f32.f32 %d, %a;", &["f32", "f32"], |a, _, _| bits(if f32(a) > 0.0 {
            f32(a).min(1.0)
        } else {
            0.0
        })),
        Case("cvt.ftz.f32.f32 %d, %a;", &["f32", "f32"], |a, _, _| bits(if f32(a).is_subnormal() {
            0f32.copysign(f32(a))
        } else {
            f32(a)
        })),
    ]
);

agrees!(
    moves_pack_and_unpack,
    &[
        Case("mov.b64 %d, {%a, %b};", &["b64", "b32", "b32"], |a, b, _| b << 32 | a),
        Case("mov.b32 %d, {%a, %b};", &["b32", "b16", "b16"], |a, b, _| b << 16 | a),
        Case("mov.b64 {%d, _}, %a;", &["b32", "b64"], |a, _, _| a),
        Case("mov.b64 {_, %d}, %a;", &["b32", "b64"], |a, _, _| a >> 32),
        Case(
            "{ .reg .b16 %h<4>; mov.b64 {%h0, %h1, %h2, %h3}, %a; mov.b64 %d, {%h3, %h2, %h1, %h0}; }",
            &["b64", "b64"],
            |a, _, _| (0..4).fold(0, |d, i| d << 16 | a >> (16 * i) & 0xffff)
        ),
    ]
);
