//! `mma.sync`

use crate::common::{Argument, Bench};
use crate::{Matrix, Random, bits_of, decode, element, encode, matrix, product};

/// Row and column of element `i` in the lane with this group and this number in the group.
type Place = fn(g: usize, t: usize, i: usize) -> (usize, usize);

/// One shape, and where its elements are.
struct Shape {
    name: &'static str,
    /// Rows, columns, and the length of the sums.
    size: [usize; 3],
    factors: &'static [&'static str],
    a: Place,
    b: Place,
}

const fn shape(name: &'static str, size: [usize; 3], factors: &'static [&'static str], a: Place, b: Place) -> Shape {
    Shape { name, size, factors, a, b }
}

const SHAPES: [Shape; 13] = [
    shape(
        "m16n8k8",
        [16, 8, 8],
        &["f16", "bf16"],
        |g, t, i| (if i < 2 { g } else { g + 8 }, t * 2 + (i & 1)),
        |g, t, i| (t * 2 + i, g),
    ),
    shape(
        "m16n8k16",
        [16, 8, 16],
        &["f16", "bf16"],
        |g, t, i| {
            let row = if i < 2 || (4..6).contains(&i) { g } else { g + 8 };
            (row, if i < 4 { t * 2 + (i & 1) } else { t * 2 + (i & 1) + 8 })
        },
        |g, t, i| (if i < 2 { t * 2 + (i & 1) } else { t * 2 + (i & 1) + 8 }, g),
    ),
    shape("m16n8k4", [16, 8, 4], &["tf32"], |g, t, i| (if i == 0 { g } else { g + 8 }, t), |g, t, _| (t, g)),
    shape(
        "m16n8k8",
        [16, 8, 8],
        &["tf32"],
        |g, t, i| (if i == 0 || i == 2 { g } else { g + 8 }, if i < 2 { t } else { t + 4 }),
        |g, t, i| (if i == 0 { t } else { t + 4 }, g),
    ),
    shape("m8n8k4", [8, 8, 4], &["f64"], |g, t, _| (g, t), |g, t, _| (t, g)),
    shape("m8n8k16", [8, 8, 16], &["s8", "u8"], |g, t, i| (g, t * 4 + i), |g, t, i| (t * 4 + i, g)),
    shape(
        "m16n8k16",
        [16, 8, 16],
        &["s8", "u8"],
        |g, t, i| (if i < 4 { g } else { g + 8 }, t * 4 + (i & 3)),
        |g, t, i| (t * 4 + i, g),
    ),
    shape(
        "m16n8k32",
        [16, 8, 32],
        &["s8", "u8"],
        |g, t, i| {
            let row = if i < 4 || (8..12).contains(&i) { g } else { g + 8 };
            (row, if i < 8 { t * 4 + (i & 3) } else { t * 4 + (i & 3) + 16 })
        },
        |g, t, i| (if i < 4 { t * 4 + (i & 3) } else { t * 4 + (i & 3) + 16 }, g),
    ),
    shape("m8n8k32", [8, 8, 32], &["s4", "u4"], |g, t, i| (g, t * 8 + i), |g, t, i| (t * 8 + i, g)),
    shape(
        "m16n8k32",
        [16, 8, 32],
        &["s4", "u4"],
        |g, t, i| (if i < 8 { g } else { g + 8 }, t * 8 + (i & 7)),
        |g, t, i| (t * 8 + i, g),
    ),
    shape(
        "m16n8k64",
        [16, 8, 64],
        &["s4", "u4"],
        |g, t, i| {
            let row = if i < 8 || (16..24).contains(&i) { g } else { g + 8 };
            (row, if i < 16 { t * 8 + (i & 7) } else { t * 8 + (i & 7) + 32 })
        },
        |g, t, i| (if i < 8 { t * 8 + (i & 7) } else { t * 8 + (i & 7) + 32 }, g),
    ),
    // The same again, for factors of two types.
    shape(
        "m16n8k16",
        [16, 8, 16],
        &["u8", "s8"],
        |g, t, i| (if i < 4 { g } else { g + 8 }, t * 4 + (i & 3)),
        |g, t, i| (t * 4 + i, g),
    ),
    shape("m8n8k32", [8, 8, 32], &["u4", "s4"], |g, t, i| (g, t * 8 + i), |g, t, i| (t * 8 + i, g)),
];

fn accumulator(g: usize, t: usize, i: usize) -> (usize, usize) {
    (if i < 2 { g } else { g + 8 }, t * 2 + (i & 1))
}

/// The lanes' registers as words of 64 bits, in the order of the lanes.
fn fragments(matrix: &Matrix, type_: &str, place: Place) -> Vec<u64> {
    let bits = bits_of(type_);
    let packed = (32 / bits).max(1) as usize;
    let elements = matrix.len() * matrix[0].len() / 32;
    let mut registers = Vec::new();
    for lane in 0..32 {
        for first in (0..elements).step_by(packed) {
            let value = (0..packed).rev().fold(0, |value, part| {
                let (row, column) = place(lane / 4, lane % 4, first + part);
                value << (bits % 64) | matrix[row][column]
            });
            registers.push(value);
        }
    }
    registers
}

/// The kernel of one instruction: each lane reads its registers of a, b and c, and writes those of d.
fn kernel(text: &str, counts: [usize; 4], wide: bool) -> String {
    let [d, a, b, c] = counts;
    let bits = if wide { 64 } else { 32 };
    let mut source = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d)\n{{\n\
         .reg .b64 %p, %o; .reg .b32 %t; .reg .b{bits} %a<8>, %b<8>, %c<8>, %d<8>; mov.u32 %t, %laneid;\n"
    );
    for (name, count) in [("a", a), ("b", b), ("c", c)] {
        source
            .push_str(&format!("ld.param.u64 %p, [{name}]; mul.wide.u32 %o, %t, {}; add.u64 %p, %p, %o;\n", 8 * count));
        (0..count).for_each(|i| source.push_str(&format!("ld.global.b{bits} %{name}{i}, [%p+{}];\n", 8 * i)));
    }
    let list = |name: &str, count: usize| {
        let names: Vec<String> = (0..count).map(|i| format!("%{name}{i}")).collect();
        format!("{{{}}}", names.join(", "))
    };
    source.push_str(&format!("{text} {}, {}, {}, {};\n", list("d", d), list("a", a), list("b", b), list("c", c)));
    source.push_str(&format!("ld.param.u64 %p, [d]; mul.wide.u32 %o, %t, {}; add.u64 %p, %p, %o;\n", 8 * d));
    (0..d).for_each(|i| source.push_str(&format!("st.global.b{bits} [%p+{}], %d{i};\n", 8 * i)));
    source + "ret;\n}\n"
}

/// The bits of the result that the kernel computes.
fn run(shape: &Shape, text: &str, types: [&str; 4], [a, b, c]: [&Matrix; 3]) -> Matrix {
    let [d_type, a_type, b_type, c_type] = types;
    let [a, b, c] = [fragments(a, a_type, shape.a), fragments(b, b_type, shape.b), fragments(c, c_type, accumulator)];
    let packed = (32 / bits_of(d_type)).max(1) as usize;
    let [rows, columns, _] = shape.size;
    let of_d = rows * columns / 32 / packed;
    let source = kernel(text, [of_d, a.len() / 32, b.len() / 32, c.len() / 32], d_type == "f64");
    let mut bench = Bench::new(&source);
    let [a, b, c] = [a, b, c].map(|registers| bench.array(&registers));
    let out = bench.array(&vec![0u64; of_d * 32]);
    bench.run("k", 1, 32, &[a, b, c, out].map(Argument::P));
    let registers = bench.ram.read::<u64>(out, of_d * 32);
    let mut result = matrix(rows, columns, || 0);
    for lane in 0..32 {
        for i in 0..of_d * packed {
            let (row, column) = accumulator(lane / 4, lane % 4, i);
            let bits = bits_of(d_type);
            let value = registers[lane * of_d + i / packed] >> (bits * u32::try_from(i % packed).expect("few"));
            result[row][column] = if bits == 64 { value } else { value & ((1 << bits) - 1) };
        }
    }
    result
}

/// The accumulators of a factor's type: those of d and c.
fn accumulators(factor: &str) -> &'static [(&'static str, &'static str)] {
    match factor {
        "f16" => &[("f32", "f32"), ("f16", "f16")],
        "bf16" | "tf32" => &[("f32", "f32")],
        "f64" => &[("f64", "f64")],
        _ => &[("s32", "s32")],
    }
}

