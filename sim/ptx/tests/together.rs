//! Threads, lanes and blocks together: barriers, votes, atomics, and waiting for each other in vain.

#![expect(clippy::expect_used, reason = "a test that panics fails")]

mod common;

use common::{Argument, Bench};
use ptx::FaultKind;
use std::thread;

/// A kernel of this body: `%t` is the thread's index, `%out` its place in the parameter of that name, as words.
fn kernel(body: &str) -> String {
    format!(
        ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 out)\n{{\n\
         .reg .b64 %out, %base, %a; .reg .b32 %t, %x, %y, %z; .reg .b16 %h<3>; .reg .pred %p, %q;\n\
         .shared .align 8 .b32 s[64];\n\
         ld.param.u64 %base, [out]; mov.u32 %t, %tid.x; mul.wide.u32 %a, %t, 4; add.u64 %out, %base, %a;\n\
         {body}\nret;\n}}\n"
    )
}

/// One block of so many threads; its output, one word for each thread.
fn run(body: &str, threads: u32) -> Vec<u32> {
    run_source(&kernel(body), threads)
}

/// In a module for a GPU on which the lanes of a warp move together.
fn run_before_volta(body: &str, threads: u32) -> Vec<u32> {
    let source = kernel(body);
    let target = source.find("sm_").expect("the module has a target");
    run_source(&format!("{}sm_60{}", &source[..target], &source[target + "sm_90".len()..]), threads)
}

fn run_source(source: &str, threads: u32) -> Vec<u32> {
    let mut bench = Bench::new(source);
    let out = bench.room(4 * threads as usize);
    bench.run("k", 1, threads, &[Argument::P(out)]);
    bench.ram.read(out, threads as usize)
}

fn fault(body: &str, threads: u32) -> ptx::Fault {
    let mut bench = Bench::new(&kernel(body));
    let out = bench.room(4 * threads as usize);
    bench.try_run("k", 1, threads, &[Argument::P(out)]).expect_err("the kernel cannot end")
}

#[test]
fn every_block_of_many_starts_at_the_kernels_entry_with_empty_shared_memory() {
    // The threads of the blocks before it have ended in a function, and left something behind.
    let source = "
        .version 8.6\n.target sm_80\n.address_size 64
        .func last(.param .b64 to) {
            .reg .b64 %a; ld.param.u64 %a, [to]; red.global.add.u32 [%a], 1; exit;
        }
        .visible .entry k(.param .u64 out) {
            .reg .b64 %a, %b; .reg .b32 %t, %x; .shared .align 4 .b32 s[40];
            ld.param.u64 %a, [out]; mov.u32 %t, %tid.x; mul.wide.u32 %b, %t, 4; add.u64 %a, %a, %b;
            shl.b32 %t, %t, 2; mov.u32 %x, s; add.u32 %t, %t, %x;
            ld.shared.u32 %x, [%t]; red.global.add.u32 [%a], %x; mov.u32 %x, 1000; st.shared.u32 [%t], %x;
            { .param .b64 to; st.param.b64 [to], %a; call last, (to); }
            ret;
        }";
    let mut bench = Bench::new(source);
    let out = bench.room(4 * 40);
    bench.run("k", 100, 40, &[Argument::P(out)]);
    assert_eq!(bench.ram.read::<u32>(out, 40), [100; 40]);
}

#[test]
fn a_barrier_holds_back_every_thread() {
    let body = "
        shl.b32 %x, %t, 2; mov.u32 %y, s; add.u32 %y, %y, %x; st.shared.u32 [%y], %t;
        bar.sync 0;
        xor.b32 %x, %t, 63; shl.b32 %x, %x, 2; mov.u32 %y, s; add.u32 %y, %y, %x; ld.shared.u32 %x, [%y];
        st.global.u32 [%out], %x;";
    assert_eq!(run(body, 64), (0..64).rev().collect::<Vec<_>>());
}

#[test]
fn threads_that_have_ended_are_not_waited_for() {
    let body = "setp.gt.u32 %p, %t, 9; @%p exit; barrier.sync.aligned 3; st.global.u32 [%out], 1;";
    let body = body.replace("[%out], 1", "[%out], %t");
    assert_eq!(run(&body, 40)[..11], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0]);
}

