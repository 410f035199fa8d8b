//! `wmma.load`, `wmma.mma` and `wmma.store`

use crate::common::{Argument, Bench};
use crate::{Matrix, Random, bits_of, element, encode, matrix, product};
use ptx::FaultKind;

/// One product: its shape, the types of a and b and of c and d, and the registers of a, b and c.
struct Case {
    shape: &'static str,
    size: [usize; 3],
    factors: [&'static str; 2],
    sums: [&'static str; 2],
    registers: [usize; 3],
}

const fn case(
    shape: &'static str,
    size: [usize; 3],
    factor: &'static str,
    sum: &'static str,
    registers: [usize; 3],
) -> Case {
    Case { shape, size, factors: [factor; 2], sums: [sum; 2], registers }
}

const SQUARE: [usize; 3] = [16, 16, 16];
const FLAT: [usize; 3] = [8, 32, 16];
const TALL: [usize; 3] = [32, 8, 16];

/// The registers are those of the PTX ISA, "Matrix Fragments for WMMA" (9.7.14.4.1).
const CASES: [Case; 17] = [
    case("m16n16k16", SQUARE, "f16", "f32", [8, 8, 8]),
    case("m8n32k16", FLAT, "f16", "f32", [8, 8, 8]),
    case("m32n8k16", TALL, "f16", "f32", [8, 8, 8]),
    case("m16n16k16", SQUARE, "f16", "f16", [8, 8, 4]),
    case("m8n32k16", FLAT, "f16", "f16", [8, 8, 4]),
    case("m32n8k16", TALL, "f16", "f16", [8, 8, 4]),
    case("m16n16k16", SQUARE, "bf16", "f32", [4, 4, 8]),
    case("m8n32k16", FLAT, "bf16", "f32", [2, 8, 8]),
    case("m32n8k16", TALL, "bf16", "f32", [8, 2, 8]),
    case("m16n16k8", [16, 16, 8], "tf32", "f32", [4, 4, 8]),
    case("m8n8k4", [8, 8, 4], "f64", "f64", [1, 1, 2]),
    case("m16n16k16", SQUARE, "s8", "s32", [2, 2, 8]),
    case("m8n32k16", FLAT, "u8", "s32", [1, 4, 8]),
    case("m32n8k16", TALL, "s8", "s32", [4, 1, 8]),
    case("m8n8k32", [8, 8, 32], "s4", "s32", [1, 1, 2]),
    case("m8n8k32", [8, 8, 32], "u4", "s32", [1, 1, 2]),
    Case { shape: "m16n16k16", size: SQUARE, factors: ["f16"; 2], sums: ["f16", "f32"], registers: [8, 8, 8] },
];

impl Case {
    /// The instruction's types.
    fn types(&self) -> String {
        let ([a, b], [d, c]) = (self.factors, self.sums);
        if a == "f16" { format!("{d}.{c}") } else { format!("{d}.{a}.{b}.{c}") }
    }

    /// Loads a, b and c from matrices by rows or columns in memory that `space` names, and stores d.
    fn kernel(&self, rows: [bool; 4], strides: [usize; 4], space: &str) -> String {
        let [of_a, of_b, of_c] = self.registers;
        let of_d = if self.sums == ["f16", "f32"] { 4 } else { of_c };
        let ([a, b], [d, c]) = (self.factors, self.sums);
        let bits = if a == "f64" { 64 } else { 32 };
        let layout = rows.map(|by_rows| if by_rows { "row" } else { "col" });
        let list = |name: &str, count: usize| {
            let names: Vec<String> = (0..count).map(|i| format!("%{name}{i}")).collect();
            format!("{{{}}}", names.join(", "))
        };
        let shape = self.shape;
        let load = |which: &str, layout: &str, type_: &str, count: usize, stride: usize| {
            // Without a stride, rows or columns follow each other.
            let stride = if stride == 0 { String::new() } else { format!(", {stride}") };
            format!(
                "wmma.load.{which}.sync.aligned.{layout}.{shape}{space}.{type_} {}, [%{which}]{stride};\n",
                list(which, count)
            )
        };
        format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d)\n{{\n\
             .reg .b64 %a, %b, %c, %d; .reg .b{bits} %a<8>, %b<8>, %c<8>, %d<8>; .reg .b32 %s;\n\
             ld.param.u64 %a, [a]; ld.param.u64 %b, [b]; ld.param.u64 %c, [c]; ld.param.u64 %d, [d];\n{}{}{}\
             wmma.mma.sync.aligned.{}.{}.{shape}.{} {}, {}, {}, {};\n mov.u32 %s, {};\n\
             wmma.store.d.sync.aligned.{}.{shape}{space}.{d} [%d], {}, %s;\nret;\n}}\n",
            load("a", layout[0], a, of_a, strides[0]),
            load("b", layout[1], b, of_b, strides[1]),
            load("c", layout[2], c, of_c, strides[2]),
            layout[0],
            layout[1],
            self.types(),
            list("d", of_d),
            list("a", of_a),
            list("b", of_b),
            list("c", of_c),
            strides[3],
            layout[3],
            list("d", of_d),
        )
    }
}

