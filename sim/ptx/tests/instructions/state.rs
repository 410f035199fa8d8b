//! Memory of every state space, and special registers.

use crate::common::{Argument, Bench};
use crate::{evaluate, kernel};
use ptx::{FaultKind, Module};

/// A kernel of this body, whose parameter `out` is in `%out`.
fn with_body(declarations: &str, body: &str) -> String {
    format!(
        ".version 8.6\n.target sm_90\n.address_size 64\n{declarations}\n.visible .entry k(.param .u64 out)\n{{\n\
         .reg .b64 %out, %a, %b; .reg .b32 %x, %y, %z; .reg .b16 %h; .reg .pred %p;\n\
         ld.param.u64 %out, [out];\n{body}\nret;\n}}\n"
    )
}

fn run(source: &str, words: usize) -> Vec<u32> {
    let mut bench = Bench::new(source);
    let out = bench.room(4 * words);
    bench.run("k", 1, 1, &[Argument::P(out)]);
    bench.ram.read(out, words)
}

#[test]
fn loads_extend_as_their_type_says() {
    let types = &["b64", "b64"];
    let through = |load: &str| {
        let text = format!("{{ .local .b64 %m; st.local.b64 [%m], %a; ld.local.{load} %d, [%m]; }}");
        evaluate(&text, types, &[[0xffff_ffff_ffff_ff80, 0, 0]])[0]
    };
    assert_eq!(through("u8"), 0x80);
    assert_eq!(through("s8"), 0xffff_ffff_ffff_ff80);
    assert_eq!(through("b16"), 0xff80);
    assert_eq!(through("s16"), 0xffff_ffff_ffff_ff80);
    assert_eq!(through("u32"), 0xffff_ff80);
    assert_eq!(through("s32"), 0xffff_ffff_ffff_ff80);
}

#[test]
fn generic_addresses_reach_every_space() {
    let declarations = ".shared .align 8 .b32 s[4]; .global .align 4 .u32 g[2] = {7, 8}; .const .u32 c[2] = {5, 6};";
    let body = "
        .local .align 8 .b32 l[4];
        mov.u32 %x, 1; st.shared.u32 [s+4], %x; mov.u32 %x, 2; st.local.u32 [l+8], %x;
        mov.u64 %a, s; cvta.shared.u64 %a, %a; ld.u32 %x, [%a+4]; st.global.u32 [%out], %x;
        cvta.local.u64 %a, l; ld.u32 %x, [%a+8]; st.global.u32 [%out+4], %x;
        cvta.global.u64 %a, g; ld.u32 %x, [%a+4]; st.u32 [%out+8], %x;
        cvta.const.u64 %a, c; ld.u32 %x, [%a]; st.global.u32 [%out+12], %x;
        mov.u64 %a, g+4; ld.global.u32 %x, [%a+-4]; st.global.u32 [%out+16], %x;
        mov.u64 %a, s; cvta.shared.u64 %a, %a; isspacep.shared %p, %a; selp.u32 %x, 1, 0, %p;
        isspacep.global %p, %a; selp.u32 %y, 2, 0, %p; add.u32 %x, %x, %y;
        isspacep.local %p, %a; selp.u32 %y, 4, 0, %p; add.u32 %x, %x, %y; st.global.u32 [%out+20], %x;
        cvta.to.shared.u64 %b, %a; mov.u64 %a, s; sub.u64 %a, %a, %b; cvt.u32.u64 %x, %a; st.global.u32 [%out+24], %x;
        cvta.param.u64 %a, out; ld.u64 %b, [%a]; sub.u64 %b, %b, %out; cvt.u32.u64 %x, %b; st.global.u32 [%out+28], %x;";
    assert_eq!(run(&with_body(declarations, body), 8), [1, 2, 8, 5, 7, 1, 0, 0]);
}