#[test]
fn the_lanes_of_a_warp_make_their_volatile_accesses_together() {
    // A sum as it was written before there was bar.warp.sync: no barrier, and each lane adds what the others have.
    let add = |distance: u32| {
        format!(
            "ld.volatile.shared.u32 %x, [%y]; ld.volatile.shared.u32 %z, [%y+{}]; add.u32 %x, %x, %z;
            st.volatile.shared.u32 [%y], %x;",
            4 * distance
        )
    };
    let sum: String = [16, 8, 4, 2, 1].map(add).concat();
    let body = format!(
        "shl.b32 %x, %t, 2; mov.u32 %y, s; add.u32 %y, %y, %x; mov.u32 %z, 0;
        st.volatile.shared.u32 [%y+128], %z; st.volatile.shared.u32 [%y], %t;
        {sum}
        ld.shared.u32 %x, [s]; st.global.u32 [%out], %x;"
    );
    assert_eq!(run(&body, 32)[0], 31 * 32 / 2);
}

#[test]
fn barriers_with_counts_let_other_warps_go_on() {
    // The first warp announces that the word is there, and goes on; the second waits for it. 64 threads are expected,
    // and the second warp has only 8: warps count whole.
    let body = "
        setp.lt.u32 %p, %t, 32; @!%p bra second;
        mov.u32 %x, 77; setp.eq.u32 %q, %t, 31; @%q st.shared.u32 [s], %x; bar.arrive 1, 64; bra end;
        second: bar.sync 1, 64; ld.shared.u32 %x, [s];
        end: st.global.u32 [%out], %x;";
    assert_eq!(run(body, 40), [77; 40]);
}

#[test]
fn barriers_reduce_predicates() {
    let body = "
        setp.lt.u32 %p, %t, 10; bar.red.popc.u32 %x, 0, %p;
        bar.red.and.pred %q, 0, !%p; selp.u32 %y, 100, 0, %q; add.u32 %x, %x, %y;
        bar.red.or.pred %q, 2, 64, %p; selp.u32 %y, 1000, 0, %q; add.u32 %x, %x, %y; st.global.u32 [%out], %x;";
    assert_eq!(run(body, 64), [1010; 64]);
}

#[test]
fn a_barrier_in_one_branch_only_is_a_deadlock() {
    let body = "
        setp.eq.u32 %p, %t, 5; @%p bra other; bar.sync 0; bra end;
        other: bar.sync 1;
        end: st.global.u32 [%out], %t;";
    let fault = fault(body, 32);
    assert_eq!((fault.kind, fault.instruction.as_str()), (FaultKind::Deadlock, "bar.sync 0"), "{fault}");
}

#[test]
fn a_warp_operation_whose_lanes_never_come_is_a_deadlock() {
    let body = "setp.eq.u32 %p, %t, 5; @%p bar.sync 2; @!%p bar.warp.sync -1; st.global.u32 [%out], %t;";
    assert_eq!(fault(body, 32).kind, FaultKind::Deadlock);
}

#[test]
fn a_barrier_beyond_the_sixteen_is_a_fault() {
    let fault = fault("add.u32 %x, %t, 16; bar.sync %x;", 1);
    assert_eq!((fault.kind, fault.instruction.as_str()), (FaultKind::InvalidBarrier, "bar.sync %x"));
}

#[test]
fn a_barrier_with_a_wrong_number_of_threads_is_a_fault() {
    for (body, instruction) in [
        ("mov.u32 %x, 8; bar.sync 1, %x;", "bar.sync 1, %x"),
        ("add.u32 %x, %t, 31; bar.arrive 1, %x;", "bar.arrive 1, %x"),
        ("mov.u32 %x, 0; bar.arrive 1, %x;", "bar.arrive 1, %x"),
        ("mov.u32 %x, 48; setp.eq.u32 %p, %x, 0; bar.red.popc.u32 %y, 1, %x, %p;", "bar.red.popc.u32 %y, 1, %x, %p"),
    ] {
        let fault = fault(body, 32);
        assert_eq!((fault.kind, fault.instruction.as_str()), (FaultKind::InvalidBarrier, instruction), "{fault}");
    }
    run("mov.u32 %x, 64; bar.sync 1, %x;", 64);
}

