//! Local memory of a size that the kernel computes: `alloca`, `stacksave`, `stackrestore`.

#![expect(clippy::expect_used, reason = "a test that panics fails")]

mod common;

use common::{Argument, Bench};
use ptx::{FaultKind, Module};

fn source(functions: &str, body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n{functions}\n.entry k(.param .u64 out) {{\n\
         .reg .b64 %out, %a, %b, %c, %n; .reg .b32 %t, %x, %y, %i, %r; .reg .pred %p;\n\
         ld.param.u64 %out, [out]; mov.u32 %t, %tid.x; mul.wide.u32 %a, %t, 4; add.u64 %out, %out, %a;\n{body}\nret;\n}}\n"
    )
}

fn run(source: &str, threads: u32) -> Vec<u32> {
    let mut bench = Bench::new(source);
    let out = bench.room(4 * threads as usize);
    bench.run("k", 1, threads, &[Argument::P(out)]);
    bench.ram.read(out, threads as usize)
}

/// A recursion that keeps a list of `n` words on each level, and adds up all of them after the calls below it.
const DEPTHS: &str = "
    .func (.reg .b32 %sum) depth(.reg .b32 %n) {
        .reg .b64 %list, %at, %size; .reg .b32 %i, %x, %below; .reg .pred %p; .local .align 4 .b32 fixed[1];
        mov.u32 %sum, 0; setp.eq.u32 %p, %n, 0; @%p ret;
        mul.wide.u32 %size, %n, 4; alloca.u64 %list, %size, 32;
        and.b64 %at, %list, 31; setp.ne.u64 %p, %at, 0; @%p trap;
        st.local.u32 [fixed], %n; cvta.local.u64 %list, %list;
        mov.u64 %at, %list; mov.u32 %i, 0;
        fill: st.u32 [%at], %n; add.u64 %at, %at, 4; add.u32 %i, %i, 1; setp.lt.u32 %p, %i, %n; @%p bra fill;
        sub.u32 %x, %n, 1; call (%below), depth, (%x);
        mov.u64 %at, %list; mov.u32 %i, 0;
        add: ld.u32 %x, [%at]; add.u32 %sum, %sum, %x; add.u64 %at, %at, 4; add.u32 %i, %i, 1;
        setp.lt.u32 %p, %i, %n; @%p bra add;
        add.u32 %sum, %sum, %below; ld.local.u32 %x, [fixed]; add.u32 %sum, %sum, %x;
        ret;
    }";

#[test]
fn every_call_has_lists_of_its_own() {
    let body = "call (%x), depth, (%t); call (%y), depth, (%t); setp.ne.u32 %p, %y, %x; @%p trap;
        st.global.u32 [%out], %x;";
    let expected: Vec<u32> = (0..40).map(|t| (1..=t).map(|n| n * n + n).sum()).collect();
    assert_eq!(run(&source(DEPTHS, body), 40), expected);
}

#[test]
fn restoring_the_stack_gives_memory_back() {
    // More than a thread may have in total, were it not given back each time.
    let body = "mov.u32 %i, 0; mov.u32 %r, 0;
        again: stacksave.u64 %n; mov.u64 %c, 100000; alloca.u64 %a, %c; cvt.u32.u64 %y, %a;
        st.local.u32 [%a+99996], %i; ld.local.u32 %x, [%a+99996]; add.u32 %r, %r, %x; stackrestore.u64 %n;
        add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 50; @%p bra again; st.global.u32 [%out], %r;";
    assert_eq!(run(&source("", body), 2), [49 * 50 / 2; 2]);
}

#[test]
fn memory_beyond_the_stack_is_a_fault() {
    let cases = [
        ("mov.u64 %c, 600000; alloca.u64 %a, %c;", FaultKind::StackOverflow, "alloca.u64 %a, %c"),
        ("mov.u64 %c, -8; alloca.u64 %a, %c;", FaultKind::StackOverflow, "alloca.u64 %a, %c"),
        (
            "mov.u32 %x, 16; alloca.u32 %y, %x; mov.u32 %i, 1; st.local.u32 [%y+16], %i;",
            FaultKind::IllegalAddress,
            "st.local.u32 [%y+16], %i",
        ),
        ("stacksave.u64 %a; add.u64 %a, %a, 8; stackrestore.u64 %a;", FaultKind::StackOverflow, "stackrestore.u64 %a"),
        (
            "mov.u64 %c, 16; alloca.u64 %a, %c; mov.u64 %b, 0; stackrestore.u64 %b; ld.local.u32 %x, [%a];",
            FaultKind::IllegalAddress,
            "ld.local.u32 %x, [%a]",
        ),
    ];
    for (body, kind, instruction) in cases {
        let mut bench = Bench::new(&source("", body));
        let out = bench.room(4);
        let fault = bench.try_run("k", 1, 1, &[Argument::P(out)]).expect_err("there is no such memory");
        assert_eq!((fault.kind, fault.instruction.as_str()), (kind, instruction), "{fault}");
    }
}

#[test]
fn wrong_alignments_are_refused() {
    for text in ["alloca.u64 %a, %c, 3;", "alloca.u64 %a, %c, 16777216;", "alloca.b64 %a, %c;", "alloca.u32 %a, %x;"] {
        assert!(Module::load(&source("", text)).is_err(), "{text}");
    }
}