#[test]
fn vectors_move_whole_even_over_their_own_address() {
    let declarations = ".global .align 16 .b64 g[2] = {0x1122334455667788, 0x99};";
    let body = "
        cvta.global.u64 %a, g; ld.global.v2.u64 {%a, %b}, [%a];
        cvt.u32.u64 %x, %a; cvt.u32.u64 %y, %b; st.global.v2.u32 [%out], {%x, %y};
        ld.global.v4.u8 {%x, _, %y, %z}, [g]; st.global.u32 [%out+8], %x; st.global.u32 [%out+12], %y;
        st.volatile.global.u32 [%out+16], %z; ld.global.nc.L1::no_allocate.L2::128B.s16 %x, [g+2];
        st.relaxed.sys.global.u32 [%out+20], %x; prefetch.global.L2 [g];";
    assert_eq!(run(&with_body(declarations, body), 6), [0x5566_7788, 0x99, 0x88, 0x66, 0x55, 0x5566]);
}

#[test]
fn first_values_hold_addresses_and_rows() {
    let declarations = "
        .global .align 4 .u32 target[2] = {11, 22};
        .global .align 8 .u64 pointer[2] = {generic(target)+4, target};
        .global .align 8 .u8 packed[16] = {1, 2, 0xFF(target), 0xFF00(target), 0, 0, 0, 0, 3};
        .global .align 4 .f32 real[3] = {0f3F800000, 2.5, 3.0};
        .global .align 4 .u32 rows[2][3] = {{1}, {4, 5, 6}};
        .global .align 4 .s32 negative = -2;";
    let body = "
        ld.global.u64 %a, [pointer]; ld.global.u32 %x, [%a]; st.global.u32 [%out], %x;
        ld.global.u8 %x, [packed+2]; ld.global.u8 %y, [packed+3]; shl.b32 %y, %y, 8; or.b32 %x, %x, %y;
        mov.u64 %a, target; cvt.u32.u64 %y, %a; and.b32 %y, %y, 0xffff; sub.u32 %x, %x, %y; st.global.u32 [%out+4], %x;
        ld.global.u32 %x, [packed+8]; st.global.u32 [%out+8], %x;
        ld.global.u32 %x, [real+4]; st.global.u32 [%out+12], %x; ld.global.u32 %x, [real+8]; st.global.u32 [%out+16], %x;
        ld.global.u32 %x, [rows+8]; st.global.u32 [%out+20], %x; ld.global.u32 %x, [rows+12]; st.global.u32 [%out+24], %x;
        ld.global.u32 %x, [negative]; st.global.u32 [%out+28], %x;";
    let expected = [22, 0, 3, 2.5f32.to_bits(), 3f32.to_bits(), 0, 4, u32::MAX - 1];
    assert_eq!(run(&with_body(declarations, body), 8), expected);
}

#[test]
fn special_registers_describe_the_thread() {
    let source = with_body(
        "",
        "mov.u32 %x, %tid.x; mov.u32 %y, %tid.y; mov.u32 %z, %ntid.x; mad.lo.u32 %x, %y, %z, %x; mul.wide.u32 %a, %x, 32;
         add.u64 %out, %out, %a; mov.u32 %x, %laneid; st.global.u32 [%out], %x;
         mov.u32 %x, %warpid; st.global.u32 [%out+4], %x; mov.u32 %x, %nwarpid; st.global.u32 [%out+8], %x;
         mov.u32 %x, %lanemask_lt; mov.u32 %y, %lanemask_ge; add.u32 %x, %x, %y; st.global.u32 [%out+12], %x;
         mov.u32 %x, %lanemask_eq; st.global.u32 [%out+16], %x; mov.u32 %x, %nctaid.x; st.global.u32 [%out+20], %x;
         mov.u32 %x, %dynamic_smem_size; st.global.u32 [%out+24], %x; mov.u32 %x, WARP_SZ; st.global.u32 [%out+28], %x;",
    );
    let mut bench = Bench::new(&source);
    let out = bench.room(32 * 70);
    let mut launch = bench.launch("k", [1, 1, 1], [35, 2, 1], &[Argument::P(out)]);
    launch.dynamic_shared = 12;
    ptx::run(&launch, &bench.ram).expect("the kernel runs");
    for (number, result) in (0u32..).zip(bench.ram.read::<u32>(out, 8 * 70).chunks(8)) {
        let lane = number % 32;
        assert_eq!(result, [lane, number / 32, 3, u32::MAX, 1 << lane, 1, 12, 32]);
    }
}

