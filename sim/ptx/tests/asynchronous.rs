//! Copies that a thread waits for, and mbarriers.

#![expect(clippy::expect_used, reason = "a test that panics fails")]

mod common;

use common::{Argument, Bench};
use ptx::{Fault, FaultKind, Module};

/// A kernel of this body: `%t` is the thread's index, `%out` its word, `%in` the address of 4 KiB.
fn source(body: &str) -> String {
    format!(
        ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 in, .param .u64 out)\n{{\n\
         .reg .b64 %in, %out, %a, %b, %state; .reg .b32 %t, %x, %y, %z, %i; .reg .pred %p, %q;\n\
         .shared .align 16 .b8 s[4096]; .shared .align 8 .b64 bar; .shared .align 8 .b64 other;\n\
         ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %t, %tid.x;\n\
         mul.wide.u32 %a, %t, 4; add.u64 %out, %out, %a;\n\
         {body}\nret;\n}}\n"
    )
}

fn try_run(body: &str, threads: u32) -> Result<Vec<u32>, Fault> {
    let mut bench = Bench::new(&source(body));
    let bytes: Vec<u8> = (0..4096u32).map(|at| (at * 7 % 251).to_le_bytes()[0]).collect();
    let input = bench.array(&bytes);
    let out = bench.array(&vec![0xdead_u32; threads as usize]);
    bench.try_run("k", 1, threads, &[input, out].map(Argument::P))?;
    Ok(bench.ram.read(out, threads as usize))
}

fn run(body: &str, threads: u32) -> Vec<u32> {
    try_run(body, threads).unwrap_or_else(|fault| panic!("{fault}"))
}

fn fault(body: &str) -> Fault {
    try_run(body, 1).expect_err("the kernel is wrong")
}

fn input(at: u32) -> u32 {
    let byte = |at: u32| at * 7 % 251;
    byte(at) | byte(at + 1) << 8 | byte(at + 2) << 16 | byte(at + 3) << 24
}

#[test]
fn copies_are_there_after_the_wait() {
    for (copy, wait) in [
        ("cp.async.ca.shared.global [%x], [%a], 16;", "cp.async.wait_all;"),
        ("cp.async.cg.shared.global.L2::128B [%x], [%a], 16;", "cp.async.commit_group; cp.async.wait_group 0;"),
        (
            "cp.async.ca.shared::cta.global [%x], [%a], 4; cp.async.ca.shared.global [%x+4], [%a+4], 4;
          cp.async.ca.shared.global [%x+8], [%a+8], 8;",
            "cp.async.commit_group; cp.async.wait_group 0;",
        ),
    ] {
        let body = format!(
            "shl.b32 %x, %t, 4; mul.wide.u32 %a, %t, 16; add.u64 %a, %a, %in; mov.u32 %y, s; add.u32 %x, %x, %y;
             {copy} {wait} bar.sync 0; xor.b32 %x, %t, 63; shl.b32 %x, %x, 4; add.u32 %x, %x, %y;
             ld.shared.u32 %y, [%x+12]; st.global.u32 [%out], %y;"
        );
        let expected: Vec<u32> = (0..64).map(|t| input(16 * (63 - t) + 12)).collect();
        assert_eq!(run(&body, 64), expected, "{copy}");
    }
}

