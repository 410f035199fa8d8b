//! `integers.cu`
#![allow(clippy::cast_possible_truncation, reason = "values are cut to their type's width")]

use crate::common::{Argument, Bench, Plain};
use crate::numbers;

const SOURCE: &str = include_str!("../fixtures/nvrtc12-sm_70/integers.ptx");

const COUNT: usize = 200;

/// Random operands, and the extreme ones in all combinations.
fn operands<T: Plain>(shift: u64) -> (Vec<T>, Vec<T>) {
    let edges = [0, 1, u64::MAX, 1 << 63, (1 << 63) - 1, 1 << 31, (1 << 31) - 1, 1 << 15, 127, 128];
    let pairs = edges.iter().flat_map(|&a| edges.iter().map(move |&b| (a, b)));
    let random = numbers(2 * COUNT);
    let random = random.chunks(2).map(|pair| (pair[0], pair[1] >> (pair[0] % shift)));
    pairs.chain(random).take(COUNT).map(|(a, b)| (T::of(a), T::of(b))).unzip()
}

fn check<T: Plain + PartialEq + std::fmt::Debug, const N: usize>(kernel: &str, model: impl Fn(T, T) -> [T; N]) {
    let mut bench = Bench::new(SOURCE);
    let (a, b) = operands::<T>(8 * T::BYTES as u64);
    let (a_at, b_at) = (bench.array(&a), bench.array(&b));
    let out = bench.room(COUNT * N * T::BYTES);
    bench.run(kernel, 4, 64, &[Argument::P(a_at), Argument::P(b_at), Argument::P(out), Argument::U32(COUNT as u32)]);
    let results = bench.ram.read::<T>(out, COUNT * N);
    for ((result, &a), &b) in results.chunks(N).zip(&a).zip(&b) {
        assert_eq!(result, model(a, b), "{kernel}({a:?}, {b:?})");
    }
}

macro_rules! every_operation {
    ($name:ident, $kernel:literal, $t:ty) => {
        #[test]
        fn $name() {
            check::<$t, 12>($kernel, |a, b| {
                let shift = b as u32 & (<$t>::BITS - 1);
                [
                    a.wrapping_add(b),
                    a.wrapping_sub(b),
                    a.wrapping_mul(b),
                    if b == 0 { 0 } else { a.wrapping_div(b) },
                    if b == 0 { 0 } else { a.wrapping_rem(b) },
                    a & b,
                    a | !b,
                    a ^ b,
                    a << shift,
                    a >> shift,
                    a.min(b),
                    a.wrapping_mul(7).wrapping_add((a > b).into()),
                ]
            });
        }
    };
}

every_operation!(u32_arithmetic_is_that_of_the_cpu, "u32", u32);
every_operation!(s32_arithmetic_is_that_of_the_cpu, "s32", i32);
every_operation!(u64_arithmetic_is_that_of_the_cpu, "u64", u64);
every_operation!(s64_arithmetic_is_that_of_the_cpu, "s64", i64);
every_operation!(u16_arithmetic_is_that_of_the_cpu, "u16", u16);
every_operation!(s16_arithmetic_is_that_of_the_cpu, "s16", i16);
every_operation!(u8_arithmetic_is_that_of_the_cpu, "u8", u8);

#[test]
fn intrinsics_are_what_they_say() {
    check::<u32, 16>("intrinsics", |x, y| {
        let both = u64::from(y) << 32 | u64::from(x);
        let signed = |value: u32| i64::from(value.cast_signed());
        let bytes = |value: u32| value.to_le_bytes().map(u32::from);
        [
            x.count_ones(),
            x.leading_zeros(),
            x.reverse_bits(),
            u32::from_le_bytes([x.to_le_bytes()[0], y.to_le_bytes()[0], x.to_le_bytes()[1], y.to_le_bytes()[1]]),
            ((u64::from(x) * u64::from(y)) >> 32) as u32,
            ((signed(x) * signed(y)) >> 32) as u32,
            (both << (x & 31) >> 32) as u32,
            (both >> (y & 63).min(32)) as u32,
            if x == 0 { 0 } else { x.trailing_zeros() + 1 },
            x.abs_diff(y).wrapping_add(5),
            (x & 0xff_ffff).wrapping_mul(y & 0xff_ffff),
            x.cast_signed().abs_diff(y.cast_signed()).wrapping_add(9),
            bytes(x).iter().zip(bytes(y)).map(|(a, b)| a * b).sum::<u32>() + 3,
            (x & y) | ((!x & 0x0f0f_0f0f) ^ y),
            x.cast_signed().wrapping_abs().cast_unsigned(),
            x >> 5 & 0x3ff,
        ]
    });
}

#[test]
fn wide_products_keep_their_upper_halves() {
    check::<u64, 4>("wide", |x, y| {
        let product = (u128::from(x) * u128::from(y)).wrapping_add(u128::from(x));
        [
            ((u128::from(x) * u128::from(y)) >> 64) as u64,
            ((i128::from(x.cast_signed()) * i128::from(y.cast_signed())) >> 64) as u64,
            u64::from(x.count_ones() + 100 * y.leading_zeros()),
            (product >> 32) as u64,
        ]
    });
}
