//! Elements of arrays, whose index is a constant or a register (PTX ISA, "Arrays as Operands").

use crate::common::{Argument, Bench};
use ptx::Module;

/// A kernel of this body, with an array in every space. Results go to `%out`.
fn with_body(body: &str) -> String {
    format!(
        ".version 8.6\n.target sm_80\n.address_size 64
        .global .align 8 .u64 wide[4] = {{11, 22, 33, 44}}; .const .u16 narrow[4] = {{5, 6, 7, 8}}; .global .u32 one;
        .global .u32 rows[2][3] = {{{{1, 2, 3}}, {{4, 5, 6}}}}; .global .align 8 .v2 .u32 pairs[2] = {{{{1, 2}}, {{3, 4}}}};
        .shared .align 4 .u32 s[8]; .global .align 4 .u32 g[8];
        .visible .entry k(.param .u64 out, .param .align 4 .u32 list[4]) {{
        .local .align 4 .u32 l[8]; .reg .b64 %out, %a, %b; .reg .b32 %x, %y, %i, %z; .reg .s32 %n; .reg .b16 %h; .reg .f32 %f;
        .reg .b64 %w; .reg .pred %p; ld.param.u64 %out, [out];\n{body}\nret;\n}}\n"
    )
}

fn run(body: &str, words: usize) -> Vec<u32> {
    let mut bench = Bench::new(&with_body(body));
    let out = bench.room(4 * words);
    let list = [100u32, 101, 102, 103].iter().flat_map(|value| value.to_le_bytes()).collect();
    bench.run("k", 1, 1, &[Argument::P(out), Argument::Bytes(list)]);
    bench.ram.read(out, words)
}

#[test]
fn a_register_counts_elements_of_the_array() {
    let body = "
        mov.u32 %i, 2; mov.u64 %w, 2; mov.u16 %h, 1; ld.global.u64 %a, wide[%i]; cvt.u32.u64 %x, %a; st.global.u32 [%out], %x;
        ld.global.u64 %a, wide[%i+1]; cvt.u32.u64 %x, %a; st.global.u32 [%out+4], %x;
        ld.global.u64 %a, wide[%w+-1]; cvt.u32.u64 %x, %a; st.global.u32 [%out+8], %x;
        ld.u64 %a, wide[%h+1]; cvt.u32.u64 %x, %a; st.global.u32 [%out+12], %x;
        ld.const.u16 %x, narrow[%i]; st.global.u32 [%out+16], %x;
        ld.global.u32 %x, rows[%w+1]; st.global.u32 [%out+20], %x;
        ld.global.u32 %x, pairs[%h]; st.global.u32 [%out+24], %x; ld.global.u32 %x, pairs[1]; st.global.u32 [%out+28], %x;
        ld.global.v2.u32 {%x, %y}, pairs[%i]; st.global.u32 [%out+32], %y;
        ld.global.u64 %a, wide[%laneid]; cvt.u32.u64 %x, %a; st.global.u32 [%out+36], %x;
        ld.param.u32 %x, list[%i]; st.global.u32 [%out+40], %x; ld.param.u32 %x, list[1]; st.global.u32 [%out+44], %x;
        ld.global.u8 %x, wide[%i+1]; st.global.u32 [%out+48], %x;";
    assert_eq!(run(body, 13), [33, 44, 22, 33, 7, 4, 2, 2, 4, 11, 102, 101, 44]);
}

#[test]
fn stores_reach_elements_in_every_space() {
    let body = "
        mov.u32 %i, 3; mov.u64 %w, 4;
        st.shared.u32 s[%i], 1; st.shared.u32 s[%w+1], 2; ld.shared.u32 %x, [s+12]; ld.shared.u32 %y, s[5];
        st.global.v2.u32 [%out], {%x, %y};
        st.local.u32 l[%i], 3; st.local.u32 l[%w+1], 4; ld.local.u32 %x, [l+12]; ld.local.u32 %y, [l+20];
        st.global.v2.u32 [%out+8], {%x, %y};
        st.global.u32 g[%i], 5; st.u32 g[%w+1], 6; st.global.u32 g[7], 7; ld.global.u32 %x, [g+12]; ld.global.u32 %y, [g+20];
        st.global.v2.u32 [%out+16], {%x, %y}; ld.global.u32 %x, [g+28];
        mov.u64 %a, g[%i]; ld.global.u32 %y, [%a]; st.global.v2.u32 [%out+24], {%x, %y};
        mov.u32 %x, s[%i+1]; mov.u32 %y, s; sub.u32 %x, %x, %y; cvta.global.u64 %a, g[%w]; mov.u64 %b, g;
        sub.u64 %a, %a, %b; cvt.u32.u64 %y, %a; st.global.v2.u32 [%out+32], {%x, %y};";
    assert_eq!(run(body, 10), [1, 2, 3, 4, 5, 6, 7, 5, 16, 16]);
}

/// ptxas adds in 32 bits and extends the sum with zeros.
#[test]
fn an_index_of_32_bits_wraps_around_before_it_is_scaled() {
    let body = "
        mov.u32 %i, -1; mov.s32 %n, -1; ld.global.u64 %a, wide[%i+1]; cvt.u32.u64 %x, %a; st.global.u32 [%out], %x;
        mov.u64 %a, wide[%n]; mov.u64 %b, wide; sub.u64 %a, %a, %b; st.global.u64 [%out+8], %a;
        st.shared.u32 [s], 9; mov.u32 %i, 0x40000000; ld.shared.u32 %x, s[%i]; st.global.u32 [%out+4], %x;";
    assert_eq!(run(body, 4), [11, 9, 0xffff_fff8, 7]);
}

#[test]
fn what_is_no_element_is_refused() {
    for (text, reason) in [
        ("ld.global.u32 %x, g[%f]", "%f has the type F32, which is no index"),
        ("ld.global.u32 %x, g[%p]", "%p has the type Pred, which is no index"),
        ("ld.global.u32 %x, g[%nothing]", "%nothing is not declared"),
        ("ld.global.u32 %x, g[one]", "one is not declared as a register"),
        ("ld.global.u32 %x, one[%i]", "one is not an array"),
        ("ld.global.u32 %x, one[0]", "one is not an array"),
        ("ld.global.u32 %x, %a[%i]", "%a has no address"),
        ("ld.shared.u32 %x, g[%i]", "g is not in this state space"),
        ("ld.global.u32 %x, g[%i-1]", "']' was expected before '-'"),
        ("ld.global.u32 %x, g[1+%i]", "an integer was expected before '%i'"),
        ("ld.global.u32 %x, g[%i+%y]", "an integer was expected before '%y'"),
        ("ld.global.u32 %x, rows[1][%i]", "before '['"),
        ("ld.global.u32 %x, [g[%i]]", "']' was expected before '['"),
        ("ld.global.u32 %x, g[%i", "']' was expected before ';'"),
        ("red.global.add.u32 g[%i], 1", "an address in brackets was expected"),
        ("atom.global.add.u32 %x, g[1], 1", "an address in brackets was expected"),
        ("cp.async.ca.shared.global s[%i], [%a], 4", "an address in brackets was expected"),
        ("prefetch.global.L2 g[%i]", "an address in brackets was expected"),
        ("add.u16 %h, g[%i], 1", "does not fit"),
    ] {
        let error = Module::load(&with_body(&format!("{text};"))).expect_err(text);
        assert!(error.reason.contains(reason), "{text}: {error}");
    }
}