#[test]
fn copies_of_fewer_bytes_end_in_zeros() {
    for (limit, bytes) in [("%t", None), ("%p", Some(0)), ("%q", Some(16)), ("5", Some(5))] {
        let body = format!(
            "setp.lt.u32 %p, %t, 100; setp.gt.u32 %q, %t, 100; mov.u32 %x, -1; st.shared.v4.u32 [s], {{%x, %x, %x, %x}};
             cp.async.cg.shared.global [s], [%in+32], 16, {limit}; cp.async.wait_all; mov.u32 %z, 0; mov.u32 %x, s; mov.u32 %i, 0;
             next: ld.shared.u32 %y, [%x]; mad.lo.u32 %z, %z, 31, %y; add.u32 %x, %x, 4; add.u32 %i, %i, 1;
             setp.lt.u32 %p, %i, 4; @%p bra next; st.global.u32 [%out], %z;"
        );
        // One after the other: the threads share the words.
        for threads in [1, 9, 17] {
            let last = threads - 1;
            let body = body.replacen("setp.lt", &format!("setp.ne.u32 %p, %t, {last}; @%p exit; setp.lt"), 1);
            let words = run(&body, threads);
            let kept = bytes.unwrap_or(last);
            let word = |at: u32| {
                let whole = input(32 + at).to_le_bytes();
                u32::from_le_bytes(std::array::from_fn(|i| {
                    if at + u32::try_from(i).expect("small") < kept { whole[i] } else { 0 }
                }))
            };
            let expected = (0..4).fold(0u32, |sum, i| sum.wrapping_mul(31).wrapping_add(word(4 * i)));
            assert_eq!(words[last as usize], expected, "{limit}, {threads}");
        }
    }
}

#[test]
fn wrong_copies_are_refused_or_faults() {
    for text in [
        "cp.async.cg.shared.global [s], [%in], 8;",
        "cp.async.ca.shared.global [s], [%in], 12;",
        "cp.async.ca.global.shared [%in], [s], 4, 1, 2;",
    ] {
        assert!(Module::load(&source(text)).is_err(), "{text}");
    }
    for (text, kind) in [
        ("cp.async.ca.shared.global [s+4], [%in], 8;", FaultKind::MisalignedAddress),
        ("cp.async.ca.shared.global [s+4], [%in], 8, 0;", FaultKind::MisalignedAddress),
        ("cp.async.ca.shared.global [s], [%in+4], 8, 8;", FaultKind::MisalignedAddress),
        ("mov.u64 %in, 64; cp.async.ca.shared.global [s], [%in], 8;", FaultKind::IllegalAddress),
    ] {
        assert_eq!(fault(text).kind, kind, "{text}");
    }
    // What is not read may lie outside.
    run("mov.u64 %in, 64; cp.async.ca.shared.global [s], [%in], 8, 0;", 1);
}

/// All threads arrive four times, and each time wait for the others, whose words they then see.
fn rounds(arrive: &str, wait: &str) -> String {
    format!(
        "setp.eq.u32 %p, %t, 0; @%p mbarrier.init.shared::cta.b64 [bar], 96; bar.sync 0;
         mov.u32 %z, 0; mov.u32 %i, 0; mov.u64 %b, bar; cvta.shared.u64 %b, %b; mov.u32 %x, s; shl.b32 %y, %t, 2; add.u32 %x, %x, %y;
         next: mad.lo.u32 %y, %i, 1000, %t; st.shared.u32 [%x], %y;
         {arrive}
         wait: {wait} @!%p bra wait;
         mov.u32 %y, 95; sub.u32 %y, %y, %t; shl.b32 %y, %y, 2; mov.u32 %x, s; add.u32 %x, %x, %y; ld.shared.u32 %y, [%x];
         add.u32 %z, %z, %y; bar.sync 1; mov.u32 %x, s; shl.b32 %y, %t, 2; add.u32 %x, %x, %y;
         add.u32 %i, %i, 1; setp.lt.u32 %q, %i, 4; @%q bra next;
         st.global.u32 [%out], %z;"
    )
}

#[test]
fn mbarriers_hold_back_every_thread_in_each_phase() {
    let state = "mbarrier.arrive.shared.b64 %state, [bar];";
    let parity = "and.b32 %y, %i, 1; mbarrier.test_wait.parity.shared.b64 %p, [bar], %y;";
    for (arrive, wait) in [
        (state, "mbarrier.test_wait.shared.b64 %p, [bar], %state;"),
        ("mbarrier.arrive.release.cta.b64 %state, [%b], 1;", "mbarrier.test_wait.acquire.cta.b64 %p, [%b], %state;"),
        ("mbarrier.arrive.shared.b64 _, [bar];", parity),
        ("cp.async.ca.shared.global [s+2048], [%in], 4; cp.async.mbarrier.arrive.noinc.shared.b64 [bar];", parity),
        ("cp.async.mbarrier.arrive.b64 [%b]; mbarrier.arrive.b64 %state, [%b];", parity),
    ] {
        let expected: Vec<u32> = (0..96).map(|t| 6000 + 4 * (95 - t)).collect();
        assert_eq!(run(&rounds(arrive, wait), 96), expected, "{arrive} {wait}");
    }
}

