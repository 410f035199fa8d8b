//! `math.cu`
#![allow(clippy::cast_possible_truncation, reason = "values are rounded to their type")]

use crate::common::{Argument, Bench};
use crate::numbers;

const SOURCES: [(&str, &str); 2] = [
    ("nvrtc12-sm_70", include_str!("../fixtures/nvrtc12-sm_70/math.ptx")),
    ("nvrtc13-sm_90-fast", include_str!("../fixtures/nvrtc13-sm_90-fast/math.ptx")),
];

const EDGES: [f32; 14] = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    0.1,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    f32::MAX,
    f32::MIN_POSITIVE,
    1e-40,
    -1e-45,
    16_777_217.0,
    2.5,
];

fn is_fast(way: &str) -> bool {
    way.ends_with("fast")
}

/// Random bits, and the edges in all combinations.
fn pairs() -> Vec<(f32, f32)> {
    let edges = EDGES.iter().flat_map(|&a| EDGES.iter().map(move |&b| (a, b)));
    let random =
        numbers(300).into_iter().map(|bits| (f32::from_bits(bits as u32), f32::from_bits((bits >> 32) as u32)));
    edges.chain(random).collect()
}

fn run_pairs(way: &str, source: &str, kernel: &str, model: impl Fn(f32, f32) -> [f32; 8]) {
    let mut bench = Bench::new(source);
    let (a, b): (Vec<f32>, Vec<f32>) = pairs().into_iter().unzip();
    let count = a.len();
    let (a_at, b_at) = (bench.array(&a), bench.array(&b));
    let out = bench.room(32 * count);
    bench.run(kernel, 8, 64, &[Argument::P(a_at), Argument::P(b_at), Argument::P(out), Argument::U32(count as u32)]);
    let results = bench.ram.read::<f32>(out, 8 * count);
    for ((result, &a), &b) in results.chunks(8).zip(&a).zip(&b) {
        for (index, (got, expected)) in result.iter().zip(model(a, b)).enumerate() {
            let same = got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan();
            assert!(same, "{way}: {kernel}({a:e}, {b:e})[{index}] is {got:e}, not {expected:e}");
        }
    }
}

/// What `.ftz` does to operands and results.
fn flush(value: f32) -> f32 {
    if value.is_subnormal() { 0f32.copysign(value) } else { value }
}

#[test]
fn f32_arithmetic_is_that_of_the_cpu() {
    for (way, source) in SOURCES {
        let f: fn(f32) -> f32 = if is_fast(way) { flush } else { |value| value };
        run_pairs(way, source, "f32_basic", |a, b| {
            let (x, y) = (f(a), f(b));
            let min = if x.is_nan() {
                y
            } else if y.is_nan() || x.total_cmp(&y).is_lt() {
                x
            } else {
                y
            };
            let max = if x.is_nan() {
                y
            } else if y.is_nan() || x.total_cmp(&y).is_gt() {
                x
            } else {
                y
            };
            [x + y, x * y, x / y, x.sqrt(), min, max, x.mul_add(y, 0.5), x.abs() * if x < y { 2.0 } else { -1.0 }]
                .map(f)
        });
    }
}

#[test]
fn f32_rounds_in_all_directions() {
    for (way, source) in SOURCES.into_iter().filter(|(way, _)| !is_fast(way)) {
        run_pairs(way, source, "f32_rounded", |a, b| {
            let product = (f64::from(a) * f64::from(b), 0.0);
            let sum = exact_sum(a, b);
            let towards_zero = |exact: (f64, f64), nearest| {
                if exact.0 > 0.0 { not_above(exact, nearest) } else { not_below(exact, nearest) }
            };
            [
                towards_zero(sum, a + b),
                not_below(sum, a + b),
                not_above(product, a * b),
                towards_zero(product, a * b),
                a.floor(),
                a.ceil(),
                a.trunc(),
                a.round_ties_even(),
            ]
        });
    }
}

/// A sum as the f64 nearest to it and what is missing.
fn exact_sum(a: f32, b: f32) -> (f64, f64) {
    let (a, b) = (f64::from(a), f64::from(b));
    let sum = a + b;
    let part = sum - a;
    (sum, (a - (sum - part)) + (b - part))
}

/// The nearest value, or the next one up where it lies below the exact one.
fn not_below((sum, rest): (f64, f64), nearest: f32) -> f32 {
    let wide = f64::from(nearest);
    if sum.is_finite() && (wide < sum || wide == sum && rest > 0.0) { nearest.next_up() } else { nearest }
}

/// The nearest value, or the next one down where it lies above the exact one.
fn not_above((sum, rest): (f64, f64), nearest: f32) -> f32 {
    let wide = f64::from(nearest);
    if sum.is_finite() && (wide > sum || wide == sum && rest < 0.0) { nearest.next_down() } else { nearest }
}

fn close(got: f64, expected: f64, tolerance: f64) -> bool {
    got == expected
        || (got - expected).abs() <= tolerance * expected.abs().max(1.0)
        || got.is_nan() && expected.is_nan()
}

