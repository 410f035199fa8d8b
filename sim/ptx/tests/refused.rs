//! What does not load: each with its line and a reason.

#![expect(clippy::expect_used, reason = "a test that panics fails")]

mod common;

use common::{Argument, Bench};
use proptest::prelude::*;
use ptx::{FaultKind, LoadError, Module};

/// A module whose line 5 is this.
fn module(line: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.entry k(.param .u64 in) {{ .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .f32 %f<3>; .reg .pred %p<3>;\n{line}\nret; }}\n"
    )
}

fn refused(source: &str) -> LoadError {
    match Module::load(source) {
        Ok(_) => panic!("it loads: {source}"),
        Err(error) => error,
    }
}

#[test]
fn instructions_that_are_not_supported_are_named_with_their_line() {
    for text in [
        "tex.2d.v4.f32.s32 {%f0, %f1, %f2, %f0}, [%d0, {%r0, %r1}]",
        "cp.async.bulk.wait_group 0",
        "frobnicate.u32 %r0, %r1",
        "add.u128 %r0, %r1, %r2",
        "add.f32.fancy %f0, %f1, %f2",
        "ld.global.v8.b32 %r0, [%d0]",
        "cvt.rn.satfinite.e4m3x2.f32 %r0, %f0, %f1",
        "atom.global.exch.b128 %d0, [%d0], %d1",
        "atom.global.cas.b128 %d0, [%d0], %d1, %d2",
        "mul.lo.f32 %f0, %f1, %f2",
        "add.sat.u32 %r0, %r1, %r2",
        "shl.b32.wrap %r0, %r1, %r2",
        "add.rn.s32 %r0, %r1, %r2",
        "add.sat.ftz.s32 %r0, %r1, %r2",
        "add.cc.sat.s32 %r0, %r1, %r2",
        "addc.ftz.u32 %r0, %r1, %r2",
        "sub.cc.NaN.u32 %r0, %r1, %r2",
        "add.approx.f32 %f0, %f1, %f2",
        "add.NaN.f32 %f0, %f1, %f2",
        "div.approx.rn.f32 %f0, %f1, %f2",
        "div.rn.sat.f32 %f0, %f1, %f2",
        "min.rz.f32 %f0, %f1, %f2",
        "max.sat.f32 %f0, %f1, %f2",
        "abs.sat.f32 %f0, %f1",
        "neg.rn.f32 %f0, %f1",
        "add.NaN.f16x2 %r0, %r1, %r2",
        "min.sat.f16x2 %r0, %r1, %r2",
        "neg.sat.f16x2 %r0, %r1",
        "add.ftz.bf16x2 %r0, %r1, %r2",
        "fma.rn.sat.bf16x2 %r0, %r1, %r2, %r3",
    ] {
        let error = refused(&module(&format!("{text};")));
        assert_eq!((error.line, error.text.as_str()), (5, text), "{error}");
        assert!(error.reason.contains("not supported"), "{error}");
    }
}

#[test]
fn an_unsupported_instruction_says_so_plainly() {
    let error = refused(&module("tanh.f32 %f0, %f1;"));
    assert_eq!(error.to_string(), "line 5: 'tanh.f32 %f0, %f1': instruction is not supported");
}

