//! Texts that a linker joined: what one says of another's names.

#![expect(clippy::expect_used, reason = "a test that panics fails")]

mod common;

use common::{Argument, Bench};
use ptx::Module;

const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

/// Runs the kernel `k` on one thread; returns the word that it writes.
fn run(text: &str) -> u64 {
    let mut bench = Bench::new(&format!("{HEAD}{text}"));
    let out = bench.room(8);
    bench.run("k", 1, 1, &[Argument::P(out)]);
    bench.ram.read(out, 1)[0]
}

const DECLARED: &str = ".extern .func (.param .b64 r) put(.param .b64 p, .param .b32 v);";
const DEFINED: &str = ".func put(.param .b64 p, .param .b32 v) { .reg .b64 %p; .reg .b32 %v;
    ld.param.b64 %p, [p]; ld.param.b32 %v, [v]; st.b32 [%p], %v; ret; }";
const CALLER: &str = ".entry k(.param .u64 out) { .reg .b64 %out, %r; .param .b64 p; .param .b32 v; .param .b64 r;
    ld.param.u64 %out, [out]; st.param.b64 [p], %out; st.param.b32 [v], 7; st.param.b64 [r], 5;
    call (r), put, (p, v); ld.param.b64 %r, [r]; st.b32 [%out+4], 9; ret; }";

#[test]
fn a_declaration_may_have_a_result_that_the_definition_lacks() {
    for text in [
        format!("{DECLARED}{CALLER}{DECLARED}{DEFINED}"),
        format!("{DEFINED}{DECLARED}{CALLER}"),
        format!("{DECLARED}{DEFINED}{DECLARED}{CALLER}"),
    ] {
        assert_eq!(run(&text), 9 << 32 | 7, "{text}");
    }
}

#[test]
fn other_differences_between_declarations_are_refused() {
    for text in [
        ".extern .func (.param .b64 r) f(.param .b32 v); .func f(.param .b64 v) { ret; }",
        ".extern .func (.param .b64 r) f(.param .b32 v); .func f(.reg .b32 v) { ret; }",
        ".extern .func f(.param .b32 v); .func (.param .b64 r) f(.param .b32 v) { ret; }",
        ".extern .func (.param .b64 r) f(.param .b32 v); .extern .func f(.param .b32 v);",
    ] {
        let error = Module::load(&format!("{HEAD}{text}")).expect_err(text);
        assert!(error.reason.contains("otherwise"), "{error}");
    }
}

#[test]
fn a_weak_function_gives_way() {
    let function = |linkage: &str, value: u32| {
        format!("{linkage} .func (.param .b32 r) one() {{ st.param.b32 [r], {value}; ret; }}\n")
    };
    let caller = ".entry k(.param .u64 out) { .reg .b64 %out; .reg .b32 %r; .param .b32 r;
        ld.param.u64 %out, [out]; call (r), one; ld.param.b32 %r, [r]; st.b32 [%out], %r; ret; }\n";
    let (weak, other, strong) = (function(".weak", 1), function(".weak", 2), function(".visible", 3));
    assert_eq!(run(&format!("{weak}{caller}{other}")), 1, "the first");
    assert_eq!(run(&format!("{weak}{caller}{strong}{other}")), 3);
    assert_eq!(run(&format!("{strong}{weak}{caller}")), 3);
    assert!(Module::load(&format!("{HEAD}{strong}{caller}{strong}")).is_err());
}

#[test]
fn a_weak_variable_gives_way() {
    let caller = ".entry k(.param .u64 out) { .reg .b64 %out; .reg .b32 %v; ld.param.u64 %out, [out];
        ld.global.b32 %v, [a]; st.b32 [%out], %v; ret; }\n";
    let (weak, other) = (".weak .global .b32 a = 1;\n", ".weak .global .b32 a = 2;\n");
    let (strong, external) = (".visible .global .b32 a = 3;\n", ".extern .global .b32 a;\n");
    assert_eq!(run(&format!("{external}{weak}{caller}{other}")), 1, "the first");
    assert_eq!(run(&format!("{weak}{caller}{strong}{other}")), 3);
    assert_eq!(run(&format!("{strong}{weak}{caller}")), 3);
    assert!(Module::load(&format!("{HEAD}{strong}{caller}{strong}")).is_err());
}

#[test]
fn the_largest_of_common_variables_stands_for_all() {
    let text = ".common .global .b32 a; .common .global .align 16 .b32 a[2] = {3, 4}; .common .global .b32 a;
        .entry k(.param .u64 out) { .reg .b64 %out, %v; ld.param.u64 %out, [out]; ld.global.b64 %v, [a]; st.b64 [%out], %v; ret; }";
    assert_eq!(run(text), 4 << 32 | 3);
    let error =
        Module::load(&format!("{HEAD}.common .global .b32 a;\n.global .b32 a;")).expect_err("one is not common");
    assert!(error.reason.contains("twice"), "{error}");
}