#[test]
fn products_are_the_products() {
    let mut random = Random::new(1);
    for shape in &SHAPES {
        let [rows, columns, k] = shape.size;
        for (index, a_type) in shape.factors.iter().enumerate() {
            // Floating-point factors have one type.
            let b_type = if a_type.contains('f') { a_type } else { shape.factors[shape.factors.len() - 1 - index] };
            for &(d_type, c_type) in accumulators(a_type) {
                let a = matrix(rows, k, || element(a_type, &mut random));
                let b = matrix(k, columns, || element(b_type, &mut random));
                let c = matrix(rows, columns, || element(c_type, &mut random));
                let text = format!("mma.sync.aligned.{}.row.col.{d_type}.{a_type}.{b_type}.{c_type}", shape.name);
                let result = run(shape, &text, [d_type, a_type, b_type, c_type], [&a, &b, &c]);
                let exact = product([a_type, b_type, c_type], &a, &b, &c);
                for (row, (result, exact)) in result.iter().zip(&exact).enumerate() {
                    for (column, (result, exact)) in result.iter().zip(exact).enumerate() {
                        // Exact in every type but f16, to which the exact sum is rounded.
                        assert_eq!(*result, encode(d_type, *exact), "{text}: ({row}, {column}) is {exact}");
                    }
                }
            }
        }
    }
}