/// ptxas: "Entry function 'large' uses too much shared data (0xc004 bytes, 0xc000 max)".
#[test]
fn a_kernel_uses_at_most_48_kib_of_shared_variables_its_callees_included() {
    let source = |used: u32| {
        format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.shared .align 4 .b8 common[40000];
            .shared .b8 unused[40000]; .extern .shared .b8 dynamic[];
            .func helper() {{ .reg .b32 %a; mov.u32 %a, common; mov.u32 %a, dynamic; ret; }}
            .visible .entry small() {{ call helper; ret; }}
            .visible .entry large() {{ .shared .b8 own[{used}]; .reg .b32 %a; mov.u32 %a, own; call helper; ret; }}"
        )
    };
    assert!(Module::load(&source(9152)).is_ok());
    let error = refused(&source(9153));
    assert_eq!(error.line, 8, "{error}");
    assert!(error.reason.contains("large uses too much shared data (49153 bytes, 49152 at most)"), "{error}");
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    for (text, reason) in [
        ("add.u32 %r0, %r1", "3 operands"),
        ("add.u32 %r0, %r1, %d1", "%d1"),
        ("add.u32 %r9, %r1, %r1", "%r9"),
        ("add.u32 %r01, %r1, %r1", "%r01"),
        ("add.u32 5, %r1, %r1", "register"),
        ("add.f32 %f0, %f1, 1", "fit"),
        ("selp.b32 %r0, %r1, %r2, %r3", "%r3"),
        ("@%r0 ret", "%r0"),
        ("bra nowhere", "nowhere"),
        ("brx.idx %r0, nowhere", "nowhere"),
        ("mov.u64 %d0, nothing", "nothing"),
        ("call nothing", "nothing"),
        ("call k", "k"),
        ("st.param.u32 [in], %r0", "not written"),
        ("ld.shared.u32 %r0, [in]", "state space"),
        ("lop3.b32 %r0, %r1, %r2, %r3, 256", "eight bits"),
        ("bar.sync 16", "barriers"),
        ("bar.sync 1, 33", "multiple of 32"),
        ("bar.red.popc.u32 %r0, 1, 8, %p0", "multiple of 32"),
        ("bar.arrive 1, 0", "other than 0"),
        (".local .u32 l = 5", "initial value"),
        (".reg .u32 %initial = 5", "initial value"),
        ("mov.b64 {%r0, %r1, %r2}, %d0", "parts"),
        (".reg .b32 %r<4>", "twice"),
        (".local .b8 big[600000]", "local memory"),
        ("add.u32 %r0, %r1, %r2, %r3", "3 operands"),
        ("mov.u32 %r0, %tid.q", "%tid"),
        ("ld.global.u32 %r0, %d0", "brackets"),
    ] {
        let error = refused(&module(&format!("{text};")));
        assert!(error.line == 5 && error.reason.contains(reason), "{text}: {error}");
    }
}

#[test]
fn directives_that_make_no_sense_are_refused() {
    let head = ".version 8.0\n.target sm_80\n.address_size 64\n";
    for (text, reason) in [
        (".address_size 32", "64 bits"),
        (".global .u32 a[99999999999999]", "too large"),
        (".global .b8 a[2000000000]", "1 GiB"),
        (".global .u32 a[2] = {1, 2, 3}", "more values"),
        (".global .u32 a = b", "b"),
        (".global .u32 a = }", "}"),
        (".global .u32 a[4294967296][4294967296][] = {{{1}}}", "too large"),
        (".global .u32 a[0][4611686018427387904][4611686018427387904] = {{}}", "too large"),
        (".global .u32 a[0][9223372036854775808] = {{1}, {2}}", "too large"),
        (".global .u32 a[2][] = {{1}, {2}}", "first length"),
        (".global .u32 a; .global .u32 a", "twice"),
        (".global .texref t", "texref"),
        (".global .align 3 .u32 a", "power of two"),
        (".extern .func f; .entry k() { call f; ret; }", "not defined"),
        (".func f() { ret; } .entry k() { .reg .u32 %a; call (%a), f; ret; }", "number of arguments"),
        (".entry k() { bra x; x: x: ret; }", "twice"),
        (".entry k() { ret;", "does not end"),
        (".alias a, b", ".alias"),
        (".func f(.param .u32 a) { ret; } .entry k(.param .u32 b) { call f, (b); ret; }", "loaded first"),
        (".extern .global .u32 a; .entry k() { .reg .u64 %a; mov.u64 %a, a; ret; }", "not defined"),
        (".entry k() .minnreg 4 { ret; }", "not supported"),
        (".entry k(.param .align 4 .b8 a[40000]) { ret; }", "32764"),
    ] {
        let end = if text.ends_with('}') { "" } else { ";" };
        let error = refused(&format!("{head}{text}{end}\n"));
        assert!(error.line == 4 && error.reason.contains(reason), "{text}: {error}");
    }
    assert!(refused("").reason.contains(".version"));
}

#[test]
fn what_nobody_calls_may_stay_undefined() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.extern .func (.param .b32 r) malloc (.param .b64 n);\n.entry k() { ret; }";
    assert!(Module::load(text).is_ok());
}

