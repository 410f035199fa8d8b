//! Constants: integers, floating-point bits, and addresses cut to 32 bits.

use crate::common::{Argument, Bench};
use ptx::Module;

fn with_body(body: &str) -> String {
    format!(
        ".version 8.6\n.target sm_90\n.address_size 64
        .global .align 8 .u32 g[4] = {{2, 12, -5, 0xf0}};
        .global .align 8 .u64 p[1] = {{g+8}}; .shared .align 4 .u32 s[4];
        .visible .entry k(.param .u64 out) {{
        .reg .b64 %out, %a; .reg .b32 %x, %y; .reg .f32 %f; .reg .f64 %d; .reg .pred %p; ld.param.u64 %out, [out];\n{body}\nret;\n}}\n"
    )
}

fn run(body: &str, words: usize) -> Vec<u32> {
    let mut bench = Bench::new(&with_body(body));
    let out = bench.room(4 * words);
    bench.run("k", 1, 1, &[Argument::P(out)]);
    bench.ram.read(out, words)
}

#[test]
fn constants_have_signs() {
    let loads: String = (0..4)
        .map(|at| format!("ld.global.u32 %x, [g+{}]; st.global.u32 [%out+{}], %x;", 4 * at, 4 * at))
        .chain(["ld.global.u64 %a, [p]; ld.global.u32 %x, [%a+8+-8]; st.global.u32 [%out+16], %x;".to_owned()])
        .chain(["add.u32 %x, -1, -2; st.global.u32 [%out+20], %x;".to_owned()])
        .collect();
    assert_eq!(run(&loads, 6), [2, 12, 5u32.wrapping_neg(), 240, 5u32.wrapping_neg(), 3u32.wrapping_neg()]);
}

#[test]
fn what_is_no_constant_is_refused() {
    for (text, reason) in [
        ("mov.u32 %x, 1+2;", "before '+'"),
        ("mov.u32 %x, (1);", "before '('"),
        ("mov.u32 %x, g+;", "an integer was expected before ';'"),
        ("mov.u32 %x, g+%y;", "an integer was expected before '%y'"),
        ("mov.u32 %x, g+0f3F800000;", "an integer was expected"),
        ("mov.u32 %x, --1;", "a number was expected before '-'"),
        ("ld.global.u32 %x, g[1];", "before '['"),
    ] {
        let error = Module::load(&with_body(text)).expect_err(text);
        assert!(error.reason.contains(reason), "{error}");
    }
}

#[test]
fn a_signalling_nan_keeps_its_bits() {
    let body = "
        mov.f32 %f, 0f7F800001; st.global.f32 [%out], %f; mov.b32 %x, 0fFF812345; st.global.u32 [%out+4], %x;
        mov.f64 %d, 0d7FF0000000000001; st.global.f64 [%out+8], %d;";
    assert_eq!(run(body, 4), [0x7f80_0001, 0xff81_2345, 1, 0x7ff0_0000]);
}

#[test]
fn an_address_in_a_register_of_32_bits_is_its_lower_half() {
    let body = "
        mov.u32 %x, g; mov.b64 %a, {%x, %x}; st.global.u64 [%out], %a; shr.u32 %y, %x, 16; st.global.u32 [%out+8], %y;
        mov.u32 %x, g+4; mov.b64 %a, {%x, %x}; st.global.u64 [%out+16], %a;
        mov.u32 %x, s-4; mov.u32 %y, s; sub.u32 %y, %y, 4; mov.b64 %a, {%x, %y}; st.global.u64 [%out+24], %a;
        mov.u64 %a, g; shr.u64 %a, %a, 32; st.global.u64 [%out+32], %a;";
    let words = run(body, 10);
    let g = words[0];
    assert_eq!(words[..3], [g, g, g >> 16]);
    assert_eq!(words[4..], [g + 4, g + 4, u32::MAX - 3, u32::MAX - 3, 0x7f00, 0]);
}
