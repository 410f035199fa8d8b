//! `waiting.cu`

use crate::common::{Argument, BASE, Bench};
use crate::compiled;
use ptx::Memory;
use std::thread;
use std::time::Duration;

#[test]
fn a_kernel_polls_until_the_cpu_writes() {
    for (way, source) in compiled!("waiting") {
        let mut bench = Bench::new(source);
        let (flag, out) = (bench.array(&[0u32]), bench.array(&[0u32]));
        thread::scope(|scope| {
            let kernel = scope.spawn(|| bench.try_run("poll", 1, 1, &[flag, out].map(Argument::P)));
            thread::sleep(Duration::from_millis(5));
            assert!(!kernel.is_finished(), "{way}");
            bench.ram.store(flag, 4, 41);
            assert_eq!(kernel.join().expect("the kernel's thread ends"), Ok(()), "{way}");
        });
        assert_eq!(bench.ram.read::<u32>(out, 1), [42], "{way}");
    }
}

#[test]
fn the_cpu_and_a_kernel_play_ping_pong() {
    for (way, source) in compiled!("waiting") {
        let mut bench = Bench::new(source);
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
            assert_eq!(kernel.join().expect("the kernel's thread ends"), Ok(()), "{way}");
        });
    }
}

#[test]
fn blocks_wait_for_each_other() {
    for (way, source) in compiled!("waiting") {
        let mut bench = Bench::new(source);
        let arrived = bench.array(&[0u32]);
        let out = bench.room(2 * 4 * 32 * 32);
        bench.run("grid_barrier", 32, 32, &[arrived, out].map(Argument::P));
        let seen = bench.ram.read::<u32>(out + 4 * 32 * 32, 32 * 32);
        for (index, seen) in (0u32..).zip(seen) {
            assert_eq!(seen, (index / 32 + 1) % 32, "{way}");
        }
    }
}

#[test]
fn clocks_go_forward_while_a_thread_sleeps() {
    for (way, source) in compiled!("waiting") {
        let mut bench = Bench::new(source);
        let out = bench.room(16);
        bench.run("clocks", 1, 1, &[Argument::P(out)]);
        let results = bench.ram.read::<i64>(out, 2);
        assert!(results[0] >= 2000, "{way}: {}", results[0]);
        assert_eq!(results[1], 0, "{way}");
    }
}

#[test]
fn threads_of_a_block_hand_a_turn_over() {
    for (way, source) in compiled!("waiting") {
        let mut bench = Bench::new(source);
        let out = bench.room(4 * 70);
        bench.run("hand_over", 1, 70, &[Argument::P(out)]);
        assert_eq!(bench.ram.read::<i32>(out, 70), (0..70).map(|i| 10 * i).collect::<Vec<_>>(), "{way}");
    }
}

#[test]
fn an_access_outside_every_allocation_names_its_instruction() {
    for (way, source) in compiled!("waiting") {
        let mut bench = Bench::new(source);
        let flag = bench.array(&[1u32]);
        let outside = BASE - 4096;
        let fault = bench.try_run("poll", 1, 1, &[flag, outside].map(Argument::P)).expect_err("it is outside");
        assert_eq!((fault.kind, fault.address, fault.bytes), (ptx::FaultKind::IllegalAddress, outside, 4), "{way}");
        let line = source.lines().nth(fault.line as usize - 1).expect("the line exists");
        assert!(line.contains("st.") && fault.instruction.starts_with("st."), "{way}: {fault}");
    }
}