/// A matrix as bytes in memory, by rows or by columns with that distance.
fn stored(matrix: &Matrix, type_: &str, by_rows: bool, stride: usize) -> Vec<u8> {
    let bits = bits_of(type_) as usize;
    let (rows, columns) = (matrix.len(), matrix[0].len());
    let mut bytes = vec![0u8; (if by_rows { rows } else { columns }) * stride * bits / 8];
    for (row, elements) in matrix.iter().enumerate() {
        for (column, element) in elements.iter().enumerate() {
            let at = if by_rows { row * stride + column } else { column * stride + row } * bits;
            let value = element.to_le_bytes();
            if bits < 8 {
                bytes[at / 8] |= value[0] << (at % 8);
            } else {
                bytes[at / 8..][..bits / 8].copy_from_slice(&value[..bits / 8]);
            }
        }
    }
    bytes
}

#[test]
fn products_are_the_products() {
    let mut random = Random::new(3);
    for case in &CASES {
        let [rows, columns, k] = case.size;
        let ([a_type, b_type], [d_type, c_type]) = (case.factors, case.sums);
        for bits in 0..16u32 {
            let mut by_rows = [0, 1, 2, 3].map(|bit| bits >> bit & 1 == 0);
            if bits_of(a_type) == 4 {
                // Only these layouts exist.
                (by_rows[0], by_rows[1]) = (true, false);
            }
            let a = matrix(rows, k, || element(a_type, &mut random));
            let b = matrix(k, columns, || element(b_type, &mut random));
            let c = matrix(rows, columns, || element(c_type, &mut random));
            let least = |by_rows: bool, rows: usize, columns: usize| if by_rows { columns } else { rows };
            let tight = [
                least(by_rows[0], rows, k),
                least(by_rows[1], k, columns),
                least(by_rows[2], rows, columns),
                least(by_rows[3], rows, columns),
            ];
            // Every other time with space between the rows.
            let spaced = if bits.count_ones() % 2 == 0 { 16 } else { 0 };
            let strides = tight.map(|stride| stride + spaced);
            let given = if spaced == 0 { [0, 0, 0, strides[3]] } else { strides };
            let space = if bits < 8 { "" } else { ".global" };
            let mut bench = Bench::new(&case.kernel(by_rows, given, space));
            let at = [(&a, a_type), (&b, b_type), (&c, c_type)];
            let mut addresses: Vec<u64> = at
                .iter()
                .enumerate()
                .map(|(i, (matrix, type_))| bench.array(&stored(matrix, type_, by_rows[i], strides[i])))
                .collect();
            let expected: Matrix = product([a_type, b_type, c_type], &a, &b, &c)
                .iter()
                .map(|row| row.iter().map(|value| encode(d_type, *value)).collect())
                .collect();
            let expected = stored(&expected, d_type, by_rows[3], strides[3]);
            addresses.push(bench.array(&vec![0u8; expected.len()]));
            let out = addresses[3];
            let arguments: Vec<Argument> = addresses.into_iter().map(Argument::P).collect();
            bench.run("k", 1, 32, &arguments);
            assert_eq!(bench.ram.read_bytes(out, expected.len()), expected, "{} {}, {bits}", case.shape, case.types());
        }
    }
}