/// PTX ISA, `%ntid`: "The fourth element is unused and always returns zero."
#[test]
fn fourth_elements_are_zero_and_missing_dimensions_one() {
    let read = |(at, name): (usize, &str)| format!("mov.u32 %x, {name}; st.global.u32 [%out+{}], %x;", 4 * at);
    let fourth = ["%tid", "%ntid", "%ctaid", "%nctaid"];
    let body: String =
        fourth.map(|name| format!("{name}.w")).iter().map(String::as_str).enumerate().map(read).collect();
    assert_eq!(run(&with_body("", &body), 4), [0; 4]);
    let lengths = ["%ntid.y", "%ntid.z", "%nctaid.x", "%nctaid.z"];
    let body: String = lengths.into_iter().enumerate().map(read).collect();
    assert_eq!(run(&with_body("", &body), 4), [1; 4]);
}

#[test]
fn the_first_length_of_an_array_follows_from_its_values() {
    let declarations = "
        .global .s32 offset[][2] = { {-1, 0}, {0, -1}, {1, 0}, {0, 1} }; .global .u32 rows[][3] = {{1, 2, 3}, {4}};
        .global .align 16 .v4 .u32 vectors[] = { {1, 2, 3, 4}, {5, 6} }; .global .align 4 .u8 bytes[] = {7, 8, 9};";
    let body = "
        ld.global.u32 %x, [offset+16]; st.global.u32 [%out], %x; ld.global.u32 %x, [rows+12]; st.global.u32 [%out+4], %x;
        ld.global.u32 %x, [vectors+20]; st.global.u32 [%out+8], %x;";
    let source = with_body(declarations, body);
    assert_eq!(run(&source, 3), [1, 4, 6]);
    let module = Module::load(&source).expect("the module loads");
    assert_eq!(module.variables().iter().map(|one| one.size).collect::<Vec<_>>(), [32, 24, 32, 3]);
}

#[test]
fn a_call_of_a_pointer_does_not_reach_the_shared_memory_of_other_kernels() {
    let source = ".version 8.0\n.target sm_80\n.address_size 64\n.shared .align 4 .b8 of_function[24];
        .func f() { .reg .u64 %a; mov.u64 %a, of_function; ret; }
        .visible .entry first() { .reg .u64 %a; mov.u64 %a, f; p: .callprototype _ (); call %a, (), p; ret; }
        .visible .entry second() { .shared .align 4 .b8 own[40000]; .reg .u64 %a; mov.u64 %a, own; ret; }
        .visible .entry third() { .shared .align 4 .b8 own[40000]; .reg .u64 %a; mov.u64 %a, own; ret; }";
    let program = ptx::Module::load(source).expect("the module loads").link(&[]);
    let bytes: Vec<u64> = program.kernels().map(|kernel| kernel.shared_bytes()).collect();
    assert_eq!(bytes, [24, 40000, 40000]);
}

#[test]
fn reserved_shared_memory_is_apart_from_the_kernels_own() {
    let declarations = ".shared .align 4 .b8 s[20]; .extern .shared .b8 dynamic[];";
    let body = "mov.u32 %x, %reserved_smem_offset_begin; mov.u32 %y, %reserved_smem_offset_end; sub.u32 %y, %y, %x;
         st.global.u32 [%out], %y; mov.u32 %y, %reserved_smem_offset_cap; st.global.u32 [%out+4], %y;
         st.shared.u32 [s], 5; st.shared.u32 [dynamic+8], 7; mov.u32 %y, %reserved_smem_offset_1; ld.shared.u32 %x, [%y];
         st.global.u32 [%out+8], %x; st.shared.u32 [%y], 9; st.shared.u32 [%y+284], 9; ld.shared.u32 %x, [dynamic+8];
         st.global.u32 [%out+12], %x; cvt.u64.u32 %a, %y; cvta.shared.u64 %a, %a; ld.u32 %x, [%a];
         st.global.u32 [%out+16], %x; mov.u32 %x, %total_smem_size; st.global.u32 [%out+20], %x;
         mov.u32 %x, %pm3; st.global.u32 [%out+24], %x; mov.u64 %a, %current_graph_exec; st.global.u64 [%out+32], %a;";
    let mut bench = Bench::new(&with_body(declarations, body));
    let out = bench.room(40);
    let mut launch = bench.launch("k", [2, 1, 1], [1, 1, 1], &[Argument::P(out)]);
    launch.dynamic_shared = 12;
    ptx::run(&launch, &bench.ram).expect("the kernel runs");
    assert_eq!(bench.ram.read::<u32>(out, 10), [1024, 1024, 0, 7, 9, 44, 0, 0, 0, 0]);
}