#[test]
fn branches_of_a_warp_come_together_at_its_barrier() {
    let body = "
        and.b32 %x, %t, 1; setp.eq.u32 %p, %x, 0; @%p bra even;
        shfl.sync.bfly.b32 %x|%q, %t, 2, 31, 0xaaaaaaaa; bra join;
        even: shfl.sync.bfly.b32 %x|%q, %t, 4, 31, 0x55555555;
        join: bar.warp.sync 0xffffffff; vote.sync.ballot.b32 %y, %p, -1; popc.b32 %y, %y; mad.lo.u32 %x, %y, 1000, %x;
        st.global.u32 [%out], %x;";
    let expected: Vec<u32> = (0..32).map(|t| 16000 + if t % 2 == 1 { t ^ 2 } else { t ^ 4 }).collect();
    assert_eq!(run(body, 32), expected);
}

#[test]
fn shuffles_stay_within_their_segments() {
    // Segments of eight lanes, of which PTX's third operand holds the clamp and the mask.
    type Source = fn(u32) -> Option<u32>;
    let inside: [(&str, u32, Source); 4] = [
        ("up.b32 %x|%p, %t, 3, 0x1800", 3, |t| (t % 8 >= 3).then(|| t - 3)),
        ("down.b32 %x|%p, %t, 3, 0x181f", 3, |t| (t % 8 < 5).then_some(t + 3)),
        ("bfly.b32 %x|%p, %t, 5, 0x181f", 5, |t| Some(t ^ 5)),
        ("idx.b32 %x|%p, %t, 2, 0x181f", 2, |t| Some(t / 8 * 8 + 2)),
    ];
    for (text, _, source) in inside {
        let body =
            format!("shfl.sync.{text}, -1; selp.u32 %y, 100, 0, %p; add.u32 %x, %x, %y; st.global.u32 [%out], %x;");
        let expected: Vec<u32> = (0..32).map(|t| source(t).map_or(t, |from| from + 100)).collect();
        assert_eq!(run(&body, 32), expected, "{text}");
        // The form before Volta has no mask.
        assert_eq!(run_before_volta(&body.replace(".sync", "").replace(", -1;", ";"), 32), expected, "{text}");
    }
}

#[test]
fn lanes_reduce_and_match() {
    let masked = |body: &str| run(&format!("and.b32 %y, %t, 3; {body} st.global.u32 [%out], %x;"), 32);
    assert_eq!(masked("redux.sync.add.u32 %x, %t, -1;"), [496; 32]);
    assert_eq!(masked("sub.s32 %x, 3, %t; redux.sync.min.s32 %x, %x, -1;"), [(-28i32).cast_unsigned(); 32]);
    assert_eq!(masked("redux.sync.xor.b32 %x, %t, -1;"), [0; 32]);
    assert_eq!(masked("match.any.sync.b32 %x, %y, -1;")[..2], [0x1111_1111, 0x2222_2222]);
    assert_eq!(masked("match.all.sync.b32 %x|%p, %y, -1; @%p mov.u32 %x, 9;"), [0; 32]);
    assert_eq!(masked("activemask.b32 %x;"), [u32::MAX; 32]);
    assert_eq!(masked("setp.lt.u32 %p, %t, 40; vote.sync.uni.pred %q, %p, -1; selp.u32 %x, 1, 0, %q;"), [1; 32]);
    let body = "setp.lt.u32 %p, %t, 4; vote.all.pred %q, !%p; selp.u32 %x, 1, 0, %q; st.global.u32 [%out], %x;";
    assert_eq!(run_before_volta(body, 32), [0; 32]);
}