#[test]
fn debug_information_is_skipped() {
    let text = ".version 8.0\n.target sm_80, debug\n.address_size 64\n.file 1 \"/a b/c.cu\", 1, 2\n\
        .visible .entry k() {\n.loc 1 3 0, function_name info, inlined_at 1 9 5\n$L__func_begin0:\nret;\n}\n\
        .section .debug_abbrev\n{\n.b8 1\n.b8 17, 0x2e\n$L__x:\n.b64 $L__func_begin0\n.b32 .debug_loc+12\n}\n.section .debug_loc { }\n";
    assert!(Module::load(text).is_ok(), "{:?}", Module::load(text).err());
}

#[test]
fn line_information_ends_where_its_grammar_does() {
    let source =
        ".version 8.0\n.target sm_80\n.address_size 64 .file 1 \"a.cu\" .file 2 \"b.cu\", 1, 2 .global .u32 g = 5;
        .visible .entry k(.param .u64 out) { .reg .b64 %a; .reg .b32 %x; .loc 1 3 0 ld.param.u64 %a, [out];
        .loc 2 4 1, function_name .debug_str+16, inlined_at 1 9 5 ld.global.u32 %x, [g]; .loc 1 5 2, function_name
        $L__name, inlined_at
        1 3 0 add.u32 %x, %x, 1; .file 3 \"c.cu\" st.global.u32 [%a], %x; ret; }";
    let mut bench = Bench::new(source);
    let out = bench.room(4);
    bench.run("k", 1, 1, &[Argument::P(out)]);
    assert_eq!(bench.ram.read::<u32>(out, 1), [6]);
    for text in
        [".loc 1 3", ".loc 1 3 0, inlined_at 1 2 3", ".loc 1 3 0, function_name 5, inlined_at 1 2 3", ".file 1 a"]
    {
        assert_eq!(refused(&module(text)).line, 5, "{text}");
    }
}

#[test]
fn a_name_of_many_zeros_is_looked_up_at_once() {
    let zeros = "0".repeat(1_000_000);
    assert!(refused(&module(&format!("add.u32 %r{zeros}, %r0, %r1;"))).reason.contains("not declared"));
}

#[test]
fn endless_recursion_of_many_warps_ends_before_memory_does() {
    // Each frame has these registers, of 256 bytes for a warp, and more.
    let names: Vec<String> = (0..400).map(|index| format!("%big{index}")).collect();
    let source = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.func f(.reg .b64 %calls) {{ .reg .b32 {};
        red.global.add.u32 [%calls], 1; call f, (%calls); ret; }}
        .entry k(.param .u64 calls) {{ .reg .b64 %calls; ld.param.u64 %calls, [calls]; call f, (%calls); ret; }}",
        names.join(", ")
    );
    let mut bench = Bench::new(&source);
    let calls = bench.array(&[0u32]);
    let fault = bench.try_run("k", 8, 1, &[Argument::P(calls)]).expect_err("it cannot end");
    assert_eq!(fault.kind, FaultKind::StackOverflow, "{fault}");
    let bytes = u64::from(bench.ram.read::<u32>(calls, 1)[0]) * 400 * 256;
    assert!(bytes < 1 << 30, "{bytes}");
}

#[test]
fn a_recursion_of_small_frames_may_be_deep() {
    let source = ".version 8.0\n.target sm_80\n.address_size 64\n.func (.reg .b32 %sum) f(.reg .b32 %n) {
        .reg .pred %p; .reg .b32 %x; mov.u32 %sum, 0; setp.eq.u32 %p, %n, 0; @%p ret;
        sub.u32 %x, %n, 1; call (%sum), f, (%x); add.u32 %sum, %sum, %n; ret; }
        .entry k(.param .u64 out) { .reg .b64 %out, %at; .reg .b32 %sum, %t; ld.param.u64 %out, [out];
        call (%sum), f, (8000); mov.u32 %t, %tid.x; mul.wide.u32 %at, %t, 4; add.u64 %out, %out, %at;
        st.global.u32 [%out], %sum; ret; }";
    let mut bench = Bench::new(source);
    let out = bench.room(4 * 64);
    bench.run("k", 1, 64, &[Argument::P(out)]);
    assert_eq!(bench.ram.read::<u32>(out, 64), [8000 * 8001 / 2; 64]);
}