#[test]
fn matrices_lie_in_shared_memory_too() {
    let source = ".version 8.0\n.target sm_80\n.address_size 64\n.entry k(.param .u64 out)\n{
        .reg .b64 %out, %g; .reg .b32 %t, %x, %y, %c<8>; .reg .b16 %h; .reg .b32 %a<8>; .reg .pred %p;
        .shared .align 32 .b8 a[1024]; .shared .align 32 .b8 d[1024];
        ld.param.u64 %out, [out]; mov.u32 %t, %tid.x; mov.u32 %x, a; mad.lo.u32 %x, %t, 16, %x; mov.u32 %y, 0;
        // Each lane writes half a row of ones and half a column of twos, without a barrier: the load waits for all lanes.
        fill: mov.b16 %h, 0x3c00; st.shared.b16 [%x], %h; add.u32 %x, %x, 2; add.u32 %y, %y, 1;
        setp.lt.u32 %p, %y, 8; @%p bra fill;
        mov.u32 %x, a; add.u32 %x, %x, 512; mad.lo.u32 %x, %t, 16, %x; mov.u32 %y, 0x40004000;
        st.shared.v4.b32 [%x], {%y, %y, %y, %y};
        wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%a0, %a1, %a2, %a3, %a4, %a5, %a6, %a7}, [a];
        mov.f32 %c0, 0f00000000; mov.u32 %x, a; add.u32 %x, %x, 512; mov.u32 %y, 16;
        .reg .b32 %b<8>;
        wmma.load.b.sync.aligned.col.m16n16k16.shared::cta.f16 {%b0, %b1, %b2, %b3, %b4, %b5, %b6, %b7}, [%x], %y;
        wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {%c0, %c1, %c2, %c3, %c4, %c5, %c6, %c7},
            {%a0, %a1, %a2, %a3, %a4, %a5, %a6, %a7}, {%b0, %b1, %b2, %b3, %b4, %b5, %b6, %b7},
            {%c0, %c0, %c0, %c0, %c0, %c0, %c0, %c0};
        mov.u64 %g, d; cvta.shared.u64 %g, %g;
        wmma.store.d.sync.aligned.row.m16n16k16.f32 [%g], {%c0, %c1, %c2, %c3, %c4, %c5, %c6, %c7}, 16;
        // The word that another lane has stored.
        mov.u32 %x, d; xor.b32 %y, %t, 31; mad.lo.u32 %x, %y, 32, %x; ld.shared.b32 %y, [%x];
        mul.wide.u32 %g, %t, 4; add.u64 %out, %out, %g; st.global.b32 [%out], %y; ret;\n}\n";
    let mut bench = Bench::new(source);
    let out = bench.array(&[0f32; 32]);
    bench.run("k", 1, 32, &[Argument::P(out)]);
    assert_eq!(bench.ram.read::<f32>(out, 32), [32.0; 32]);
}

#[test]
fn a_matrix_beyond_its_memory_is_a_fault_with_its_address() {
    let case = &CASES[0];
    let mut bench = Bench::new(&case.kernel([true; 4], [0, 0, 0, 16], ".global"));
    // The last row of b is beyond the megabyte.
    let (a, c) = (bench.room(1024), bench.room(1024));
    let b = crate::common::BASE + (1 << 20) - 480;
    let fault = bench.try_run("k", 1, 32, &[a, b, c, c].map(Argument::P)).expect_err("b is too long");
    assert_eq!((fault.kind, fault.address, fault.bytes), (FaultKind::IllegalAddress, b + 480, 2), "{fault}");
    assert!(fault.instruction.starts_with("wmma.load.b.sync.aligned.row.m16n16k16.global.f16"), "{fault}");
    let fault = bench.try_run("k", 1, 32, &[a + 1, a, c, c].map(Argument::P)).expect_err("a is not aligned");
    assert_eq!((fault.kind, fault.address), (FaultKind::MisalignedAddress, a + 1), "{fault}");
}