#[test]
fn atomic_operations_return_the_old_value() {
    let cases: [(&str, u32, u32); 9] = [
        ("atom.global.add.u32 %x, [%out], 7", 5, 12),
        ("atom.global.relaxed.gpu.inc.u32 %x, [%out], 5", 5, 0),
        ("atom.global.dec.u32 %x, [%out], 9", 0, 9),
        ("atom.acq_rel.sys.global.min.s32 %x, [%out], 3", u32::MAX, u32::MAX),
        ("atom.max.u32 %x, [%out], 3", 2, 3),
        ("atom.global.exch.b32 %x, [%out], 3", 2, 3),
        ("atom.global.cas.b32 %x, [%out], 2, 8", 2, 8),
        ("atom.global.cas.b32 %x, [%out], 3, 8", 2, 2),
        ("atom.release.global.xor.b32 %x, [%out], 3", 6, 5),
    ];
    for (text, before, after) in cases {
        let source = kernel(&format!("{text}; st.global.u32 [%out+4], %x;"));
        let mut bench = Bench::new(&source);
        let out = bench.array(&[before, 0]);
        bench.run("k", 1, 1, &[Argument::P(out)]);
        assert_eq!(bench.ram.read::<u32>(out, 2), [after, before], "{text}");
    }
}

#[test]
fn atomic_operations_reach_every_space_and_width() {
    let body = "
        mov.u32 %x, 0; st.shared.u32 [s], %x; red.shared.add.u32 [s], 5; mov.u64 %a, s; cvta.shared.u64 %a, %a;
        atom.or.b32 %x, [%a], 8; ld.shared.u32 %x, [s];
        mov.b16 %h0, 0; mov.b16 %h1, 0x1234; atom.shared.cas.b16 %h2, [s+6], %h0, %h1; ld.shared.u16 %y, [s+6];
        shl.b32 %y, %y, 8; or.b32 %x, %x, %y; st.global.u32 [%out], %x;
        red.global.add.f32 [%out+4], 0f3FC00000; red.async_like_is_not_here: ;";
    let body = body.replace("red.async_like_is_not_here: ;", "");
    let source = kernel(&body);
    let mut bench = Bench::new(&source);
    let out = bench.array(&[0u32, 2f32.to_bits()]);
    bench.run("k", 1, 1, &[Argument::P(out)]);
    assert_eq!(bench.ram.read::<u32>(out, 2), [0x0012_340d, 3.5f32.to_bits()]);
}

/// PTX ISA, `atom`: in global memory, `atom.add.f32` flushes subnormal numbers; in shared memory, it does not.
#[test]
fn an_atomic_sum_flushes_subnormal_numbers_in_global_memory_only() {
    let body = "
        mov.u32 %x, 5; st.shared.u32 [s], %x; mov.u64 %a, s; cvta.shared.u64 %a, %a; red.add.f32 [%a], 0f00000003;
        atom.add.f32 %y, [%a], 0f00000002; atom.shared.add.f32 %z, [s], 0f00000001; ld.shared.u32 %x, [s];
        st.global.u32 [%out+4], %x; st.global.u32 [%out+8], %y; st.global.u32 [%out+12], %z;
        red.add.f32 [%out], 0f00000003; red.global.add.f32 [%out], 0f00000003;";
    let mut bench = Bench::new(&kernel(body));
    let out = bench.array(&[5u32, 0, 0, 0]);
    bench.run("k", 1, 1, &[Argument::P(out)]);
    assert_eq!(bench.ram.read::<u32>(out, 4), [0, 11, 8, 10]);
}

#[test]
fn an_atomic_sum_of_lanes_in_two_spaces_flushes_those_in_global_memory() {
    // Odd threads add to their word of shared memory, even ones to that of global memory.
    let body = "
        shl.b32 %x, %t, 2; mov.u32 %y, s; add.u32 %y, %y, %x; mov.u32 %x, 5; st.shared.u32 [%y], %x; st.global.u32 [%out], %x;
        cvt.u64.u32 %a, %y; cvta.shared.u64 %a, %a; and.b32 %z, %t, 1; setp.eq.u32 %p, %z, 0; @%p mov.u64 %a, %out;
        red.add.f32 [%a], 0f00000003; @%p bra end; ld.shared.u32 %x, [%y]; st.global.u32 [%out], %x; end:";
    assert_eq!(run(body, 32), [0, 8].repeat(16));
}

#[test]
fn more_blocks_than_are_resident_all_run() {
    let body = "mov.u32 %x, %ctaid.x; setp.ne.u32 %p, %t, 0; @%p exit; red.global.add.u32 [%base], %x; red.global.add.u32 [%base+4], 1;";
    let source = kernel(body);
    let mut bench = Bench::new(&source);
    let out = bench.array(&[0u32, 0]);
    bench.run("k", 1000, 33, &[Argument::P(out)]);
    assert_eq!(bench.ram.read::<u32>(out, 2), [499_500, 1000]);
}

