//! Comparisons and choices.
#![allow(clippy::cast_possible_truncation, reason = "values are cut to their type's width")]

use crate::{Case, agrees};

fn f32(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

fn f64(bits: u64) -> f64 {
    f64::from_bits(bits)
}

const U32: &[&str] = &["u32", "u32", "u32", "u32"];
const U64: &[&str] = &["u32", "u64", "u64"];

/// A comparison into `%p`, which becomes 1 or 0.
macro_rules! setp {
    ($text:literal, $types:expr, $model:expr) => {
        Case(concat!("setp.", $text, " %p, %a, %b; selp.u32 %d, 1, 0, %p;"), $types, |a, b, _| {
            let model: fn(u64, u64) -> bool = $model;
            model(a, b).into()
        })
    };
}

agrees!(
    integers_compare_with_and_without_signs,
    &[
        setp!("eq.s32", U32, |a, b| a == b),
        setp!("ne.b64", U64, |a, b| a != b),
        setp!("lt.s32", U32, |a, b| (a as i32) < b as i32),
        setp!("lt.u32", U32, |a, b| a < b),
        setp!("lo.u32", U32, |a, b| a < b),
        setp!("hs.u64", U64, |a, b| a >= b),
        setp!("le.s64", U64, |a, b| a.cast_signed() <= b.cast_signed()),
        setp!("gt.s16", &["u32", "u16", "u16"], |a, b| (a as i16) > b as i16),
        setp!("ge.u16", &["u32", "u16", "u16"], |a, b| a >= b),
    ]
);

agrees!(
    floats_compare_ordered_and_unordered,
    &[
        setp!("eq.f32", U32, |a, b| f32(a) == f32(b)),
        setp!("ne.f32", U32, |a, b| f32(a) < f32(b) || f32(a) > f32(b)),
        setp!("lt.f32", U32, |a, b| f32(a) < f32(b)),
        setp!("le.f64", U64, |a, b| f64(a) <= f64(b)),
        setp!("gt.f64", U64, |a, b| f64(a) > f64(b)),
        setp!("ge.f32", U32, |a, b| f32(a) >= f32(b)),
        setp!("equ.f32", U32, |a, b| !(f32(a) < f32(b) || f32(a) > f32(b))),
        setp!("neu.f64", U64, |a, b| f64(a) != f64(b)),
        setp!("ltu.f32", U32, |a, b| !matches!(f32(a).partial_cmp(&f32(b)), Some(o) if o.is_ge())),
        setp!("leu.f32", U32, |a, b| !matches!(f32(a).partial_cmp(&f32(b)), Some(o) if o.is_gt())),
        setp!("gtu.f64", U64, |a, b| !matches!(f64(a).partial_cmp(&f64(b)), Some(o) if o.is_le())),
        setp!("geu.f64", U64, |a, b| !matches!(f64(a).partial_cmp(&f64(b)), Some(o) if o.is_lt())),
        setp!("num.f32", U32, |a, b| !f32(a).is_nan() && !f32(b).is_nan()),
        setp!("nan.f64", U64, |a, b| f64(a).is_nan() || f64(b).is_nan()),
        setp!("lt.ftz.f32", U32, |a, b| {
            let flush = |value: f32| if value.is_subnormal() { 0.0 } else { value };
            flush(f32(a)) < flush(f32(b))
        }),
    ]
);

agrees!(
    predicates_combine_and_come_in_pairs,
    &[
        Case(
            "setp.ne.u32 %q, %c, 0; setp.lt.and.s32 %p|%q, %a, %b, !%q; selp.u32 %d, 2, 0, %p; @%q add.u32 %d, %d, 1;",
            U32,
            |a, b, c| {
                let less = (a as i32) < b as i32;
                u64::from(less && c == 0) * 2 + u64::from(!less && c == 0)
            }
        ),
        Case(
            "setp.ne.u32 %q, %c, 0; setp.eq.xor.u32 %p, %a, %b, %q; @!%p mov.u32 %d, 7; @%p mov.u32 %d, 9;",
            U32,
            |a, b, c| if (a == b) != (c != 0) { 9 } else { 7 }
        ),
        Case(
            "setp.lt.u32 %p, %a, %b; setp.lt.u32 %q, %b, %c; and.pred %p, %p, %q; not.pred %p, %p; selp.u32 %d, %a, %b, %p;",
            U32,
            |a, b, c| if a < b && b < c { b } else { a }
        ),
    ]
);

agrees!(
    values_are_set_and_selected,
    &[
        Case("set.lt.u32.s32 %d, %a, %b;", U32, |a, b, _| if (a as i32) < b as i32 { u64::MAX } else { 0 }),
        Case("set.gt.f32.f32 %d, %a, %b;", U32, |a, b, _| if f32(a) > f32(b) { 0x3f80_0000 } else { 0 }),
        Case("set.neu.s32.f64 %d, %a, %b;", U64, |a, b, _| if f64(a) == f64(b) { 0 } else { u64::MAX }),
        Case("slct.u32.s32 %d, %a, %b, %c;", U32, |a, b, c| if c as i32 >= 0 { a } else { b }),
        Case("slct.u32.f32 %d, %a, %b, %c;", U32, |a, b, c| if f32(c) >= 0.0 { a } else { b }),
        Case("slct.ftz.u32.f32 %d, %a, %b, %c;", U32, |a, b, c| if f32(c) >= 0.0 || f32(c).is_subnormal() {
            a
        } else {
            b
        }),
    ]
);
