//! Lanes of a warp that go different ways, wait for each other, or fault one by one.

#![expect(clippy::expect_used, reason = "a test that panics fails")]

mod common;

use common::{Argument, Bench};
use ptx::FaultKind;

/// A kernel of this body: `%t` is the thread's index, `%out` the address of its word, `%base` that of the first word.
fn kernel(functions: &str, body: &str) -> String {
    format!(
        ".version 8.6\n.target sm_90\n.address_size 64\n{functions}\n.visible .entry k(.param .u64 out)\n{{\n\
         .reg .b64 %out, %base, %a; .reg .b32 %t, %x, %y, %z, %never; .reg .pred %p, %q;\n\
         .shared .align 8 .b32 s[64];\n\
         ld.param.u64 %base, [out]; mov.u32 %t, %tid.x; mul.wide.u32 %a, %t, 4; add.u64 %out, %base, %a;\n\
         {body}\nret;\n}}\n"
    )
}

fn run_blocks(functions: &str, body: &str, blocks: u32, threads: u32) -> Vec<u32> {
    let mut bench = Bench::new(&kernel(functions, body));
    let out = bench.room(4 * threads as usize);
    bench.run("k", blocks, threads, &[Argument::P(out)]);
    bench.ram.read(out, threads as usize)
}

fn run(body: &str, threads: u32) -> Vec<u32> {
    run_blocks("", body, 1, threads)
}

#[test]
fn lanes_hand_a_lock_to_each_other() {
    // The lane that has the lock must run while the others try to get it.
    for threads in [1, 2, 32, 100] {
        let body = "
            try: atom.global.cas.b32 %x, [%base], 0, 1; setp.ne.u32 %p, %x, 0; @%p bra try;
            ld.shared.u32 %y, [s]; add.u32 %y, %y, 1; st.shared.u32 [s], %y; membar.gl;
            atom.global.exch.b32 %x, [%base], 0;
            bar.sync 0; ld.shared.u32 %y, [s]; st.global.u32 [%out], %y;";
        assert_eq!(run(body, threads), vec![threads; threads as usize]);
    }
}

#[test]
fn a_lane_waits_for_what_another_stores_later() {
    // Without any sign that it waits: the first lane polls, behind which the code of the others is.
    let body = "
        setp.ne.u32 %p, %t, 0; @%p bra others;
        poll: ld.relaxed.cta.shared.u32 %x, [s]; setp.eq.u32 %q, %x, 0; @%q bra poll; bra end;
        others: mov.u32 %x, 5; st.shared.u32 [s], %x;
        end: st.global.u32 [%out], %x;";
    assert_eq!(run(body, 32), [5; 32]);
}

#[test]
fn lanes_leave_loops_one_by_one_and_come_together() {
    let body = "
        mov.u32 %x, 0; mov.u32 %y, 0;
        outer: mov.u32 %z, 0;
        inner: add.u32 %x, %x, %z; add.u32 %z, %z, 1; setp.le.u32 %p, %z, %t; @%p bra inner;
        add.u32 %y, %y, 1; setp.lt.u32 %p, %y, 3; @%p bra outer;
        activemask.b32 %z; popc.b32 %z, %z; mad.lo.u32 %x, %x, 100, %z; st.global.u32 [%out], %x;";
    // The sum of 0 to t, three times; and all 32 lanes are there in the end.
    let expected: Vec<u32> = (0..32).map(|t| 3 * (t * (t + 1) / 2) * 100 + 32).collect();
    assert_eq!(run(body, 32), expected);
    // More iterations than a turn has.
    let body = body.replace("setp.le.u32 %p, %z, %t", "mul.lo.u32 %never, %t, 40; setp.le.u32 %p, %z, %never");
    let words = run(&body, 32);
    for (t, word) in (0u32..).zip(words) {
        let sum = (0..=40 * t).fold(0u32, |sum, z| sum.wrapping_add(z)).wrapping_mul(3);
        assert_eq!(word.wrapping_sub(sum.wrapping_mul(100)), 32, "{t}");
    }
}

#[test]
fn lanes_jump_through_a_table_to_different_targets() {
    let body = "
        and.b32 %x, %t, 3; mov.u32 %y, 0;
        targets: .branchtargets a, b, c, a;
        again: brx.idx %x, targets;
        c: add.u32 %y, %y, 100; bra end;
        b: add.u32 %y, %y, 10; mov.u32 %x, 2; bra again;
        a: add.u32 %y, %y, 1; mov.u32 %x, 1; bra again;
        end: st.global.u32 [%out], %y;";
    let expected: Vec<u32> = (0..32).map(|t| [111, 110, 100, 111][t % 4]).collect();
    assert_eq!(run(body, 32), expected);
}