#[test]
fn sums_of_any_values_are_as_exact_as_single_precision() {
    let mut random = Random::new(2);
    for shape in SHAPES.iter().filter(|shape| shape.factors[0].contains('f')) {
        for factor in shape.factors {
            let [rows, columns, k] = shape.size;
            let mut any = |type_: &str| {
                // Exponents of 2^-6 to 2^6, and all bits of the mantissa; for tf32 those that do not count, too.
                let scale = 2f64.powi(i32::try_from(random.next() % 13).expect("small") - 6);
                encode(type_, random.fraction() * scale)
            };
            let a = matrix(rows, k, || any(factor));
            let b = matrix(k, columns, || any(factor));
            let sum = if *factor == "f64" { "f64" } else { "f32" };
            let c = matrix(rows, columns, || any(sum));
            let text = format!("mma.sync.aligned.{}.row.col.{sum}.{factor}.{factor}.{sum}", shape.name);
            let result = run(shape, &text, [sum, factor, factor, sum], [&a, &b, &c]);
            let exact = product([factor, factor, sum], &a, &b, &c);
            for row in 0..rows {
                for column in 0..columns {
                    let terms = (0..k).map(|k| (decode(factor, a[row][k]) * decode(factor, b[k][column])).abs());
                    let size = terms.sum::<f64>() + decode(sum, c[row][column]).abs();
                    let unit = if sum == "f64" { f64::EPSILON } else { f64::from(f32::EPSILON) };
                    let error = (decode(sum, result[row][column]) - exact[row][column]).abs();
                    assert!(error <= size * unit * 16.0, "{text}: ({row}, {column}): {error:e} of {size:e}");
                }
            }
        }
    }
}

#[test]
fn infinities_and_nan_stay_in_their_rows() {
    let shape = &SHAPES[1];
    for (d_type, infinity, nan) in [("f32", 0x7f80_0000, 0x7fff_ffff), ("f16", 0x7c00, 0x7fff)] {
        let mut a = matrix(16, 16, || encode("f16", 1.0));
        let b = matrix(16, 8, || encode("f16", 1.0));
        let c = matrix(16, 8, || encode(d_type, 0.0));
        a[3][5] = 0x7c00;
        a[9][0] = 0x7e00;
        (a[12][1], a[12][2]) = (0x7c00, 0xfc00);
        // Beyond the largest f16, within f32.
        a[15] = vec![encode("f16", 60000.0); 16];
        let text = format!("mma.sync.aligned.m16n8k16.row.col.{d_type}.f16.f16.{d_type}");
        let result = run(shape, &text, [d_type, "f16", "f16", d_type], [&a, &b, &c]);
        for (row, result) in result.iter().enumerate() {
            let expected = match row {
                3 => infinity,
                9 | 12 => nan,
                // 59,968 is the nearest f16.
                15 => encode(d_type, 16.0 * decode("f16", a[15][0])),
                _ => encode(d_type, 16.0),
            };
            assert!(result.iter().all(|&value| value == expected), "{d_type}, row {row}: {result:x?}");
        }
    }
}

#[test]
fn integer_sums_wrap_or_saturate() {
    let shape = &SHAPES[7];
    let a = matrix(16, 32, || 0x7f);
    let b = matrix(32, 8, || 0x7f);
    let c = matrix(16, 8, || 0x7fff_ff00);
    let sum = 0x7fff_ff00u64 + 32 * 127 * 127;
    for (satfinite, expected) in [("", sum), (".satfinite", 0x7fff_ffff)] {
        let text = format!("mma.sync.aligned.m16n8k32.row.col{satfinite}.s32.s8.s8.s32");
        let result = run(shape, &text, ["s32", "s8", "s8", "s32"], [&a, &b, &c]);
        assert!(result.iter().flatten().all(|&value| value == expected), "{text}: {result:x?}");
    }
}
