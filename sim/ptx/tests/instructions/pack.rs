//! `cvt.pack`, and conversions to tf32.

use crate::{Case, agrees};

/// A 32-bit integer clamped to a type, and its low bits.
fn saturated(value: u64, least: i64, most: i64, bits: u32) -> u64 {
    let value = i64::from(u32::try_from(value & 0xffff_ffff).unwrap_or(0).cast_signed());
    let clamped = value.clamp(least, most);
    clamped.cast_unsigned() & ((1 << bits) - 1)
}

fn both(a: u64, b: u64, least: i64, most: i64, bits: u32) -> u64 {
    saturated(a, least, most, bits) * (1 << bits) + saturated(b, least, most, bits)
}

const WORDS: &[&str] = &["b32", "b32", "b32", "b32"];

agrees!(
    packs_agree,
    &[
        Case("cvt.pack.sat.u16.s32 %d, %a, %b;", &["b32", "b32", "b32"], |a, b, _| both(a, b, 0, 65535, 16)),
        Case("cvt.pack.sat.s16.s32 %d, %a, %b;", &["b32", "b32", "b32"], |a, b, _| both(a, b, -32768, 32767, 16)),
        Case("cvt.pack.sat.u8.s32.b32 %d, %a, %b, %c;", WORDS, |a, b, c| (c & 0xffff) << 16 | both(a, b, 0, 255, 8)),
        Case("cvt.pack.sat.s8.s32.b32 %d, %a, %b, %c;", WORDS, |a, b, c| (c & 0xffff) << 16 | both(a, b, -128, 127, 8)),
        Case("cvt.pack.sat.s4.s32.b32 %d, %a, %b, %c;", WORDS, |a, b, c| (c & 0xff_ffff) << 8 | both(a, b, -8, 7, 4)),
        Case("cvt.pack.sat.u2.s32.b32 %d, %a, %b, %c;", WORDS, |a, b, c| (c & 0xfff_ffff) << 4 | both(a, b, 0, 3, 2)),
    ]
);

/// The nearest multiple of one unit of tf32, ties away from zero, by arithmetic in f64. Numbers here are finite and their
/// result too.
fn to_tf32(bits: u64) -> u64 {
    let value = f32::from_bits(u32::try_from(bits).unwrap_or(0));
    // 10 bits of mantissa: the unit is 2^(e-10), and that of subnormal numbers 2^-136.
    let exponent = i32::try_from(bits >> 23 & 0xff).unwrap_or(0).max(1) - 127;
    let unit = 2f64.powi(exponent - 10);
    let rounded = (f64::from(value) / unit).round() * unit;
    #[expect(clippy::cast_possible_truncation, reason = "the result has 11 significant bits")]
    let narrow = rounded as f32;
    u64::from(narrow.copysign(value).to_bits())
}

/// Any bits, with the largest exponents left out.
fn finite(bits: u64) -> u64 {
    if bits & 0x7f00_0000 == 0x7f00_0000 { bits & 0x80ff_ffff } else { bits }
}

agrees!(
    conversions_to_tf32_agree,
    &[Case(
        "{ .reg .pred %large; .reg .b32 %e; and.b32 %e, %a, 0x7f000000; setp.eq.u32 %large, %e, 0x7f000000;
         @%large and.b32 %a, %a, 0x80ffffff; cvt.rna.tf32.f32 %d, %a; }",
        &["b32", "b32"],
        |a, _, _| to_tf32(finite(a))
    )]
);

#[test]
fn conversions_to_tf32_know_infinity_and_nan() {
    let of = |text: &str, a: u32| crate::evaluate(text, &["b32", "b32"], &[[u64::from(a), 0, 0]])[0];
    for (text, a, d) in [
        ("cvt.rna.tf32.f32 %d, %a;", 0x7f80_0000, 0x7f80_0000),
        ("cvt.rna.tf32.f32 %d, %a;", 0xff7f_ffff, 0xff80_0000),
        ("cvt.rna.tf32.f32 %d, %a;", 0xff80_0001, 0x7fff_ffff),
    ] {
        assert_eq!(of(text, a), d, "{text} of {a:#x}");
    }
}
