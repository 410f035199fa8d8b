//! The time at which the simulated driver starts queued work, and how a signal ends it.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use support::cuda::{self, Stream};
use support::profile::under;
use support::simulated;
use support::vulkan::Vulkan;

use crate::driver::{Module, Pinned, Shape, call, given, handle};
use crate::{KERNELS, Result, child, good, open};

const LAUNCHES: u32 = 100;
/// The time for what takes half a second, on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(50);

/// The number of small kernels whose result is there when their launch returns.
fn done_at_return() -> Result<u32> {
    let _context = open();
    let module = good(Module::load(KERNELS))?;
    let (store, stream, word) = (good(module.function("store"))?, Stream::create(), good(Pinned::new(0))?);
    let mut done = 0;
    for round in 1..=LAUNCHES {
        good(store.launch(Shape::ONE, handle(&stream), &[good(word.device())?, u64::from(round)]))?;
        done += u32::from(word.word().load(Ordering::Acquire) == round);
        stream.synchronize();
    }
    Ok(done)
}

#[test]
fn a_small_kernel_is_done_when_its_launch_returns() -> Result {
    if child::role().is_some() {
        child::say(done_at_return()?);
        return Ok(());
    }
    simulated!("on a GPU it is likely, not certain");
    let done = |name: &str, value: &str| -> Result<u32> {
        let mut command = child::command("launches")?;
        command.env_remove("SIMCUDA_ASYNC").env(name, value);
        Ok(child::run(command)?.concat().parse()?)
    };
    // A busy machine may take longer than the launch waits.
    let seen = done("SIMCUDA_LATE", "0")?;
    assert!(seen > LAUNCHES / 2, "{seen} of {LAUNCHES}");
    assert_eq!(done("SIMCUDA_LATE", "1")?, 0);
    Ok(())
}

#[test]
fn late_work_starts_when_it_is_waited_for_or_asked_about_or_later() -> Result {
    under("late", late_work)
}

#[test]
fn a_copy_from_pageable_memory_takes_the_bytes_at_once_and_writes_them_late() -> Result {
    under("late", late_copy)
}

/// As CUDA does with `cuMemcpyHtoD`, although it is synchronous by name: the CPU sees that in memory of which it has a view.
fn late_copy() -> Result {
    let _context = open();
    let vulkan = Vulkan::open(0)?;
    let memory = vulkan.memory(100)?;
    memory.fill(1);
    let mut source = [2_u32; 25];
    good(call!(cuMemcpyHtoD_v2(memory.address() => u64, source.as_ptr() => *const u32, 100 => usize)))?;
    source.fill(3);
    assert_eq!(memory.read(), [1; 25], "the copy is late");
    cuda::synchronize();
    assert_eq!(memory.read(), [2; 25]);
    Ok(())
}

fn late_work() -> Result {
    let _context = open();
    let module = good(Module::load(KERNELS))?;
    let store = good(module.function("store"))?;
    let (one, two, word) = (Stream::create(), Stream::create(), good(Pinned::new(0))?);
    let event: usize = good(given(|out| call!(cuEventCreate(out => *mut usize, 0 => u32))))?;
    // Stores a number and records the event, on a stream.
    let start = |stream: &Stream, value: u32| -> Result {
        good(store.launch(Shape::ONE, handle(stream), &[good(word.device())?, u64::from(value)]))?;
        good(call!(cuEventRecord(event => usize, handle(stream) => usize)))?;
        thread::sleep(Duration::from_millis(10));
        assert_ne!(word.word().load(Ordering::Acquire), value, "the work is late");
        Ok(())
    };
    let has = |value: u32| assert_eq!(word.word().load(Ordering::Acquire), value);

    // By itself, as a kernel does that talks to the CPU.
    start(&one, 9)?;
    let begin = Instant::now();
    while word.word().load(Ordering::Acquire) != 9 {
        assert!(begin.elapsed() < TIMEOUT, "the work does not start");
        thread::sleep(Duration::from_millis(1));
    }
    start(&one, 1)?;
    one.synchronize();
    has(1);
    start(&one, 2)?;
    good(call!(cuEventSynchronize(event => usize)))?;
    has(2);
    start(&one, 3)?;
    while call!(cuEventQuery(event => usize)).is_err() {}
    has(3);
    start(&one, 4)?;
    while !one.is_idle() {}
    has(4);
    start(&one, 5)?;
    good(call!(cuStreamWaitEvent(handle(&two) => usize, event => usize, 0 => u32)))?;
    two.synchronize();
    has(5);
    start(&one, 6)?;
    good(call!(cuCtxSynchronize()))?;
    has(6);
    // On the default stream, by way of a copy.
    good(store.launch(Shape::ONE, 0, &[good(word.device())?, 7]))?;
    assert_eq!(crate::device_words(good(word.device())?, 1), [7]);
    start(&two, 8)?;
    good(call!(cuEventDestroy_v2(event => usize)))?;
    drop(two);
    good(call!(cuCtxSynchronize()))?;
    has(8);
    Ok(())
}

#[test]
fn an_interrupt_ends_a_process_that_waits_for_a_kernel() -> Result {
    if child::role().is_some() {
        let _context = open();
        let module = good(Module::load(KERNELS))?;
        let flag = good(Pinned::new(0))?;
        good(good(module.function("wait_for"))?.launch(Shape::ONE, 0, &[good(flag.device())?, 1]))?;
        child::say("running");
        good(call!(cuCtxSynchronize()))?;
        return Ok(());
    }
    simulated!("a kernel that never ends would block other users of a GPU");
    let mut command = child::command("endless")?;
    let mut process = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let lines = BufReader::new(process.stderr.take().ok_or("no stderr")?).lines();
    let mut lines = lines.map_while(std::result::Result::ok);
    assert!(lines.any(|line| child::said(&line) == Some("running")), "the kernel does not run");
    // SAFETY: the process is this one's child, which has not been waited for.
    assert_eq!(unsafe { libc::kill(i32::try_from(process.id())?, libc::SIGINT) }, 0);
    assert_eq!(process.wait()?.signal(), Some(libc::SIGINT));
    Ok(())
}
