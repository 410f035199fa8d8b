//! The kernel's parameters and a function's own: two spaces of one name (PTX ISA, "Parameter State Space").

use crate::common::{Argument, Bench};

/// A kernel that calls `f` with the place of its first parameter, `out`, in the parameters' space.
fn with_function(body: &str) -> String {
    format!(
        ".version 8.6\n.target sm_90\n.address_size 64
        .func f(.param .b32 before, .param .b32 own, .param .b64 place) {{
            .reg .b64 %at, %out, %a, %l; .reg .b32 %x, %y; .reg .pred %p;
            ld.param.u64 %at, [place]; mov.b64 %l, own;\n{body}\nret;
        }}
        .visible .entry k(.param .u64 out, .param .u32 second) {{
            .reg .b64 %a; .param .b32 one; .param .b32 two; .param .b64 place;
            mov.b64 %a, out; st.param.b32 [one], 11; st.param.b32 [two], 22; st.param.b64 [place], %a;
            call f, (one, two, place); ret;
        }}"
    )
}

fn run(source: &str, threads: u32, words: usize) -> Vec<u32> {
    let mut bench = Bench::new(source);
    let out = bench.room(4 * words);
    bench.run("k", 1, threads, &[Argument::P(out), Argument::U32(77)]);
    bench.ram.read(out, words)
}

#[test]
fn a_function_reaches_the_parameters_of_its_kernel() {
    let body = "
        cvta.param.u64 %a, %at; ld.u64 %out, [%a]; ld.u32 %x, [%a+8]; st.global.u32 [%out], %x;
        ld.param::entry.u32 %x, [%at+8]; st.global.u32 [%out+4], %x;
        isspacep.param %p, %a; selp.u32 %x, 1, 0, %p; isspacep.param::entry %p, %a; selp.u32 %y, 2, 0, %p;
        add.u32 %x, %x, %y; isspacep.local %p, %a; selp.u32 %y, 4, 0, %p; add.u32 %x, %x, %y; st.global.u32 [%out+8], %x;
        cvta.param::entry.u64 %a, %at; ld.u32 %x, [%a+8]; st.global.u32 [%out+12], %x;
        cvta.to.param.u64 %a, %a; sub.u64 %a, %a, %at; st.global.u32 [%out+16], %a;";
    let body = body.replace("st.global.u32 [%out+16], %a;", "st.global.u64 [%out+16], %a;");
    assert_eq!(run(&with_function(&body), 1, 6), [77, 77, 3, 77, 0, 0]);
}

#[test]
fn a_function_loads_its_own_parameters_by_default() {
    let body = "
        cvta.param.u64 %a, %at; ld.u64 %out, [%a];
        ld.param.u32 %x, [own]; st.global.u32 [%out], %x; ld.param.u32 %x, [%l]; st.global.u32 [%out+4], %x;
        ld.param::func.u32 %x, [%l]; st.global.u32 [%out+8], %x;
        st.param.u32 [%l], 33; ld.param.u32 %x, [own]; st.global.u32 [%out+12], %x;";
    assert_eq!(run(&with_function(body), 1, 4), [22, 22, 22, 33]);
}

/// PTX ISA, `isspacep`: "isspacep.global returns 1 for Kernel Function Parameters as .param window is contained within the
/// .global window."
#[test]
fn the_window_of_the_parameters_is_in_that_of_global_memory() {
    let source = ".version 8.6\n.target sm_90\n.address_size 64
        .visible .entry k(.param .u64 out, .param .align 8 .u32 second) {
        .reg .b64 %out, %a, %at; .reg .b32 %x, %y, %t; .reg .pred %p, %few;
        ld.param.u64 %out, [out]; mov.u32 %t, %tid.x; mul.wide.u32 %at, %t, 16; add.u64 %out, %out, %at;
        cvta.param.u64 %a, second; isspacep.global %p, %a; selp.u32 %x, 1, 0, %p;
        isspacep.shared %p, %a; selp.u32 %y, 2, 0, %p; add.u32 %x, %x, %y; st.global.u32 [%out], %x;
        cvta.to.global.u64 %a, %a; ld.global.u32 %x, [%a]; st.global.u32 [%out+4], %x;
        ld.global.s16 %x, [%a]; st.global.u32 [%out+8], %x;
        setp.gt.u32 %few, %t, 2; @%few bra end; ld.global.u32 %x, [%a]; st.global.u32 [%out+12], %x;
        end: ret; }";
    for chunk in run(source, 32, 12).chunks(4) {
        assert_eq!(chunk, [1, 77, 77, 77]);
    }
    assert_eq!(run(source, 1, 4), [1, 77, 77, 77]);
}

#[test]
fn vectors_are_returned_and_loaded_whole() {
    let source = ".version 8.6\n.target sm_90\n.address_size 64
        .func (.param .align 16 .b8 four[16]) count() {
            .reg .b32 %w<4>;
            mov.u32 %w0, 5; mov.u32 %w1, 6; mov.u32 %w2, 7; mov.u32 %w3, 8; st.param.v4.b32 [four+0], {%w0, %w1, %w2, %w3}; ret;
        }
        .visible .entry k(.param .u64 out, .param .u32 second) {
            .reg .b64 %out; .reg .b32 %w<4>; .param .align 16 .b8 four[16];
            ld.param.u64 %out, [out]; call.uni (four), count, (); ld.param.v4.b32 {%w0, %w1, %w2, %w3}, [four+0];
            st.global.v4.u32 [%out], {%w3, %w2, %w1, %w0}; ret;
        }";
    assert_eq!(run(source, 1, 4), [8, 7, 6, 5]);
}