#[test]
fn endless_recursion_is_a_fault() {
    let head = ".version 8.0\n.target sm_80\n.address_size 64\n";
    let source =
        format!("{head}.func f() {{ .local .b8 l[64]; call f; ret; }}\n.entry k(.param .u64 x) {{ call f; ret; }}");
    let fault = Bench::new(&source).try_run("k", 1, 1, &[Argument::P(0)]).expect_err("it cannot end");
    assert_eq!((fault.kind, fault.instruction.as_str()), (FaultKind::StackOverflow, "call f"));
}

#[test]
fn jumps_through_wrong_pointers_are_faults() {
    let source = module("p: .callprototype _ (); mov.u64 %d0, 48; call %d0, p;");
    let fault = Bench::new(&source).try_run("k", 1, 1, &[Argument::P(0)]).expect_err("48 is no function");
    assert_eq!((fault.kind, fault.instruction.as_str()), (FaultKind::InvalidPc, "call %d0, p"));
    let source = module("t: .branchtargets a, b; mov.u32 %r0, 2; brx.idx %r0, t; a: b:");
    let fault = Bench::new(&source).try_run("k", 1, 1, &[Argument::P(0)]).expect_err("there are two targets");
    assert_eq!(fault.kind, FaultKind::InvalidPc);
}

#[test]
fn depth_without_bound_is_refused() {
    for text in ["{".repeat(100_000), "(".repeat(100_000), "@".repeat(100_000), "a: ".repeat(2), "-".repeat(100_000)] {
        refused(&module(&text));
    }
    let nested = format!(".version 8.0\n.target sm_80\n.global .u32 a[1] = {};", "{".repeat(100_000));
    assert!(refused(&nested).reason.contains("deep"));
}

const SOURCES: [&str; 7] = [
    include_str!("fixtures/nvcc13-sm_80/tensor.ptx"),
    include_str!("fixtures/nvrtc12-sm_70/control.ptx"),
    include_str!("fixtures/nvcc13-sm_90-debug/data.ptx"),
    include_str!("fixtures/nvrtc12-sm_70/warps.ptx"),
    include_str!("fixtures/nvrtc13-sm_90-fast/atomics.ptx"),
    include_str!("fixtures/nvrtc12-sm_70/output.ptx"),
    include_str!("fixtures/nvrtc12-sm_70/half.ptx"),
];

/// One change to a text: what is at a place is left out, doubled, or replaced by what is at another place.
fn changed(text: &str, changes: &[(usize, usize, u8)]) -> String {
    let mut words: Vec<&str> = text.split_inclusive([' ', '\t', ',', ';', '.', '{', '}', '[', '%', '<']).collect();
    for &(at, from, kind) in changes {
        let (at, from) = (at % words.len(), from % words.len());
        match kind % 4 {
            0 => words[at] = words[from],
            1 => words.swap(at, from),
            2 => words.insert(at, words[from]),
            _ => {
                words.remove(at);
            }
        }
    }
    words.concat()
}

/// Runs every kernel for a little while, with arguments that mean nothing.
fn run_all(source: &str) {
    let Ok(module) = Module::load(source) else { return };
    let mut next = common::BASE;
    let mut addresses = Vec::new();
    for variable in module.variables() {
        next = next.next_multiple_of(variable.align);
        addresses.push(next);
        next += variable.size.min(1 << 16);
    }
    let program = module.link(&addresses);
    let ram = Impatient { ram: common::Ram::new(1 << 18), asked: std::sync::atomic::AtomicU32::new(0) };
    for kernel in program.kernels() {
        let mut parameters = vec![0u8; kernel.parameter_bytes().min(1 << 16)];
        for (index, byte) in parameters.iter_mut().enumerate() {
            *byte = common::BASE.to_le_bytes()[index % 8];
        }
        let block = kernel.required_block().unwrap_or([33, 1, 1]);
        let launch = ptx::Launch { kernel, grid: [2, 1, 1], block, dynamic_shared: 64, workspace: 0, parameters };
        ram.asked.store(0, std::sync::atomic::Ordering::Relaxed);
        let _ = ptx::run(&launch, &ram);
    }
}

