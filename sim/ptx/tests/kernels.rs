//! Whole kernels: an addition of vectors, and some that answer the CPU, copy or spin.

#![expect(clippy::expect_used, reason = "a test that panics fails")]

mod common;

use common::{Argument, Bench};
use std::sync::atomic::Ordering;
use std::thread;

#[test]
fn vector_add_adds_vectors() {
    let mut bench = Bench::new(include_str!("fixtures/nvcc12-sm_60/vector_add.ptx"));
    let a: Vec<f32> = (0..1000u16).map(f32::from).collect();
    let b: Vec<f32> = a.iter().map(|value| 0.5 - value * 3.0).collect();
    let (a_at, b_at) = (bench.array(&a), bench.array(&b));
    let sum_at = bench.room(4 * a.len());
    let arguments = [Argument::P(a_at), Argument::P(b_at), Argument::P(sum_at), Argument::U32(1000)];
    bench.run("vector_add", 4, 256, &arguments);
    let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    assert_eq!(bench.ram.read::<f32>(sum_at, a.len()), expected);
}

/// Plays the CPU's side: writes 1 to `rounds` to the flag, each when the reply to the one before is there.
fn play(bench: &Bench, flag: u64, reply: u64, rounds: u32) {
    for round in 1..=rounds {
        ptx::Memory::store(&bench.ram, flag, 4, u64::from(round));
        while bench.ram.read::<u32>(reply, 1)[0] != round {
            thread::yield_now();
        }
    }
}

fn answers(source: &str) {
    let mut bench = Bench::new(source);
    let (flag, reply) = (bench.array(&[0u32]), bench.array(&[0u32]));
    let arguments = [Argument::P(flag), Argument::P(reply), Argument::U32(200), Argument::U64(60_000_000_000)];
    thread::scope(|scope| {
        let kernel = scope.spawn(|| bench.try_run("answer", 1, 1, &arguments));
        play(&bench, flag, reply, 200);
        assert_eq!(kernel.join().expect("the kernel's thread ends"), Ok(()));
    });
}

#[test]
fn a_compiled_ping_pong_answers_the_cpu() {
    answers(include_str!("fixtures/nvcc12-sm_60/ping_pong.ptx"));
}

#[test]
fn the_probe_answers_the_cpu() {
    answers(include_str!("fixtures/probe.ptx"));
}

#[test]
fn the_probe_copies_a_word_and_spins() {
    let mut bench = Bench::new(include_str!("fixtures/probe.ptx"));
    let (source, target) = (bench.array(&[0xdead_beefu32]), bench.array(&[0u32]));
    bench.run("copy", 1, 1, &[Argument::P(source), Argument::P(target), Argument::U64(1000)]);
    assert_eq!(bench.ram.read::<u32>(target, 1), [0xdead_beef]);
    bench.run("spin", 1, 1, &[Argument::U64(1000)]);
}

#[test]
fn a_kernel_that_spins_for_ever_is_interrupted() {
    let bench = Bench::new(include_str!("fixtures/probe.ptx"));
    thread::scope(|scope| {
        let kernel = scope.spawn(|| bench.try_run("spin", 1, 1, &[Argument::U64(u64::MAX)]));
        bench.ram.interrupt.store(true, Ordering::Relaxed);
        let fault = kernel.join().expect("the kernel's thread ends").expect_err("it was interrupted");
        assert_eq!(fault.kind, ptx::FaultKind::Interrupted);
    });
}
