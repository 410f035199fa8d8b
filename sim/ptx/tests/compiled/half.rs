//! `half.cu`

use crate::common::{Argument, Bench};
use crate::numbers;
use half::{bf16, f16};

const SOURCE: &str = include_str!("../fixtures/nvrtc12-sm_70/half.ptx");

const COUNT: u32 = 300;

/// Bits of 16-bit numbers: random ones, and the edges.
fn bits(seed: usize) -> Vec<u16> {
    let edges = [0u16, 0x8000, 0x3c00, 0xbc00, 0x7bff, 0xfbff, 0x0001, 0x03ff, 0x0400, 0x3555, 0x5640, 0xd640];
    let random = numbers(COUNT as usize + seed);
    edges
        .into_iter()
        .chain(random.iter().skip(seed).map(|bits| bits.to_le_bytes()).map(|b| u16::from_le_bytes([b[0], b[1]])))
        .take(COUNT as usize)
        .collect()
}

/// The nearest f16, which `half` finds for f32 only: the best of its neighbours.
fn narrow(value: f64) -> f16 {
    #[expect(clippy::cast_possible_truncation, reason = "its neighbours are tried")]
    let near = f16::from_f32(value as f32);
    if !near.is_finite() || !value.is_finite() {
        return near;
    }
    let bits = near.to_bits();
    let distance = |bits: &u16| ((f16::from_bits(*bits).to_f64() - value).abs(), bits & 1);
    let candidates = [bits, bits.wrapping_sub(1), bits.wrapping_add(1)];
    let finite = candidates.into_iter().filter(|&bits| f16::from_bits(bits).is_finite());
    let best = finite.min_by(|a, b| distance(a).partial_cmp(&distance(b)).expect("finite"));
    f16::from_bits(best.unwrap_or(bits))
}

fn same(a: u16, b: u16) -> bool {
    let nan = |bits: u16| f16::from_bits(bits).is_nan();
    a == b || nan(a) && nan(b)
}

#[test]
fn f16_arithmetic_rounds_once() {
    let mut bench = Bench::new(SOURCE);
    let (a, b) = (bits(0), bits(7));
    let (a_at, b_at) = (bench.array(&a), bench.array(&b));
    let out = bench.room(16 * a.len());
    bench.run("f16", 5, 64, &[Argument::P(a_at), Argument::P(b_at), Argument::P(out), Argument::U32(COUNT)]);
    let results = bench.ram.read::<u16>(out, 8 * a.len());
    for ((result, &a), &b) in results.chunks(8).zip(&a).zip(&b) {
        let (x, y) = (f16::from_bits(a), f16::from_bits(b));
        let (p, q) = (x.to_f64(), y.to_f64());
        let truncated = if q.is_nan() { 0.0 } else { q.clamp(-2_147_483_648.0, 2_147_483_647.0).trunc() };
        let expected = [
            narrow(p + q),
            narrow(p - q),
            narrow(p * q),
            // Nearer than f64 needs no more than this for halves: the product has 22 bits.
            narrow(p.mul_add(q, p)),
            if p < q { x } else { y },
            -x,
            f16::from_f32(x.to_f32() * 3.0),
            narrow(truncated + 0.0),
        ];
        for (index, (&got, expected)) in result.iter().zip(expected).enumerate() {
            let expected = expected.to_bits();
            assert!(same(got, expected), "f16({p}, {q})[{index}] is {got:#x}, not {expected:#x}");
        }
    }
}

#[test]
fn pairs_of_f16_are_computed_side_by_side() {
    let mut bench = Bench::new(SOURCE);
    let (a, b) = (bits(3), bits(11));
    let (a_at, b_at) = (bench.array(&a), bench.array(&b));
    let out = bench.room(4 * a.len());
    bench.run("f16x2", 3, 64, &[Argument::P(a_at), Argument::P(b_at), Argument::P(out), Argument::U32(COUNT / 2)]);
    let results = bench.ram.read::<u16>(out, 2 * a.len());
    for (index, (&a, &b)) in a.iter().zip(&b).enumerate() {
        let (x, y) = (f16::from_bits(a), f16::from_bits(b));
        let sum = narrow(x.to_f64() + y.to_f64());
        let fused = narrow(x.to_f64().mul_add(y.to_f64(), sum.to_f64()));
        let shifted = if index % 2 == 0 { x.to_f32() + 1.0 } else { y.to_f32() - 1.0 };
        let at = index / 2 * 4 + index % 2;
        let got = (results[at], results[at + 2]);
        assert!(same(got.0, fused.to_bits()), "fma of {x} and {y} is {:#x}, not {:#x}", got.0, fused.to_bits());
        assert!(same(got.1, f16::from_f32(shifted).to_bits()), "{x}, {y}: {:#x}", got.1);
    }
}

#[test]
fn bf16_is_the_upper_half_of_f32() {
    let mut bench = Bench::new(SOURCE);
    let numbers =
        |bits: Vec<u16>| bits.into_iter().map(|bits| bf16::from_f32(f16::from_bits(bits).to_f32())).collect::<Vec<_>>();
    let (a, b) = (numbers(bits(5)), numbers(bits(9)));
    let raw = |values: &[bf16]| values.iter().map(|value| value.to_bits()).collect::<Vec<u16>>();
    let (a_at, b_at) = (bench.array(&raw(&a)), bench.array(&raw(&b)));
    let out = bench.room(8 * a.len());
    bench.run("bf16", 5, 64, &[Argument::P(a_at), Argument::P(b_at), Argument::P(out), Argument::U32(COUNT)]);
    let results = bench.ram.read::<f32>(out, 2 * a.len());
    for ((result, &a), &b) in results.chunks(2).zip(&a).zip(&b) {
        let (x, y) = (a.to_f32(), b.to_f32());
        let expected = [x + y, bf16::from_f32(x * y).to_f32()];
        for (got, expected) in result.iter().zip(expected) {
            assert!(*got == expected || got.is_nan() && expected.is_nan(), "{x}, {y}: {got}, not {expected}");
        }
    }
}
