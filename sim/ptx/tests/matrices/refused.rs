//! Products that do not exist, or are not supported, and warps that are not whole.

use crate::common::{Argument, Bench};
use ptx::{FaultKind, Module};

fn source(text: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.entry k(.param .u64 in)\n{{ .reg .b64 %d<9>; .reg .b32 %r<9>; .reg .pred %p;\n{text};\nret;\n}}\n"
    )
}

#[test]
fn products_that_are_not_supported_are_named_with_their_line() {
    let all = "{%r0, %r1, %r2, %r3}, {%r0, %r1, %r2, %r3}, {%r0, %r1}, {%r0, %r1, %r2, %r3}";
    for text in [
        format!("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {all}"),
        format!("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {all}"),
        format!("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc {all}"),
        format!("mma.sync.aligned.m16n8k16.col.row.f32.f16.f16.f32 {all}"),
        format!("mma.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16 {all}"),
        format!("mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32 {all}"),
        format!("mma.sync.aligned.m16n8k16.row.col.satfinite.f32.f16.f16.f32 {all}"),
        format!("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {all}"),
        format!("mma.aligned.m16n8k16.row.col.f32.f16.f16.f32 {all}"),
        "wmma.load.a.sync.aligned.row.m16n16k16.local.f16 {%r0}, [%d0]".to_owned(),
        "wmma.load.a.sync.aligned.col.m8n8k32.global.s4 {%r0}, [%d0]".to_owned(),
        "wmma.load.a.sync.aligned.row.m8n8k128.global.b1 {%r0}, [%d0]".to_owned(),
        "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r0, %r1}, [%d0]".to_owned(),
        "ldmatrix.sync.aligned.m8n8.x3.shared.b16 {%r0, %r1, %r2}, [%d0]".to_owned(),
        "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%d0], {%r0}".to_owned(),
    ] {
        let error = Module::load(&source(&text)).expect_err(&text);
        assert!(error.line == 6 && error.reason.contains("not supported"), "{text}: {error}");
    }
    for text in [
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r0, %r1}, {%r0, %r1, %r2, %r3}, {%r0, %r1}, {%r0, %r1, %r2, %r3}",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%d0, %r1, %r2, %r3}, {%r0, %r1, %r2, %r3}, {%r0, %r1}, {%r0, %r1, %r2, %r3}",
        "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r0}, [%d0]",
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0, %r1}, [%d0]",
        "movmatrix.sync.aligned.m8n8.trans.b16 %d0, %r0",
    ] {
        assert!(Module::load(&source(text)).is_err(), "{text}");
    }
}

#[test]
fn lanes_that_are_missing_are_a_fault() {
    let product = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r0, %r1, %r2, %r3}, {%r0, %r1, %r2, %r3}, {%r0, %r1}, {%r0, %r1, %r2, %r3}";
    let some = format!("mov.u32 %r8, %tid.x; setp.gt.u32 %p, %r8, 3; @%p exit; {product}");
    let apart = format!("mov.u32 %r8, %tid.x; setp.gt.u32 %p, %r8, 3; @%p bra other; {product}; ret; other: {product}");
    for (text, threads) in [(product, 16), (product, 48), (&some, 32), (&apart, 32)] {
        let bench = Bench::new(&source(text));
        let fault = bench.try_run("k", 1, threads, &[Argument::P(0)]).expect_err("the warp is not whole");
        assert_eq!(fault.kind, FaultKind::Deadlock, "{fault}");
        assert!(fault.instruction.starts_with("mma.sync"), "{fault}");
    }
}