#[test]
fn a_kernel_without_reserved_shared_memory_faults_behind_its_own() {
    let source = with_body(".shared .b8 s[16];", "mov.u32 %x, %total_smem_size; ld.shared.u32 %y, [%x];");
    let mut bench = Bench::new(&source);
    let out = bench.room(16);
    let fault = bench.try_run("k", 1, 1, &[Argument::P(out)]).expect_err("the access is out of bounds");
    assert_eq!(fault.kind, FaultKind::IllegalAddress, "{fault}");
}

#[test]
fn misaligned_and_foreign_addresses_fault_with_their_line() {
    for (body, kind, bytes) in [
        ("ld.global.u32 %x, [%out+2];", FaultKind::MisalignedAddress, 4),
        ("ld.global.v2.u32 {%x, %y}, [%out+4];", FaultKind::MisalignedAddress, 4),
        ("mov.u64 %b, 64; st.global.u64 [%b], %a;", FaultKind::IllegalAddress, 8),
        ("st.shared.u16 [s+16], %h;", FaultKind::IllegalAddress, 2),
        ("ld.local.u32 %x, [%a];", FaultKind::IllegalAddress, 4),
        ("atom.global.add.u32 %x, [%out+1], %y;", FaultKind::MisalignedAddress, 4),
        ("mov.u64 %a, s; cvta.shared.u64 %a, %a; ld.u8 %x, [%a+16];", FaultKind::IllegalAddress, 1),
        ("add.u64 %a, %out, 0x7000000000000000;\n st.u32 [%a], %x;", FaultKind::IllegalAddress, 4),
    ] {
        let source = with_body(".shared .b8 s[16];", body);
        let mut bench = Bench::new(&source);
        let out = bench.room(16);
        let fault = bench.try_run("k", 1, 1, &[Argument::P(out)]).expect_err(body);
        assert_eq!((fault.kind, fault.bytes), (kind, bytes), "{body}: {fault}");
        let line = source.lines().nth(fault.line as usize - 1).expect("the line exists");
        assert!(line.contains(&fault.instruction), "{fault}");
        assert!(fault.to_string().contains(&fault.instruction), "{fault}");
    }
}

#[test]
fn shared_memory_is_laid_out_for_each_kernel() {
    let source = ".version 8.6\n.target sm_90\n.address_size 64\n.shared .align 16 .b8 common[100];
        .visible .entry first() { .shared .align 4 .b8 own[1000]; .reg .u64 %a; mov.u64 %a, own; mov.u64 %a, common; ret; }
        .visible .entry second() { .shared .align 256 .b8 own[512]; .reg .u64 %a; mov.u64 %a, own; mov.u64 %a, common; ret; }
        .visible .entry third() { ret; }";
    let program = Module::load(source).expect("the module loads").link(&[]);
    let bytes = |name: &str| program.kernel(name).expect("the kernel is there").shared_bytes();
    assert_eq!((bytes("first"), bytes("second"), bytes("third")), (1100, 768, 0));
}

#[test]
fn a_kernel_tells_what_a_launch_needs() {
    let source = ".version 7.8\n.target sm_86, debug\n.address_size 64
        .visible .entry k(.param .u8 a, .param .align 8 .b8 b[12], .param .u64 .ptr .global .align 16 c)
        .reqntid 8, 4 .minnctapersm 2 { .local .b8 l[24]; ret; }
        .entry other() .maxntid 128, 2, 1 { ret; }";
    let program = Module::load(source).expect("the module loads").link(&[]);
    let kernel = program.kernel("k").expect("the kernel is there");
    let places: Vec<_> = kernel.parameters().iter().map(|place| (place.offset, place.size, place.align)).collect();
    assert_eq!(places, [(0, 1, 1), (8, 12, 8), (24, 8, 8)]);
    assert_eq!((kernel.parameter_bytes(), kernel.local_bytes(), kernel.shared_bytes()), (32, 24, 0));
    assert_eq!((kernel.required_block(), kernel.max_threads()), (Some([8, 4, 1]), Some(32)));
    assert_eq!((kernel.target(), kernel.version()), (86, (7, 8)));
    let other = program.kernel("other").expect("the kernel is there");
    assert_eq!((other.required_block(), other.max_threads()), (None, Some(256)));
    assert_eq!(program.kernels().count(), 2);
}

