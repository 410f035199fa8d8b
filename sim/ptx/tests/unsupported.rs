//! Statements that are not supported, in modules with kernels that can be launched.

#![expect(clippy::expect_used, reason = "a test that panics fails")]

mod common;

use common::{Argument, Bench};
use ptx::{FaultKind, Module};

/// A kernel that writes 7, on three lines.
const SEVEN: &str = ".version 8.7\n.target sm_80\n.address_size 64 .entry seven(.param .u64 out) { .reg .b64 %out; ld.param.u64 %out, [out]; st.global.u64 [%out], 7; ret; }\n";

/// Loads a module with [`SEVEN`] and this, and runs the former.
fn load(text: &str) -> Bench {
    let mut bench = Bench::new(&format!("{SEVEN}{text}"));
    let out = bench.room(8);
    bench.run("seven", 1, 1, &[Argument::P(out)]);
    assert_eq!(bench.ram.read::<u64>(out, 1), [7], "{text}");
    bench
}

/// The reason for which the kernel `k` cannot be launched.
fn refused(text: &str) -> String {
    let bench = load(text);
    let kernel = bench.program.kernel("k").expect("k is in the module");
    let error = kernel.unsupported().expect(text);
    assert!(error.is_unsupported, "{error}");
    let fault = bench.try_run("k", 1, 1, &[]).expect_err(text);
    assert_eq!((fault.kind, fault.detail), (FaultKind::InvalidLaunch, error.to_string()), "{text}");
    error.to_string()
}

#[test]
fn a_statement_that_is_not_supported_refuses_its_kernel_alone() {
    for (statement, reason) in [
        ("sust.b.2d.v4.b32.trap [%d, {%r, %r}], {%r, %r, %r, %r}", "instruction is not supported"),
        ("@%p tex.1d.v4.f32.f32 {%f, %f, %f, %f}, [%d, {%f}]", "instruction is not supported"),
        ("tanh.f32 %f, %f", "instruction is not supported"),
        ("add.f32.fancy %f, %f, %f", "modifier .fancy is not supported with this instruction"),
        (".reg .b128 %wide", "directive .b128 is not supported"),
        (".reg .v2 .b32 %two", "vectors and arrays of registers are not supported"),
    ] {
        let registers = ".reg .b32 %r; .reg .f32 %f; .reg .b64 %d; .reg .pred %p;";
        let found = refused(&format!(".entry k() {{ {registers}\n{statement}; foo.bar %nothing;\nret; }}"));
        assert_eq!(found, format!("line 5: '{statement}': {reason}"));
    }
}

/// Their operands seem wrong to who does not know the modifier.
#[test]
fn forms_with_other_operands_refuse_their_kernel_alone() {
    for (statement, modifier) in [
        (
            "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f, %f, %f, %f}, {%r, %r}, {%r, %r}, {%f, %f, %f, %f}, %r, 0x0",
            "sp",
        ),
        ("lop3.or.b32 %r|%p, %r, %r, %r, 0x3f, %p", "or"),
        ("red.global.add.v2.f32 [%d], {%f, %f}", "v2"),
        ("red.global.v2.f32.add [%d], {%f, %f}", "v2"),
        ("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r], %r, [%r]", "async"),
        ("ld.global.v8.f32 {%f, %f, %f, %f, %f, %f, %f, %f}, [%d]", "v8"),
        ("cvt.rs.f16x2.f32 %r, %f, %f, %r", "rs"),
    ] {
        let registers = ".reg .b32 %r; .reg .f32 %f; .reg .b64 %d; .reg .pred %p;";
        let found = refused(&format!(".entry k() {{ {registers}\n{statement};\nret; }}"));
        assert!(found.contains(&format!("modifier .{modifier} is not supported")), "{found}");
    }
    for statement in ["min.f32 %f, %f, %f, %f", "max.NaN.f32 %f, %f, %f, %f"] {
        refused(&format!(".entry k() {{ .reg .f32 %f; {statement}; ret; }}"));
    }
}

#[test]
fn a_kernel_is_refused_for_the_functions_that_it_calls() {
    let functions = ".func inner() { foo; ret; } .func outer() { call inner; ret; }";
    let found = refused(&format!("{functions} .entry k() {{ call outer; ret; }}"));
    assert_eq!(found, "line 4: 'foo': instruction is not supported");
    load(&format!("{functions} .entry k() {{ ret; }}")).run("k", 1, 1, &[]);
}

#[test]
fn a_call_of_a_pointer_fails_when_it_reaches_such_a_function() {
    let text = ".func f() { foo; ret; }
        .entry k() { .reg .b64 %f; mov.u64 %f, f; P: .callprototype _ (); call %f, (), P; ret; }";
    let fault = load(text).try_run("k", 1, 1, &[]).expect_err(text);
    assert_eq!(fault.kind, FaultKind::Unsupported, "{fault}");
}

#[test]
fn a_module_is_refused_where_no_kernel_can_be_launched() {
    for text in [".entry k() { foo; }", ".func f() { foo; }", ".func f() { foo; } .entry k() { call f; }"] {
        let error = Module::load(&format!(".version 8.7\n.target sm_80\n{text}")).expect_err(text);
        assert!(error.is_unsupported, "{error}");
    }
}

#[test]
fn attributes_of_variables_are_known_or_refused() {
    let head = ".version 8.7\n.target sm_80\n";
    let text = format!("{head}.global .attribute(.managed) .align 8 .u32 a = 5; .global .u32 b;");
    let module = Module::load(&text).expect("both are supported");
    assert_eq!(module.variables().iter().map(|one| one.is_managed).collect::<Vec<_>>(), [true, false]);
    for (attribute, space, is_unsupported) in
        [("(.unified(19,95))", ".global", true), ("(.managed)", ".shared", false), (".managed", ".global", false)]
    {
        let text = format!("{head}{space} .attribute{attribute} .u32 a;");
        assert_eq!(Module::load(&text).expect_err(&text).is_unsupported, is_unsupported, "{text}");
    }
}

#[test]
fn what_is_invalid_refuses_the_module() {
    for statement in ["add.u32 %r, %r, %nothing;", "add.u32 %r, %r;", "bra NOWHERE;", "call nothing;", "foo; }", "foo"]
    {
        let text = format!("{SEVEN}.entry k() {{ .reg .b32 %r;\n{statement}\n}}");
        let error = Module::load(&text).expect_err(statement);
        assert!(!error.is_unsupported, "{error}");
    }
}