#[test]
fn a_block_waits_for_one_that_begins_with_it() {
    let body = "
        mov.u32 %x, %ctaid.x; mul.wide.u32 %a, %x, 4; add.u64 %a, %base, %a; setp.eq.u32 %p, %x, 31; @%p bra last;
        wait: ld.acquire.gpu.global.u32 %y, [%a+4]; setp.eq.u32 %p, %y, 0; @%p bra wait;
        last: st.release.gpu.global.u32 [%a], 1;";
    let body =
        body.replace("[%a], 1;", "[%a], %z;").replace("mov.u32 %x, %ctaid.x;", "mov.u32 %z, 1; mov.u32 %x, %ctaid.x;");
    let source = kernel(&body);
    let mut bench = Bench::new(&source);
    let out = bench.array(&[0u32; 33]);
    bench.run("k", 32, 1, &[Argument::P(out)]);
    assert_eq!(bench.ram.read::<u32>(out, 32), [1; 32]);
}

#[test]
fn two_launches_play_ping_pong_over_memory() {
    let body = "
        mov.u32 %x, 0;
        next: ld.volatile.global.u32 %y, [%base]; and.b32 %z, %y, 1; setp.ne.u32 %p, %z, PARITY; @%p bra next;
        add.u32 %y, %y, 1; st.volatile.global.u32 [%base], %y; add.u32 %x, %x, 1; setp.lt.u32 %p, %x, 50; @%p bra next;";
    let [even, odd] = ["0", "1"].map(|parity| Bench::new(&kernel(&body.replace("PARITY", parity))));
    let mut bench = even;
    let flag = bench.array(&[0u32]);
    thread::scope(|scope| {
        let other = scope.spawn(|| ptx::run(&odd.launch("k", [1; 3], [1; 3], &[Argument::P(flag)]), &bench.ram));
        bench.run("k", 1, 1, &[Argument::P(flag)]);
        assert_eq!(other.join().expect("the launch's thread ends"), Ok(()));
    });
    assert_eq!(bench.ram.read::<u32>(flag, 1), [100]);
}

/// The machine starts no thread with a stack that is larger than the address space.
#[test]
fn the_blocks_of_a_cooperative_launch_all_run_on_a_machine_without_more_threads() {
    const NAME: &str = "the_blocks_of_a_cooperative_launch_all_run_on_a_machine_without_more_threads";
    if std::env::var_os("RUST_MIN_STACK").is_none() {
        let program = std::env::current_exe().expect("the test has a path");
        let mut child = std::process::Command::new(program);
        let output = child.args(["--exact", NAME]).env("RUST_MIN_STACK", (1u64 << 48).to_string()).output();
        let output = output.expect("the test starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    // Each block waits for all, for a while.
    let body = "
        red.global.add.u32 [%base], 1; mov.u32 %z, 0;
        wait: ld.volatile.global.u32 %x, [%base]; add.u32 %z, %z, 1; setp.gt.u32 %q, %z, 100000; @%q trap;
        setp.lt.u32 %p, %x, 64; @%p bra wait;";
    let mut bench = Bench::new(&kernel(body));
    let out = bench.array(&[0u32, 0, 0, 0]);
    let mut launch = bench.launch("k", [64, 1, 1], [1; 3], &[Argument::P(out)]);
    launch.workspace = out + 8;
    assert_eq!(ptx::run(&launch, &bench.ram), Ok(()));
}

#[test]
fn launches_that_ask_for_too_much_are_refused() {
    let bench = Bench::new(&kernel("bar.sync 0;"));
    for (grid, block, shared) in [
        ([1, 1, 1], [1025, 1, 1], 0),
        ([0, 1, 1], [1, 1, 1], 0),
        ([1; 3], [1; 3], u32::MAX),
        ([u32::MAX; 3], [1; 3], 0),
    ] {
        let mut launch = bench.launch("k", grid, block, &[Argument::P(0)]);
        launch.dynamic_shared = shared;
        let fault = ptx::run(&launch, &bench.ram).expect_err("it cannot be launched");
        assert_eq!(fault.kind, FaultKind::InvalidLaunch, "{fault}");
    }
}
