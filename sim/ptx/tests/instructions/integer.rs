//! Integer arithmetic.
#![allow(clippy::cast_possible_truncation, clippy::cast_lossless, reason = "values are cut to their type's width")]

use crate::{Case, agrees};

fn s32(value: u64) -> i64 {
    i64::from(value as i32)
}

fn s64(value: u64) -> i128 {
    i128::from(value.cast_signed())
}

fn low24(value: u64) -> i64 {
    i64::from((value as i32) << 8 >> 8)
}

const U16: &[&str] = &["u16", "u16", "u16", "u16"];
const U32: &[&str] = &["u32", "u32", "u32", "u32"];
const U64: &[&str] = &["u64", "u64", "u64", "u64"];

agrees!(
    sums_and_differences_wrap,
    &[
        Case("add.u16 %d, %a, %b;", U16, |a, b, _| a.wrapping_add(b)),
        Case("add.s32 %d, %a, %b;", U32, |a, b, _| a.wrapping_add(b)),
        Case("add.u64 %d, %a, %b;", U64, |a, b, _| a.wrapping_add(b)),
        Case("sub.s16 %d, %a, %b;", U16, |a, b, _| a.wrapping_sub(b)),
        Case("sub.u32 %d, %a, -7;", U32, |a, _, _| a.wrapping_add(7)),
        Case("sub.s64 %d, %a, %b;", U64, |a, b, _| a.wrapping_sub(b)),
        Case("add.sat.s32 %d, %a, %b;", U32, |a, b, _| (s32(a) + s32(b)).clamp(i32::MIN.into(), i32::MAX.into())
            as u64),
        Case("sub.sat.s32 %d, %a, %b;", U32, |a, b, _| (s32(a) - s32(b)).clamp(i32::MIN.into(), i32::MAX.into())
            as u64),
        Case("neg.s32 %d, %a;", U32, |a, _, _| a.wrapping_neg()),
        Case("abs.s64 %d, %a;", U64, |a, _, _| a.cast_signed().unsigned_abs()),
        Case("sad.s32 %d, %a, %b, %c;", U32, |a, b, c| c.wrapping_add((s32(a) - s32(b)).unsigned_abs())),
        Case("sad.u64 %d, %a, %b, %c;", U64, |a, b, c| c.wrapping_add(a.abs_diff(b))),
    ]
);

