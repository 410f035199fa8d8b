//! `tiles.cu`

use crate::common::{Argument, Bench};
use crate::numbers;

const SOURCE: &str = include_str!("../fixtures/nvrtc12-sm_70/tiles.ptx");

#[test]
fn a_tiled_transpose_swaps_rows_and_columns() {
    let mut bench = Bench::new(SOURCE);
    let (width, height) = (50usize, 37usize);
    let values: Vec<u32> = (0..1850).collect();
    let at = bench.array(&values);
    let out = bench.room(4 * values.len());
    let arguments = [Argument::P(at), Argument::P(out), Argument::U32(50), Argument::U32(37)];
    let launch = bench.launch("transpose", [4, 3, 1], [16, 16, 1], &arguments);
    ptx::run(&launch, &bench.ram).expect("the kernel runs");
    let results = bench.ram.read::<u32>(out, values.len());
    for y in 0..height {
        for x in 0..width {
            assert_eq!(results[x * height + y], values[y * width + x], "({x}, {y})");
        }
    }
}

#[test]
fn a_tiled_product_is_the_product() {
    let mut bench = Bench::new(SOURCE);
    let n = 48usize;
    let small = |bits: &u64| f32::from((bits % 16).to_le_bytes()[0]) - 8.0;
    let values: Vec<f32> = numbers(2 * n * n).iter().map(small).collect();
    let (a, b) = values.split_at(n * n);
    let (a_at, b_at) = (bench.array(a), bench.array(b));
    let out = bench.room(4 * n * n);
    let arguments = [Argument::P(a_at), Argument::P(b_at), Argument::P(out), Argument::U32(48)];
    let launch = bench.launch("multiply", [3, 3, 1], [16, 16, 1], &arguments);
    ptx::run(&launch, &bench.ram).expect("the kernel runs");
    let product = |row: usize, column: usize| (0..n).map(|k| a[row * n + k] * b[k * n + column]).sum::<f32>();
    let expected: Vec<f32> = (0..n * n).map(|at| product(at / n, at % n)).collect();
    // Whole numbers below 2^24 are exact in any order.
    assert_eq!(bench.ram.read::<f32>(out, n * n), expected);
}

#[test]
fn dynamic_shared_memory_has_the_size_of_the_launch() {
    let mut bench = Bench::new(SOURCE);
    let values: Vec<i32> = (0..1000).collect();
    let at = bench.array(&values);
    let mut launch = bench.launch("reverse", [1, 1, 1], [128, 1, 1], &[Argument::P(at), Argument::U32(1000)]);
    let fault = ptx::run(&launch, &bench.ram).expect_err("there is no shared memory");
    assert_eq!(fault.kind, ptx::FaultKind::IllegalAddress);
    launch.dynamic_shared = 4000;
    ptx::run(&launch, &bench.ram).expect("the kernel runs");
    assert_eq!(bench.ram.read::<i32>(at, 1000), (0..1000).rev().collect::<Vec<_>>());
}

#[test]
fn blocks_and_threads_have_three_dimensions() {
    let mut bench = Bench::new(SOURCE);
    let out = bench.room(16 * 30 * 24);
    let launch = bench.launch("places", [3, 2, 5], [2, 4, 3], &[Argument::P(out)]);
    ptx::run(&launch, &bench.ram).expect("the kernel runs");
    let results = bench.ram.read::<u32>(out, 4 * 30 * 24);
    for (result, at) in results.chunks(4).zip(0u32..) {
        let (block, thread) = (at / 24, at % 24);
        assert_eq!(result, [thread % 2, thread / 2 % 4, thread / 8, block]);
    }
}
