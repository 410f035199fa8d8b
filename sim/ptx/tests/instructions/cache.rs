//! Hints to the caches and cache policies, which change no result.

use crate::common::{Argument, Bench};
use ptx::Module;

fn with_body(body: &str) -> String {
    format!(
        ".version 8.6\n.target sm_80\n.address_size 64\n.global .align 128 .u32 g[32] = {{1, 2, 3, 4}};
        .shared .align 16 .u32 s[4];\n.visible .entry k(.param .u64 out) {{
        .reg .b64 %out, %p, %a; .reg .b32 %x, %y; .reg .f32 %f; ld.param.u64 %out, [out]; mov.u64 %a, g;
        {body}\nret;\n}}\n"
    )
}

#[test]
fn accesses_take_a_cache_policy() {
    let body = "
        createpolicy.fractional.L2::evict_last.b64 %p; createpolicy.fractional.L2::evict_first.L2::evict_unchanged.b64 %p, 0.5;
        createpolicy.range.global.L2::evict_last.L2::evict_unchanged.b64 %p, [%a], 64, 128;
        createpolicy.range.L2::evict_normal.b64 %p, [%a], 64, 128; createpolicy.cvt.L2.b64 %p, 0x10f0000000000000;
        createpolicy.fractional.L2::evict_last.b64 %p, 1.0;
        applypriority.global.L2::evict_normal [%a], 128; prefetch.global.L2 [%a]; prefetch.global.L2::evict_last [%a];
        ld.global.L1::evict_first.L2::cache_hint.u32 %x, [%a], %p; st.global.L2::cache_hint.u32 [%out], %x, %p;
        ld.global.nc.L2::cache_hint.v2.u32 {%x, %y}, [%a+8], 0x14f0000000000000;
        st.global.L1::no_allocate.L2::cache_hint.v2.u32 [%out+8], {%x, %y}, %p;
        atom.global.add.L2::cache_hint.u32 %x, [%a], 5, %p; st.global.u32 [%out+4], %x;
        red.global.add.L2::cache_hint.u32 [%a], 6, %p; ld.global.u32 %x, [%a]; st.global.u32 [%out+16], %x;
        cp.async.cg.shared.global.L2::cache_hint [s], [%a], 16, %p; cp.async.wait_all; ld.shared.u32 %x, [s+4];
        cp.async.cg.shared.global.L2::cache_hint [s], [%a], 16, 4, %p; cp.async.wait_all; ld.shared.u32 %y, [s+4];
        st.global.u32 [%out+20], %x; st.global.u32 [%out+24], %y; discard.global.L2 [%a], 128;";
    let mut bench = Bench::new(&with_body(body));
    let out = bench.room(28);
    bench.run("k", 1, 1, &[Argument::P(out)]);
    assert_eq!(bench.ram.read::<u32>(out, 7), [1, 1, 3, 4, 12, 2, 0]);
}

#[test]
fn wrong_hints_are_refused() {
    for text in [
        "createpolicy.fractional.L2::evict_last.b32 %x, 1.0",
        "createpolicy.fractional.b64 %p, 1.0",
        "createpolicy.range.L2::evict_last.b64 %p, [%a], 64",
        "createpolicy.cvt.L2.b64 %p",
        "ld.global.L2::cache_hint.u32 %x, [%a]",
        "ld.global.L2::cache_hint.u32 %x, [%a], %x",
        "ld.global.u32 %x, [%a], %p",
        "mov.L2::cache_hint.u64 %p, %a, %p",
        "discard.global.L2 [%a], 64",
        "discard.global [%a], 128",
        "applypriority.global.L2::evict_last [%a], 128",
    ] {
        assert!(Module::load(&with_body(&format!("{text};"))).is_err(), "{text}");
    }
}