#[test]
fn lanes_call_functions_to_different_depths() {
    let functions = "
        .func (.reg .b32 sum) depth(.reg .b32 n) { .reg .pred %p; .reg .b32 %m, %unset;
            setp.eq.u32 %p, n, 0; mov.u32 sum, 0; @%p ret;
            sub.u32 %m, n, 1; call (sum), depth, (%m); add.u32 sum, sum, n; add.u32 sum, sum, %unset; ret; }";
    let body = "
        mov.u32 %x, 7; setp.eq.u32 %p, %t, 3; @%p bra end;
        and.b32 %y, %t, 15; call (%x), depth, (%y);
        end: bar.warp.sync -1; st.global.u32 [%out], %x;";
    let expected: Vec<u32> = (0..32).map(|t| if t == 3 { 7 } else { (t % 16) * (t % 16 + 1) / 2 }).collect();
    assert_eq!(run_blocks(functions, body, 1, 32), expected);
}

#[test]
fn registers_that_were_never_written_are_zero_in_every_block() {
    // A later block gets the registers of an earlier one.
    let body = "
        add.u32 %x, %never, 1; setp.eq.u32 %p, %t, 40; @%p mov.u32 %y, 9; add.u32 %x, %x, %y; st.global.u32 [%out], %x;
        mov.u32 %never, 77; mov.u32 %y, 88; add.u32 %x, %never, %y;";
    let expected: Vec<u32> = (0..50).map(|t| if t == 40 { 10 } else { 1 }).collect();
    assert_eq!(run_blocks("", body, 100, 50), expected);
}

#[test]
fn the_first_lane_whose_access_fails_is_named_and_those_before_it_are_done() {
    for (threads, odd) in [(32, 7), (32, 31), (3, 2), (20, 0)] {
        for (change, kind) in [
            ("sub.u64 %a, %out, 1048576;", FaultKind::IllegalAddress),
            ("add.u64 %a, %out, 1;", FaultKind::MisalignedAddress),
            ("mov.u64 %a, s; cvta.shared.u64 %a, %a; add.u64 %a, %a, 4096;", FaultKind::IllegalAddress),
        ] {
            for access in
                ["st.global.u32 [%a], %t;", "st.u32 [%a], %t;", "atom.exch.b32 %x, [%a], %t;", "ld.u32 %x, [%a];"]
            {
                // Shared memory has no global addresses.
                let body = format!("setp.eq.u32 %p, %t, {odd}; mov.u64 %a, %out; @!%p bra go; {change}\ngo: {access}");
                let mut bench = Bench::new(&kernel("", &body));
                let out = bench.array(&[99u32; 32]);
                let fault = bench.try_run("k", 1, threads, &[Argument::P(out)]).expect_err("an access is wrong");
                assert_eq!((fault.kind, fault.thread, fault.bytes), (kind, [odd, 0, 0], 4), "{body}: {fault}");
                assert_eq!(fault.instruction, access.trim_end_matches(';'), "{fault}");
                if !access.starts_with("ld") {
                    let before: Vec<u32> = (0..odd).collect();
                    assert_eq!(bench.ram.read::<u32>(out, odd as usize), before, "{body}");
                }
            }
        }
    }
}

#[test]
fn addresses_of_lanes_may_be_in_different_spaces() {
    let body = "
        mov.u64 %a, s; cvta.shared.u64 %a, %a; setp.lt.u32 %p, %t, 5; selp.b64 %a, %a, %out, %p;
        mov.u32 %x, 1000; st.shared.u32 [s], %x; st.global.u32 [%out], %t; mov.u32 %y, -1; bar.warp.sync %y;
        ld.u32 %x, [%a]; bar.warp.sync %y; st.u32 [%a], %t; bar.warp.sync -1;
        ld.shared.u32 %y, [s]; add.u32 %x, %x, %y; st.global.u32 [%out], %x;";
    // The last of the lanes that store in one word wins.
    let expected: Vec<u32> = (0..32).map(|t| if t < 5 { 1004 } else { t + 4 }).collect();
    assert_eq!(run(body, 32), expected);
}
