//! `waiting.cu`

use crate::common::{Argument, BASE, Bench};
use ptx::Memory;
use std::thread;
use std::time::Duration;

const SOURCE: &str = include_str!("../fixtures/nvrtc12-sm_70/waiting.ptx");

#[test]
fn a_kernel_polls_until_the_cpu_writes() {
    let mut bench = Bench::new(SOURCE);
    let (flag, out) = (bench.array(&[0u32]), bench.array(&[0u32]));
    thread::scope(|scope| {
        let kernel = scope.spawn(|| bench.try_run("poll", 1, 1, &[flag, out].map(Argument::P)));
        thread::sleep(Duration::from_millis(5));
        assert!(!kernel.is_finished());
        bench.ram.store(flag, 4, 41);
        assert_eq!(kernel.join().expect("the kernel's thread ends"), Ok(()));
    });
    assert_eq!(bench.ram.read::<u32>(out, 1), [42]);
}

#[test]
fn the_cpu_and_a_kernel_play_ping_pong() {
    let mut bench = Bench::new(SOURCE);
    let (flag, reply) = (bench.array(&[0u32]), bench.array(&[0u32]));
    let arguments = [Argument::P(flag), Argument::P(reply), Argument::U32(100)];
    thread::scope(|scope| {
        let kernel = scope.spawn(|| bench.try_run("ping_pong", 1, 1, &arguments));
        for round in 1..=100u32 {
            bench.ram.store(flag, 4, round.into());
            while bench.ram.read::<u32>(reply, 1)[0] != round {
                thread::yield_now();
            }
        }
        assert_eq!(kernel.join().expect("the kernel's thread ends"), Ok(()));
    });
}

#[test]
fn blocks_wait_for_each_other() {
    let mut bench = Bench::new(SOURCE);
    let arrived = bench.array(&[0u32]);
    let out = bench.room(2 * 4 * 32 * 32);
    bench.run("grid_barrier", 32, 32, &[arrived, out].map(Argument::P));
    let seen = bench.ram.read::<u32>(out + 4 * 32 * 32, 32 * 32);
    for (index, seen) in (0u32..).zip(seen) {
        assert_eq!(seen, (index / 32 + 1) % 32);
    }
}

#[test]
fn clocks_go_forward_while_a_thread_sleeps() {
    let mut bench = Bench::new(SOURCE);
    let out = bench.room(16);
    bench.run("clocks", 1, 1, &[Argument::P(out)]);
    let results = bench.ram.read::<i64>(out, 2);
    assert!(results[0] >= 2000, "{}", results[0]);
    assert_eq!(results[1], 0);
}

#[test]
fn threads_of_a_block_hand_a_turn_over() {
    let mut bench = Bench::new(SOURCE);
    let out = bench.room(4 * 70);
    bench.run("hand_over", 1, 70, &[Argument::P(out)]);
    assert_eq!(bench.ram.read::<i32>(out, 70), (0..70).map(|i| 10 * i).collect::<Vec<_>>());
}

#[test]
fn an_access_outside_every_allocation_names_its_instruction() {
    let mut bench = Bench::new(SOURCE);
    let flag = bench.array(&[1u32]);
    let outside = BASE - 4096;
    let fault = bench.try_run("poll", 1, 1, &[flag, outside].map(Argument::P)).expect_err("it is outside");
    assert_eq!((fault.kind, fault.address, fault.bytes), (ptx::FaultKind::IllegalAddress, outside, 4));
    let line = SOURCE.lines().nth(fault.line as usize - 1).expect("the line exists");
    assert!(line.contains("st.") && fault.instruction.starts_with("st."), "{fault}");
}
