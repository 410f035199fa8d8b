//! `ldmatrix` and `movmatrix`

use crate::common::{Argument, Bench};
use ptx::FaultKind;

/// Fills shared memory with halves that are their own indices, loads by lanes' addresses, and stores each register.
fn loaded(instruction: &str, count: usize, address: &str) -> String {
    let names: Vec<String> = (0..count).map(|i| format!("%d{i}")).collect();
    let stores: String = (0..count).map(|i| format!("st.global.b32 [%out+{}], %d{i};\n", 128 * i)).collect();
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.entry k(.param .u64 out)\n{{\n\
         .reg .b64 %out, %g; .reg .b32 %t, %x, %y, %i, %d<4>; .reg .pred %p; .shared .align 16 .b8 s[1024];\n\
         ld.param.u64 %out, [out]; mov.u32 %t, %tid.x; mul.wide.u32 %g, %t, 4; add.u64 %out, %out, %g;\n\
         mov.u32 %i, %t;\n\
         fill: shl.b32 %x, %i, 2; mov.u32 %y, s; add.u32 %x, %x, %y; mad.lo.u32 %y, %i, 0x20002, 0x10000;\n\
         st.shared.b32 [%x], %y; add.u32 %i, %i, 32; setp.lt.u32 %p, %i, 256; @%p bra fill;\n\
         mov.u32 %x, s; {address}\n{instruction} {{{}}}, [%x];\n{stores}ret;\n}}\n",
        names.join(", ")
    )
}

#[test]
fn matrices_of_halves_are_spread_over_the_lanes() {
    // Rows follow each other, or are 32 bytes apart and in reverse.
    let straight: (&str, fn(usize) -> usize) = ("mad.lo.u32 %x, %t, 16, %x;", |row| 8 * row);
    let reverse: (&str, fn(usize) -> usize) =
        ("mov.u32 %y, 31; sub.u32 %y, %y, %t; mad.lo.u32 %x, %y, 32, %x;", |row| 16 * (31 - row));
    for (address, first) in [straight, reverse] {
        for (num, count) in [("x1", 1), ("x2", 2), ("x4", 4)] {
            for trans in ["", ".trans"] {
                for space in [".shared", ".shared::cta"] {
                    let text = format!("ldmatrix.sync.aligned.m8n8.{num}{trans}{space}.b16");
                    let mut bench = Bench::new(&loaded(&text, count, address));
                    let out = bench.array(&vec![0u32; 32 * count]);
                    bench.run("k", 1, 32, &[Argument::P(out)]);
                    let results = bench.ram.read::<u32>(out, 32 * count);
                    for (at, result) in results.iter().enumerate() {
                        let (matrix, lane) = (at / 32, at % 32);
                        let half = |row: usize, column: usize| first(8 * matrix + row) + column;
                        let (group, member) = (lane / 4, lane % 4 * 2);
                        let (low, high) = if trans.is_empty() {
                            (half(group, member), half(group, member + 1))
                        } else {
                            (half(member, group), half(member + 1, group))
                        };
                        let expected = u32::try_from(low | high << 16).expect("32 bits");
                        assert_eq!(*result, expected, "{text}: matrix {matrix}, lane {lane}");
                    }
                }
            }
        }
    }
}

#[test]
fn lanes_without_a_row_need_no_address() {
    let address = "mad.lo.u32 %x, %t, 16, %x; setp.ge.u32 %p, %t, 8; selp.b32 %x, -1, %x, %p;";
    let mut bench = Bench::new(&loaded("ldmatrix.sync.aligned.m8n8.x1.shared.b16", 1, address));
    let out = bench.array(&[0u32; 32]);
    bench.run("k", 1, 32, &[Argument::P(out)]);
    assert_eq!(bench.ram.read::<u32>(out, 2), [0x10000, 0x30002]);
    // A row that is not aligned is one lane's fault.
    let address = "mad.lo.u32 %x, %t, 16, %x; setp.eq.u32 %p, %t, 5; @%p add.u32 %x, %x, 8;";
    let bench = Bench::new(&loaded("ldmatrix.sync.aligned.m8n8.x1.shared.b16", 1, address));
    let fault = bench.try_run("k", 1, 32, &[Argument::P(out)]).expect_err("rows are aligned");
    assert_eq!((fault.kind, fault.thread), (FaultKind::MisalignedAddress, [5, 0, 0]), "{fault}");
}

#[test]
fn a_matrix_is_transposed_in_registers() {
    let source = ".version 8.0\n.target sm_80\n.address_size 64\n.entry k(.param .u64 out)\n{
        .reg .b64 %out, %g; .reg .b32 %t, %a, %d; ld.param.u64 %out, [out]; mov.u32 %t, %tid.x;
        mul.wide.u32 %g, %t, 4; add.u64 %out, %out, %g; mad.lo.u32 %a, %t, 0x20002, 0x10000;
        movmatrix.sync.aligned.m8n8.trans.b16 %d, %a; st.global.b32 [%out], %d; ret;\n}\n";
    let mut bench = Bench::new(source);
    let out = bench.array(&[0u32; 64]);
    // Two warps.
    bench.run("k", 1, 64, &[Argument::P(out)]);
    let results = bench.ram.read::<u32>(out, 64);
    for lane in 0..32u32 {
        // Element (row, column) of the second warp's matrix is 64 more.
        let half = |row: u32, column: u32| 8 * row + column;
        let (group, member) = (lane / 4, lane % 4 * 2);
        let expected = half(member, group) | half(member + 1, group) << 16;
        assert_eq!(results[lane as usize], expected);
        assert_eq!(results[32 + lane as usize], expected + 64 * 0x10001);
    }
}