#[test]
fn registers_have_the_width_of_their_instruction() {
    let error = Module::load(&kernel("add.u64 %d, %a, %b;", &["b64", "b64", "b32"])).expect_err("%b is too narrow");
    assert!(error.reason.contains("%b"), "{error}");
}

#[test]
fn an_external_shared_array_with_a_size_is_static() {
    let declarations = ".extern .shared .align 8 .b8 s[256]; .extern .shared .align 4 .b8 dynamic[];";
    let body = "
        mov.u32 %x, 7; st.shared.u32 [s+252], %x; ld.shared.u32 %y, [s+252]; st.global.u32 [%out], %y;
        mov.u32 %x, dynamic; st.global.u32 [%out+4], %x; mov.u32 %x, %total_smem_size; st.global.u32 [%out+8], %x;";
    assert_eq!(run(&with_body(declarations, body), 3), [7, 256, 256]);
}

#[test]
fn an_access_outside_shared_memory_is_reported_with_its_size() {
    let body = "mov.u32 %x, 1; st.shared.u32 [s+16], %x;";
    let mut bench = Bench::new(&with_body(".shared .align 4 .b8 s[16];", body));
    let out = bench.room(4);
    let launch = bench.launch("k", [1; 3], [1; 3], &[Argument::P(out)]);
    let fault = ptx::run(&launch, &bench.ram).map_err(|fault| (fault.kind, fault.detail));
    assert_eq!(fault, Err((FaultKind::IllegalAddress, "outside the 16 bytes of shared memory".to_owned())));
}

#[test]
fn an_address_of_32_bits_in_shared_memory_wraps_around() {
    let declarations = ".shared .align 4 .b32 s[4];";
    let body = "
        mov.u32 %x, s; mov.u32 %z, 9; st.shared.u32 [%x], %z;
        add.s32 %x, %x, -4; ld.shared.u32 %y, [%x+4]; st.global.u32 [%out], %y;
        atom.shared.add.u32 %y, [%x+4], 1; ld.shared.u32 %y, [%x+4]; st.global.u32 [%out+4], %y;
        mov.u32 %z, 3; st.shared.u32 [%x+12], %z; ld.shared.u32 %y, [s+8]; st.global.u32 [%out+8], %y;";
    assert_eq!(run(&with_body(declarations, body), 3), [9, 10, 3]);
}

#[test]
fn an_address_of_64_bits_in_shared_memory_does_not_wrap_around() {
    let body = "mov.u64 %a, s; cvta.shared.u64 %a, %a; ld.shared.u32 %x, [%a];";
    let mut bench = Bench::new(&with_body(".shared .align 4 .b32 s[4];", body));
    let out = bench.room(4);
    let launch = bench.launch("k", [1; 3], [1; 3], &[Argument::P(out)]);
    assert_eq!(ptx::run(&launch, &bench.ram).map_err(|fault| fault.kind), Err(FaultKind::IllegalAddress));
}

#[test]
fn the_environment_registers_hold_the_workspace_of_a_cooperative_launch() {
    let body = "
        mov.u32 %x, %envreg1; st.global.u32 [%out], %x; mov.u32 %x, %envreg2; st.global.u32 [%out+4], %x;
        mov.u32 %x, %envreg0; st.global.u32 [%out+8], %x; mov.b32 %x, %envreg31; st.global.u32 [%out+12], %x;";
    let mut bench = Bench::new(&with_body("", body));
    let out = bench.room(16);
    let mut launch = bench.launch("k", [1; 3], [1; 3], &[Argument::P(out)]);
    assert_eq!(ptx::run(&launch, &bench.ram), Ok(()));
    assert_eq!(bench.ram.read::<u32>(out, 4), [0; 4]);
    launch.workspace = 0x1234_5678_9abc;
    assert_eq!(ptx::run(&launch, &bench.ram), Ok(()));
    assert_eq!(bench.ram.read::<u32>(out, 4), [0x1234, 0x5678_9abc, 0, 0]);
}
