//! Products of matrices by warps, and the instructions that move their fragments, against the same computed here.
//!
//! The fragments of `mma` are built by the formulas of the PTX ISA, "Matrix fragments for mma.…" (9.7.14.5).

#![expect(clippy::expect_used, reason = "a test that panics fails")]

#[path = "../common/mod.rs"]
mod common;

mod mma;
mod moves;
mod refused;
mod wmma;

use half::{bf16, f16};

/// Numbers that look random and are the same every time.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    /// A multiple of 1/16 from -4 to 4: sums of their products are exact in f32.
    pub(crate) fn small(&mut self) -> f64 {
        f64::from(u8::try_from(self.next() % 129).expect("it is small")) / 16.0 - 4.0
    }

    /// From -1 to 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        f64::from(u32::try_from(self.next() & 0xffff_ffff).expect("32 bits")) / f64::from(1u32 << 31) - 1.0
    }
}

/// The bits of a value in an element of that type.
#[expect(clippy::cast_possible_truncation, reason = "the value is rounded to the type")]
pub(crate) fn encode(type_: &str, value: f64) -> u64 {
    match type_ {
        "f16" => u64::from(f16::from_f64(value).to_bits()),
        "bf16" => u64::from(bf16::from_f64(value).to_bits()),
        "tf32" | "f32" => u64::from((value as f32).to_bits()),
        "f64" => value.to_bits(),
        "s32" => u64::from((value as i32).cast_unsigned()),
        "s8" | "u8" => (value as i64).cast_unsigned() & 0xff,
        _ => (value as i64).cast_unsigned() & 0xf,
    }
}

pub(crate) fn decode(type_: &str, bits: u64) -> f64 {
    let low = u32::try_from(bits & 0xffff_ffff).expect("32 bits");
    let half = u16::try_from(bits & 0xffff).expect("16 bits");
    match type_ {
        "f16" => f16::from_bits(half).to_f64(),
        "bf16" => bf16::from_bits(half).to_f64(),
        // The low 13 bits do not count.
        "tf32" => f64::from(f32::from_bits(low & 0xffff_e000)),
        "f32" => f64::from(f32::from_bits(low)),
        "f64" => f64::from_bits(bits),
        "s32" => f64::from(low.cast_signed()),
        "s8" => f64::from(bits.to_le_bytes()[0].cast_signed()),
        "u8" => f64::from(bits.to_le_bytes()[0]),
        "s4" => f64::from((bits.to_le_bytes()[0] << 4).cast_signed() >> 4),
        _ => f64::from(bits.to_le_bytes()[0] & 15),
    }
}

pub(crate) fn bits_of(type_: &str) -> u32 {
    match type_ {
        "s4" | "u4" => 4,
        "s8" | "u8" => 8,
        "f16" | "bf16" => 16,
        "f64" => 64,
        _ => 32,
    }
}

/// A random element of that type.
pub(crate) fn element(type_: &str, random: &mut Random) -> u64 {
    match type_ {
        "s8" | "u8" | "s4" | "u4" => random.next() & ((1 << bits_of(type_)) - 1),
        "s32" => (random.next() % 2001 + 0xffff_fc18) & 0xffff_ffff,
        _ => encode(type_, random.small()),
    }
}

/// A matrix of elements' bits.
pub(crate) type Matrix = Vec<Vec<u64>>;

pub(crate) fn matrix(rows: usize, columns: usize, mut element: impl FnMut() -> u64) -> Matrix {
    (0..rows).map(|_| (0..columns).map(|_| element()).collect()).collect()
}

/// The exact `a * b + c`, in f64.
pub(crate) fn product(types: [&str; 3], a: &Matrix, b: &Matrix, c: &Matrix) -> Vec<Vec<f64>> {
    let sum = |row: usize, column: usize| {
        let terms = (0..b.len()).map(|k| decode(types[0], a[row][k]) * decode(types[1], b[k][column]));
        terms.sum::<f64>() + decode(types[2], c[row][column])
    };
    (0..c.len()).map(|row| (0..c[0].len()).map(|column| sum(row, column)).collect()).collect()
}