agrees!(
    products_have_halves,
    &[
        Case("mul.lo.s16 %d, %a, %b;", U16, |a, b, _| a.wrapping_mul(b)),
        Case("mul.lo.u64 %d, %a, %b;", U64, |a, b, _| a.wrapping_mul(b)),
        Case("mul.hi.u16 %d, %a, %b;", U16, |a, b, _| (a * b) >> 16),
        Case("mul.hi.s32 %d, %a, %b;", U32, |a, b, _| ((s32(a) * s32(b)) >> 32) as u64),
        Case("mul.hi.u64 %d, %a, %b;", U64, |a, b, _| ((u128::from(a) * u128::from(b)) >> 64) as u64),
        Case("mul.hi.s64 %d, %a, %b;", U64, |a, b, _| ((s64(a) * s64(b)) >> 64) as u64),
        Case("mul.wide.u16 %d, %a, %b;", &["u32", "u16", "u16"], |a, b, _| a * b),
        Case("mul.wide.s16 %d, %a, %b;", &["u32", "u16", "u16"], |a, b, _| (i64::from(a as i16) * i64::from(b as i16))
            as u64),
        Case("mul.wide.s32 %d, %a, %b;", &["u64", "u32", "u32"], |a, b, _| (s32(a) * s32(b)) as u64),
        Case("mad.lo.u32 %d, %a, %b, %c;", U32, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        Case("mad.hi.s32 %d, %a, %b, %c;", U32, |a, b, c| (((s32(a) * s32(b)) >> 32) as u64).wrapping_add(c)),
        Case("mad.hi.sat.s32 %d, %a, %b, %c;", U32, |a, b, c| (((s32(a) * s32(b)) >> 32) + s32(c))
            .clamp(i32::MIN.into(), i32::MAX.into())
            as u64),
        Case("mad.wide.u32 %d, %a, %b, %c;", &["u64", "u32", "u32", "u64"], |a, b, c| (a * b).wrapping_add(c)),
        Case("mad.wide.s16 %d, %a, %b, %c;", &["u32", "u16", "u16", "u32"], |a, b, c| (i64::from(a as i16)
            * i64::from(b as i16))
        .wrapping_add(c as i64)
            as u64),
        Case("mul24.lo.u32 %d, %a, %b;", U32, |a, b, _| (a & 0xff_ffff) * (b & 0xff_ffff)),
        Case("mul24.hi.s32 %d, %a, %b;", U32, |a, b, _| ((low24(a) * low24(b)) >> 16) as u64),
        Case("mad24.lo.s32 %d, %a, %b, %c;", U32, |a, b, c| ((low24(a) * low24(b)) as u64).wrapping_add(c)),
        Case("mad24.hi.sat.s32 %d, %a, %b, %c;", U32, |a, b, c| (((low24(a) * low24(b)) >> 16) + s32(c))
            .clamp(i32::MIN.into(), i32::MAX.into())
            as u64),
    ]
);

// PTX leaves division by zero open; GPUs give all ones, and the dividend as the remainder.
agrees!(
    division_truncates,
    &[
        Case("div.u32 %d, %a, %b;", U32, |a, b, _| a.checked_div(b).unwrap_or(u64::MAX)),
        Case("div.s32 %d, %a, %b;", U32, |a, b, _| s32(a).checked_div(s32(b)).unwrap_or(-1) as u64),
        Case("div.s64 %d, %a, %b;", U64, |a, b, _| s64(a).checked_div(s64(b)).unwrap_or(-1) as u64),
        Case("rem.u16 %d, %a, %b;", U16, |a, b, _| a.checked_rem(b).unwrap_or(a)),
        Case("rem.s32 %d, %a, %b;", U32, |a, b, _| s32(a).checked_rem(s32(b)).unwrap_or(s32(a)) as u64),
        Case("rem.s32 %d, %a, 4;", U32, |a, _, _| (s32(a) % 4) as u64),
        Case("rem.s64 %d, %a, %b;", U64, |a, b, _| s64(a).checked_rem(s64(b)).unwrap_or(s64(a)) as u64),
    ]
);

agrees!(
    the_smaller_and_the_larger_know_signs,
    &[
        Case("min.u32 %d, %a, %b;", U32, |a, b, _| a.min(b)),
        Case("min.s32 %d, %a, %b;", U32, |a, b, _| s32(a).min(s32(b)) as u64),
        Case("max.s16 %d, %a, %b;", U16, |a, b, _| (a as i16).max(b as i16) as u64),
        Case("max.s64 %d, %a, %b;", U64, |a, b, _| s64(a).max(s64(b)) as u64),
        Case("max.u64 %d, %a, %b;", U64, |a, b, _| a.max(b)),
    ]
);

agrees!(
    carries_go_from_word_to_word,
    &[
        // 128 bits, of which the upper half comes out.
        Case("{ .reg .b64 %l; add.cc.u64 %l, %a, %b; addc.u64 %d, %b, %c; }", U64, |a, b, c| {
            let word = |high: u64, low: u64| u128::from(high) << 64 | u128::from(low);
            (word(b, a).wrapping_add(word(c, b)) >> 64) as u64
        }),
        Case("{ .reg .b32 %l; sub.cc.u32 %l, %a, %b; subc.cc.u32 %l, %b, %c; subc.u32 %d, 0, 0; }", U32, |a, b, c| {
            if (b << 32 | a) < (c << 32 | b) { u64::MAX } else { 0 }
        }),
        Case("{ .reg .b64 %l; mad.lo.cc.u64 %l, %a, %b, %c; madc.hi.u64 %d, %a, %b, 5; }", U64, |a, b, c| {
            (((u128::from(a) * u128::from(b)).wrapping_add(u128::from(c)) >> 64) as u64).wrapping_add(5)
        }),
        Case("{ .reg .b32 %l; mad.lo.cc.s32 %l, %a, %b, %c; madc.hi.s32 %d, %a, %b, 0; }", U32, |a, b, c| ((s32(a)
            * s32(b))
            as u64)
            .wrapping_add(c)
            >> 32),
        Case("{ .reg .b32 %l; add.cc.u32 %l, %a, %b; addc.cc.u32 %l, -1, 0; addc.u32 %d, 7, 0; }", U32, |a, b, _| 7
            + ((a + b) >> 32)),
        // The carry of a subtraction says that nothing was borrowed.
        Case("{ .reg .b32 %l; sub.cc.u32 %l, %a, %b; addc.u32 %d, %c, 0; }", U32, |a, b, c| c + u64::from(a >= b)),
    ]
);

agrees!(
    absolute_differences_are_of_bytes_or_half_words,
    &[
        Case("vabsdiff4.u32.u32.u32 %d, %a, %b, %c;", U32, |a, b, _| (0..4)
            .fold(0, |word, i| word | u64::from(((a >> (8 * i)) as u8).abs_diff((b >> (8 * i)) as u8)) << (8 * i))),
        Case("vabsdiff4.u32.s32.s32.add %d, %a, %b, %c;", U32, |a, b, c| (0..4)
            .fold(c, |sum, i| sum + u64::from(((a >> (8 * i)) as i8).abs_diff((b >> (8 * i)) as i8)))),
        Case("vabsdiff2.s32.s32.s32 %d, %a, %b, %c;", U32, |a, b, _| (0..2).fold(0, |word, i| word
            | u64::from(((a >> (16 * i)) as i16).abs_diff((b >> (16 * i)) as i16)) << (16 * i))),
        Case("vabsdiff2.u32.u32.s32.add %d, %a, %b, %c;", U32, |a, b, c| (0..2).fold(c, |sum, i| {
            let (a, b) = ((a >> (16 * i)) as u16, (b >> (16 * i)) as i16);
            sum + u64::from((i32::from(a) - i32::from(b)).unsigned_abs())
        })),
    ]
);

agrees!(
    dot_products_take_bytes_with_their_signs,
    &[
        Case("dp4a.u32.s32 %d, %a, %b, %c;", U32, |a, b, c| (0..4).fold(c, |sum, i| sum
            .wrapping_add((i64::from((a >> (8 * i)) as u8) * i64::from((b >> (8 * i)) as i8)) as u64))),
        Case("dp4a.s32.s32 %d, %a, %b, %c;", U32, |a, b, c| (0..4).fold(c, |sum, i| sum
            .wrapping_add((i64::from((a >> (8 * i)) as i8) * i64::from((b >> (8 * i)) as i8)) as u64))),
        Case("dp2a.lo.s32.u32 %d, %a, %b, %c;", U32, |a, b, c| (0..2).fold(c, |sum, i| sum
            .wrapping_add((i64::from((a >> (16 * i)) as i16) * i64::from((b >> (8 * i)) as u8)) as u64))),
        Case("dp2a.hi.u32.u32 %d, %a, %b, %c;", U32, |a, b, c| (0..2).fold(c, |sum, i| sum
            .wrapping_add(u64::from((a >> (16 * i)) as u16) * u64::from((b >> (16 + 8 * i)) as u8)))),
    ]
);
