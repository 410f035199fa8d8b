//! The kernel's end on memory that is as late and as little in order as PTX allows (`SIMCUDA_WEAK`), and kernels that lack an
//! order, which must be noticed there.

use std::thread;
use std::time::Duration;

use support::{Result, child, simcuda, skip};
use vkgdr::ring::Ring;

use crate::{KERNELS, Setup, TIMEOUT, message, report};

/// The time for a message of a kernel that loses some, of which a right one needs a thousandth. If it takes longer on a busy
/// machine, the kernel counts as wrong too early.
const SHORT: Duration = Duration::from_millis(500);

/// Whether messages and answers are right with these kernels, and none takes longer than `time`.
fn is_right(setup: &Setup, ptx: &str, time: Duration) -> Result<bool> {
    const COUNT: u64 = 200;
    let len = |number: u64| usize::try_from(number % 61).unwrap_or(0);
    let answers = Ring::new(&setup.gpu, 64, 300)?;
    setup.start(&setup.kernel(ptx, "produce")?, &answers, [COUNT, 60, 0])?;
    let mut answer = Vec::new();
    for number in 0..COUNT {
        if answers.pop(&mut answer, time).is_err() || answer != message(number, answer.len()) {
            return Ok(false);
        }
    }
    let messages = Ring::new(&setup.gpu, 300, 64)?;
    // Most messages come while the kernel has the one before: then no fence of its own precedes their loads.
    setup.start(&setup.kernel(ptx, "check")?, &messages, [u64::MAX, 1, 20_000_000])?;
    for number in 0..COUNT {
        thread::sleep(Duration::from_micros(50));
        if messages.push(&message(number, len(number)), time).is_err() {
            return Ok(false);
        }
    }
    messages.close()?;
    Ok(report(&messages).is_ok_and(|[wrong, count, _]| (wrong, count) == (0, COUNT)))
}

/// The kernels with the loads, stores and fences that the header has for GPUs before Volta.
fn before_volta() -> String {
    let header = include_str!("../../src/ring/vkgdr_ring.cuh");
    let opcode = |text: &'static str| text.split([' ', ';']).next().unwrap_or_default();
    ["PEEK", "ACQUIRE", "FENCE", "PUT"].iter().fold(KERNELS.to_owned(), |ptx, name| {
        let define = format!("#define VKGDR_RING_{name} \"");
        let defined: Vec<_> = header.lines().filter_map(|line| line.strip_prefix(&define)?.strip_suffix('"')).collect();
        let (new, (old, behind)) = (opcode(defined[0]), defined[1].split_once("\\n\\t").unwrap_or((defined[1], "")));
        assert!(ptx.contains(new), "the kernels have {new}");
        let replace =
            |line: &str| if line.contains(new) { line.replace(new, opcode(old)) + behind } else { line.into() };
        ptx.lines().map(|line| replace(line) + "\n").collect()
    })
}

fn in_child(role: &str, seed: u32) -> Result<String> {
    let mut command = child::command(role)?;
    command.env("SIMCUDA_WEAK", seed.to_string());
    Ok(child::run(command)?.concat())
}

#[test]
fn the_kernels_order_suffices_on_weak_memory() -> Result {
    if child::role().is_some() {
        let setup = Setup::new()?;
        child::say(format!("{:?}", [is_right(&setup, KERNELS, TIMEOUT)?, is_right(&setup, &before_volta(), TIMEOUT)?]));
        return Ok(());
    }
    if simcuda().is_none() {
        return skip("a GPU has an order of its own");
    }
    for seed in 1..4 {
        assert_eq!(in_child("right", seed)?, "[true, true]", "seed {seed}");
    }
    Ok(())
}

/// Kernels with one kind of instruction replaced by a weaker one. Whether the CPU looks before a late store arrives is chance:
/// with one seed it does in some 60 of 100 runs on an idle machine.
#[test]
fn a_kernel_that_lacks_an_order_is_noticed_on_weak_memory() -> Result {
    const SEEDS: u32 = 40;
    const WEAKER: [(&str, &str); 2] =
        [("fence.acq_rel.sys", "fence.acq_rel.gpu"), ("ld.acquire.sys", "ld.relaxed.sys")];
    if let Some(role) = child::role() {
        let (from, to) = WEAKER[role.parse::<usize>()?];
        assert!(KERNELS.contains(from), "the kernels have {from}");
        // A wrong kernel may read anywhere, and the drops of what it used then log.
        let is_right = is_right(&Setup::new()?, &KERNELS.replace(from, to), SHORT).unwrap_or(false);
        child::say(if is_right { "right" } else { "wrong" });
        return Ok(());
    }
    if simcuda().is_none() {
        return skip("a GPU has an order of its own");
    }
    for (number, (from, _)) in WEAKER.iter().enumerate() {
        let mut said = (1..=SEEDS).map(|seed| in_child(&number.to_string(), seed));
        assert!(said.any(|said| said.is_ok_and(|said| said == "wrong")), "{from}: right with {SEEDS} seeds");
    }
    Ok(())
}