#[test]
fn mbarriers_count_down() {
    let body = "
        mbarrier.init.shared.b64 [bar], 3;
        mbarrier.arrive.noComplete.shared.b64 %state, [bar], 2; mbarrier.pending_count.b64 %x, %state;
        mbarrier.test_wait.parity.shared.b64 %p, [bar], 0; selp.u32 %y, 1, 0, %p; mad.lo.u32 %x, %x, 10, %y;
        mbarrier.arrive.shared.b64 %state, [bar]; mbarrier.pending_count.b64 %y, %state; mad.lo.u32 %x, %x, 10, %y;
        mbarrier.test_wait.shared.b64 %p, [bar], %state; selp.u32 %y, 1, 0, %p; mad.lo.u32 %x, %x, 10, %y;
        mbarrier.test_wait.parity.shared.b64 %p, [bar], 1; selp.u32 %y, 1, 0, %p; mad.lo.u32 %x, %x, 10, %y;
        mbarrier.arrive_drop.shared.b64 _, [bar], 2; mbarrier.arrive.shared.b64 _, [bar];
        mbarrier.arrive.shared.b64 %state, [bar]; mbarrier.test_wait.shared.b64 %p, [bar], %state;
        selp.u32 %y, 1, 0, %p; mad.lo.u32 %x, %x, 10, %y; mbarrier.inval.shared.b64 [bar];
        mbarrier.init.shared.b64 [bar], 1; st.global.u32 [%out], %x;";
    // Pending 3 and 1; not complete before, complete after; not its next phase; then one arrival is enough.
    assert_eq!(run(body, 1), [301_101]);
}

#[test]
fn wrong_uses_of_mbarriers_are_faults() {
    let init = "mbarrier.init.shared.b64 [bar], 1;";
    for (body, says) in [
        ("mbarrier.arrive.shared.b64 %state, [bar];".to_owned(), "no mbarrier"),
        ("mov.u32 %x, 0; mbarrier.init.shared.b64 [bar], %x;".to_owned(), "1 to 2^20 - 1"),
        ("mov.u32 %x, 1048576; mbarrier.init.shared.b64 [bar], %x;".to_owned(), "1 to 2^20 - 1"),
        (format!("{init} mbarrier.arrive.shared.b64 _, [bar], 2;"), "more arrivals"),
        (format!("{init} mov.u32 %x, 0; mbarrier.arrive.shared.b64 _, [bar], %x;"), "more arrivals"),
        (format!("{init} mbarrier.arrive.noComplete.shared.b64 _, [bar], 1;"), "noComplete"),
        (
            format!("{init} mbarrier.inval.shared.b64 [bar]; mbarrier.test_wait.parity.shared.b64 %p, [bar], 0;"),
            "no mbarrier",
        ),
        ("mbarrier.init.b64 [%in], 1;".to_owned(), "shared memory"),
    ] {
        let fault = fault(&body);
        assert!(fault.kind == FaultKind::InvalidBarrier && fault.detail.contains(says), "{body}: {fault}");
    }
    assert_eq!(fault("mbarrier.init.shared.b64 [bar+4], 1;").kind, FaultKind::MisalignedAddress);
    assert_eq!(fault("mbarrier.init.shared.b64 [bar+65536], 1;").kind, FaultKind::IllegalAddress);
    for text in [
        "mbarrier.init.global.b64 [%in], 1;",
        "mbarrier.arrive.shared.b32 _, [bar];",
        "mbarrier.arrive.shared.b64 [bar];",
        "mbarrier.test_wait.parity.shared.b64 %p, [bar], %state;",
    ] {
        assert!(Module::load(&source(text)).is_err(), "{text}");
    }
}
