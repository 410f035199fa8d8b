//! `nvcc/tensor.cu`: tensor cores, and asynchronous copies with barriers in shared memory.

use crate::common::{Argument, Bench};
use crate::numbers;
use half::f16;

const SOURCE: &str = include_str!("../fixtures/nvcc13-sm_80/tensor.ptx");

#[test]
fn a_product_by_tiles_is_the_product() {
    let mut bench = Bench::new(SOURCE);
    let n = 64usize;
    // Multiples of 1/8, whose products' sums are exact in f32.
    let small = |bits: &u64| f32::from(bits.to_le_bytes()[3] % 33) / 8.0 - 2.0;
    let values: Vec<f32> = numbers(2 * n * n).iter().map(small).collect();
    let halves: Vec<u16> = values.iter().map(|value| f16::from_f32(*value).to_bits()).collect();
    let (a, b) = values.split_at(n * n);
    let at = [&halves[..n * n], &halves[n * n..]].map(|matrix| bench.array(matrix));
    let out = bench.room(4 * n * n);
    let arguments = [Argument::P(at[0]), Argument::P(at[1]), Argument::P(out), Argument::U32(64)];
    let launch = bench.launch("product", [4, 4, 1], [32, 1, 1], &arguments);
    ptx::run(&launch, &bench.ram).unwrap_or_else(|fault| panic!("{fault}"));
    let sum = |row: usize, column: usize| (0..n).map(|k| a[row * n + k] * b[column * n + k]).sum::<f32>();
    let expected: Vec<f32> = (0..n * n).map(|at| sum(at / n, at % n) * 0.5).collect();
    assert_eq!(bench.ram.read::<f32>(out, n * n), expected);
}

#[test]
fn samples_of_8_bits_are_correlated() {
    let mut bench = Bench::new(SOURCE);
    let samples: Vec<u8> = numbers(16 * 32).iter().map(|bits| bits.to_le_bytes()[5]).collect();
    let at = bench.array(&samples);
    let sums: Vec<i32> = (0..256).map(|at| at * 1000 - 100_000).collect();
    let out = bench.array(&sums);
    bench.run("correlate", 1, 32, &[at, out].map(Argument::P));
    let sample = |receiver: usize, time: usize| i32::from(samples[receiver * 32 + time].cast_signed());
    let expected: Vec<i32> = (0..256)
        .map(|at| sums[at] + (0..32).map(|time| sample(at / 16, time) * sample(at % 16, time)).sum::<i32>())
        .collect();
    assert_eq!(bench.ram.read::<i32>(out, 256), expected);
}

#[test]
fn asynchronous_copies_arrive_at_a_barrier_in_shared_memory() {
    let mut bench = Bench::new(SOURCE);
    let words: Vec<i32> = (0..128).map(|at| at * at).collect();
    let at = bench.array(&words);
    let out = bench.room(4 * 128);
    bench.run("rotate", 1, 128, &[at, out].map(Argument::P));
    // Three rounds, each of which moves by one and adds its number.
    let expected: Vec<i32> = (0..128).map(|at| words[(at + 3) % 128] + 3).collect();
    assert_eq!(bench.ram.read::<i32>(out, 128), expected);
}