/// Interrupts soon.
struct Impatient {
    ram: common::Ram,
    asked: std::sync::atomic::AtomicU32,
}

impl ptx::Memory for Impatient {
    fn load(&self, address: u64, bytes: u32) -> Option<u64> {
        self.ram.load(address, bytes)
    }
    fn store(&self, address: u64, bytes: u32, value: u64) -> Option<()> {
        self.ram.store(address, bytes, value)
    }
    fn update(&self, address: u64, bytes: u32, change: &mut dyn FnMut(u64) -> u64) -> Option<u64> {
        self.ram.update(address, bytes, change)
    }
    fn fence(&self, _: ptx::Scope) {}
    fn interrupted(&self) -> bool {
        self.asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 3
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 200, ..Default::default() })]

    #[test]
    fn changed_modules_neither_panic_nor_run_away(
        which in 0..SOURCES.len(),
        changes in prop::collection::vec((any::<usize>(), any::<usize>(), any::<u8>()), 1..4),
    ) {
        run_all(&changed(SOURCES[which], &changes));
    }

    #[test]
    fn any_text_is_read_without_panic(text in "[a-z0-9%.,;:{}\\[\\]()<>@!|+\\-=\" \n\t]{0,200}") {
        let _ = Module::load(&text);
        let _ = Module::load(&module(&text));
    }

    #[test]
    fn any_bytes_are_read_without_panic(text in any::<String>()) {
        let _ = Module::load(&text);
        let _ = Module::load(&module(&text));
    }
}

/// Each refused by ptxas 13.5, too.
#[test]
fn what_ptxas_refuses_is_refused() {
    for (line, reason) in [
        ("shfl.idx.b32 %r0, %r1, 0, 31;", ".sync"),
        ("vote.ballot.b32 %r0, %p1;", ".sync"),
        ("mad.lo.u32 %r0, %r1, %ntid.x, %r2;", "special registers"),
        ("and.b32 %r0, %lanemask_lt, %r1;", "special registers"),
        ("st.global.u32 [%d0], %laneid;", "special registers"),
        ("ld.global.u32 %r0, [64];", ".local"),
        ("st.shared.u32 [0], %r0;", ".local"),
        ("ld.u32 %r0, [64];", ".local"),
        (".shared .b64 bar; mbarrier.init.shared.b64 [bar], 0;", "1 to 1048575"),
        (".shared .b64 bar; mbarrier.init.shared.b64 [bar], 1048576;", "1 to 1048575"),
        (".shared .align 4 .b8 s[2+2];", "']'"),
        (
            "wmma.mma.sync.aligned.row.col.m16n16k16.s32.u8.s8.s32 {%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7}, {%r0,%r1}, \
             {%r0,%r1}, {%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7};",
            "not supported",
        ),
    ] {
        let error = refused(&module(line));
        assert!(error.reason.contains(reason), "{line}: {error}");
    }
    for (variable, reason) in [
        (".global .f32 a = 1;", "integer"),
        (".const .f64 a[2] = {1.0, 1};", "integer"),
        (".global .u32 a[2][2] = {1, 2, 3, 4};", "braces"),
        (".global .u32 a[2][2] = {{1, 2}, 3};", "braces"),
        (".global .u32 a[3] = {1, {2}, 3};", "braces"),
        (".global .u32 a = {1};", "braces"),
        (".global .u32 a[2] = 1;", "braces"),
        (".global .v2 .u32 a[2] = {1, 2, 3, 4};", "braces"),
    ] {
        let error =
            refused(&format!(".version 8.0\n.target sm_80\n.address_size 64\n{variable}\n.entry k() {{ ret; }}"));
        assert!(error.reason.contains(reason), "{variable}: {error}");
    }
    // As ptxas, which has the addresses of local variables.
    assert!(Module::load(&module("ld.local.u32 %r0, [16]; cvt.u64.u32 %d0, %tid.x;")).is_ok());
}