#[test]
fn f32_functions_are_close_to_those_of_the_cpu() {
    for (way, source) in SOURCES {
        let mut bench = Bench::new(source);
        let inputs: Vec<f32> =
            (0..200u16).map(|i| f32::from(i).mul_add(0.37, -31.3)).chain([0.0, 1e-3, 1000.5]).collect();
        let count = inputs.len();
        let at = bench.array(&inputs);
        let out = bench.room(64 * count);
        bench.run("f32_functions", 4, 64, &[Argument::P(at), Argument::P(out), Argument::U32(count as u32)]);
        let results = bench.ram.read::<f32>(out, 16 * count);
        // The fast functions are only as exact as CUDA's programming guide says.
        let tolerance = if is_fast(way) { 2e-5 } else { 3e-6 };
        for (result, &input) in results.chunks(16).zip(&inputs) {
            let x = f64::from(input);
            // The arguments as the kernel computes them.
            let scaled = |factor: f32| f64::from(input * factor);
            let expected = [
                x.sin(),
                x.cos(),
                scaled(0.01).exp(),
                (x.abs() + 1.0).ln(),
                (x.abs() + 0.5).powf(1.5),
                erf(scaled(0.1)),
                scaled(0.1).tanh(),
                x.atan(),
                x.atan2(2.0),
                x % 1.75,
                x.cbrt(),
                1.0 / (x.abs() + 1.0).sqrt(),
                scaled(0.1).exp2(),
                (x.abs() + 1.0).log2(),
                ln_gamma(x.abs() + 1.5),
                x.hypot(3.0),
            ];
            for (index, (&got, expected)) in result.iter().zip(expected).enumerate() {
                assert!(
                    close(f64::from(got), expected, tolerance),
                    "{way}: function {index} of {input} is {got}, not {expected}"
                );
            }
        }
    }
}

/// Its series without alternating signs.
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..300 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp() * sum
}

/// Stirling's series, after moving the argument up.
fn ln_gamma(x: f64) -> f64 {
    let mut shift = 0.0;
    let mut x = x;
    while x < 15.0 {
        shift -= x.ln();
        x += 1.0;
    }
    let series = 1.0 / (12.0 * x) - 1.0 / (360.0 * x.powi(3)) + 1.0 / (1260.0 * x.powi(5));
    shift + (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series
}

#[test]
fn f64_functions_are_close_to_those_of_the_cpu() {
    for (way, source) in SOURCES {
        let mut bench = Bench::new(source);
        let inputs: Vec<f64> = (0..200).map(|i| f64::from(i) * 0.37 - 31.3).chain([0.0, 1e-3, 1e6]).collect();
        let count = inputs.len();
        let at = bench.array(&inputs);
        let out = bench.room(128 * count);
        bench.run("f64_functions", 4, 64, &[Argument::P(at), Argument::P(out), Argument::U32(count as u32)]);
        let results = bench.ram.read::<f64>(out, 16 * count);
        for (result, &x) in results.chunks(16).zip(&inputs) {
            let expected = [
                x.sin(),
                x.cos(),
                (x * 0.01).exp(),
                (x.abs() + 1.0).ln(),
                (x.abs() + 0.5).powf(1.5),
                erf(x * 0.1),
                (x * 0.1).tanh(),
                x.atan(),
                x.abs().sqrt(),
                x % 1.75,
                x.cbrt(),
                1.0 / (x.abs() + 1.0).sqrt(),
                x / (x.abs() + 3.0),
                x.mul_add(x, -1.0),
                x.floor(),
                1.0 / x.mul_add(x, 1.0),
            ];
            for (index, (&got, expected)) in result.iter().zip(expected).enumerate() {
                assert!(close(got, expected, 1e-12), "{way}: function {index} of {x} is {got}, not {expected}");
            }
        }
    }
}

#[test]
fn conversions_cut_and_clamp_as_the_cpu_does() {
    for (way, source) in SOURCES {
        let mut bench = Bench::new(source);
        let inputs = [0.0f64, -0.75, 1.5, 2.5, -3.5, 255.9, 1e9, -2.7e9, 123_456_789.0, 4e9];
        let at = bench.array(&inputs);
        let out = bench.room(64 * inputs.len());
        bench.run("conversions", 1, 32, &[Argument::P(at), Argument::P(out), Argument::U32(inputs.len() as u32)]);
        let results = bench.ram.read::<i64>(out, 8 * inputs.len());
        for (result, &x) in results.chunks(8).zip(&inputs) {
            let int = x as i32;
            let expected = [
                i64::from(int),
                i64::from(int as u8),
                i64::from(int as i16),
                (x as f32) as i64,
                i64::from((x as f32).round_ties_even() as i32),
                (x.trunc() + 0.0).to_bits().cast_signed(),
                i64::from((int as f32).to_bits().cast_signed()),
                i64::from(x.abs().ceil() as u32),
            ];
            assert_eq!(result, expected, "{way}: {x}");
        }
    }
}

#[test]
fn a_stride_over_the_grid_reaches_every_element() {
    for (_, source) in SOURCES {
        let mut bench = Bench::new(source);
        let x: Vec<f32> = (0..1000u16).map(f32::from).collect();
        let y: Vec<f32> = x.iter().map(|value| value * 0.25).collect();
        let (x_at, y_at) = (bench.array(&x), bench.array(&y));
        bench.run("saxpy", 3, 64, &[Argument::F32(2.0), Argument::P(x_at), Argument::P(y_at), Argument::U32(1000)]);
        let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| 2f32.mul_add(*x, *y)).collect();
        assert_eq!(bench.ram.read::<f32>(y_at, 1000), expected);
    }
}
