//! Timeline semaphores that queues, streams and the CPU share.

use std::time::Duration;

use support::blocking::was_open_on_return;
use support::cuda::{Context, PrimaryContext, Stream, no_context, reset_primary};
use support::ledger::Calls;
use support::state::State;
use support::{Result, assert_says, host_read, refused, simcuda, skip};
use vkgdr::ash::vk;
use vkgdr::vulkan::Semaphore;
use vkgdr::{Error, FillPattern, Memory, MemoryKind, OpenFlags, StreamRef, Vkgdr};

use crate::open;

const TIMEOUT: Duration = Duration::from_secs(20);
const MOMENT: Duration = Duration::from_millis(20);

/// A handle whose GPU has such semaphores; none, with a message, for others.
fn shared() -> Result<Option<Vkgdr>> {
    let gpu = open()?;
    let shares = gpu.as_ref().is_some_and(Vkgdr::supports_semaphores);
    if !shares {
        eprintln!("skipped: the drivers share no semaphores");
    }
    Ok(gpu.filter(|_| shares))
}

fn of_primary(stream: &Stream) -> Result<StreamRef> {
    // SAFETY: the tests' streams outlive their references.
    Ok(unsafe { StreamRef::in_current_context(stream.raw()) }?)
}

/// Submits to the queue a wait for one value and a signal of another.
fn submit(gpu: &Vkgdr, semaphore: &Semaphore, wait: u64, signal: u64) -> Result {
    let device = gpu.vulkan_handles()?.device;
    let (handles, waits, signals) = ([semaphore.handle()], [wait], [signal]);
    let mut values =
        vk::TimelineSemaphoreSubmitInfo::default().wait_semaphore_values(&waits).signal_semaphore_values(&signals);
    let batch = vk::SubmitInfo::default()
        .wait_semaphores(&handles)
        .wait_dst_stage_mask(&[vk::PipelineStageFlags::ALL_COMMANDS])
        .signal_semaphores(&handles)
        .push_next(&mut values);
    // SAFETY: a live semaphore; the structures live during the call.
    let submitted =
        gpu.with_vulkan_queue(|queue| unsafe { device.queue_submit(queue, &[batch], vk::Fence::null()) })?;
    Ok(submitted?)
}

fn finish_queue(gpu: &Vkgdr) -> Result {
    let device = gpu.vulkan_handles()?.device;
    // SAFETY: the queue is this call's.
    Ok(gpu.with_vulkan_queue(|queue| unsafe { device.queue_wait_idle(queue) })??)
}

#[test]
fn a_stream_waits_for_the_cpu_and_the_cpu_for_a_stream() -> Result {
    let Some(gpu) = shared()? else { return Ok(()) };
    let _context = PrimaryContext::retain_and_push(0);
    let stream = Stream::create();
    let on = of_primary(&stream)?;
    let memory = Memory::allocate(&gpu, 64, MemoryKind::Mapped)?;
    memory.fill(.., 1_u8)?;
    memory.flush(..)?;
    let semaphore = Semaphore::new(&gpu, 3)?;
    semaphore.wait_on(&on, 4)?;
    // SAFETY: within the memory.
    unsafe { on.fill(memory.device_ptr(), FillPattern::One(2), 64) }?;
    // SAFETY: more than any value before.
    unsafe { semaphore.signal_on(&on, 5) }?;
    std::thread::sleep(MOMENT);
    assert!(!stream.is_idle(), "the stream did not wait");
    // SAFETY: more than the value of now, and less than the one that is submitted.
    unsafe { semaphore.signal(4) }?;
    assert!(semaphore.wait(5, TIMEOUT)?);
    assert_eq!(host_read(&memory, 0, 64)?, [2; 64]);
    assert!(semaphore.wait(3, Duration::ZERO)? && !semaphore.wait(6, MOMENT)?);
    Ok(())
}

#[test]
fn queue_and_stream_take_turns_without_the_cpu() -> Result {
    let Some(gpu) = shared()? else { return Ok(()) };
    let _context = PrimaryContext::retain_and_push(0);
    let stream = Stream::create();
    let on = of_primary(&stream)?;
    let semaphore = Semaphore::new(&gpu, 0)?;
    for round in 0..20_u64 {
        // SAFETY: values that only grow.
        unsafe { semaphore.signal_on(&on, 2 * round + 1) }?;
        submit(&gpu, &semaphore, 2 * round + 1, 2 * round + 2)?;
        semaphore.wait_on(&on, 2 * round + 2)?;
    }
    stream.synchronize();
    assert_eq!(semaphore.value()?, 40);
    finish_queue(&gpu)
}

#[test]
fn a_stream_of_another_context_is_refused() -> Result {
    let Some(gpu) = shared()? else { return Ok(()) };
    let semaphore = Semaphore::new(&gpu, 0)?;
    let _other = Context::create(0);
    let stream = Stream::create();
    let on = of_primary(&stream)?;
    assert!(matches!(refused(semaphore.wait_on(&on, 0)), Error::ForeignStream));
    // SAFETY: refused.
    assert!(matches!(refused(unsafe { semaphore.signal_on(&on, 1) }), Error::ForeignStream));
    Ok(())
}

#[test]
fn semaphores_leave_nothing_behind() -> Result {
    let Some(gpu) = shared()? else { return Ok(()) };
    drop(Semaphore::new(&gpu, 0)?);
    let before = State::take();
    for value in [0, 1, u64::MAX / 2] {
        assert_eq!(Semaphore::new(&gpu, value)?.value()?, value);
    }
    State::assert_unchanged(&before, "semaphores");
    let context = Context::create(0);
    let plain = Vkgdr::open(0, OpenFlags::empty())?;
    let semaphore = Semaphore::new(&plain, 0)?;
    no_context(|| drop(semaphore));
    context.destroy();
    State::assert_unchanged(&before, "a semaphore of another context");
    assert_says(&refused(Semaphore::new(&plain, 0)), &["CUDA_ERROR_INVALID_CONTEXT"]);
    Ok(())
}

#[test]
fn semaphores_of_a_destroyed_context_are_dropped_without_naming_it() -> Result {
    let Some(gpu) = shared()? else { return Ok(()) };
    if simcuda().is_none() {
        return skip("only the simulated driver says what becomes of a destroyed context");
    }
    drop(Semaphore::new(&gpu, 0)?);
    let before = State::take();
    let context = PrimaryContext::retain_and_push(0);
    let plain = Vkgdr::open(0, OpenFlags::empty())?;
    let [here, there, last] = [0, 1, 2].map(|value| Semaphore::new(&plain, value));
    let (here, there, last) = (here?, there?, last?);
    let stream = Stream::create();
    let on = of_primary(&stream)?;
    drop(stream);
    reset_primary();
    let calls = ["cuCtxPushCurrent", "cuCtxSetCurrent", "cuCtxSynchronize", "cuMemFree", "cuDestroyExternalSemaphore"];
    let calls = calls.map(Calls::of);
    std::thread::spawn(move || drop(there)).join().map_err(|_| "the thread panicked")?;
    drop(here);
    assert_says(&refused(last.wait_on(&on, 2)), &["CUDA_ERROR_CONTEXT_IS_DESTROYED"]);
    // Vulkan's side lives on.
    assert_eq!(last.value()?, 2);
    for calls in calls {
        calls.assert(0, "the context is gone");
    }
    // A new context may have the address of the old one.
    let other = PrimaryContext::retain_and_push(0);
    let destroyed = Calls::of("cuDestroyExternalSemaphore");
    drop(last);
    destroyed.assert(0, "the context is gone");
    drop((plain, other, context));
    State::assert_unchanged(&before, "semaphores of a destroyed context");
    Ok(())
}

#[test]
fn a_drop_waits_for_the_work_of_the_context() -> Result {
    let Some(gpu) = shared()? else { return Ok(()) };
    let _context = PrimaryContext::retain_and_push(0);
    let stream = Stream::create();
    let semaphore = Semaphore::new(&gpu, 0)?;
    let gate = stream.hold();
    // SAFETY: more than the value of now.
    unsafe { semaphore.signal_on(&of_primary(&stream)?, 1) }?;
    let (was_open, ()) = was_open_on_return(gate, "cuCtxSynchronize", move || {
        drop(semaphore);
        Ok(())
    })?;
    assert!(was_open, "dropped while a stream was to signal it");
    Ok(())
}

#[test]
fn a_forked_child_gets_errors_and_leaves_the_semaphore_alone() -> Result {
    let Some(gpu) = shared()? else { return Ok(()) };
    let mut mine = Some(Semaphore::new(&gpu, 7)?);
    support::fork::in_quiet_child(|| {
        let semaphore = mine.take().ok_or("nothing")?;
        support::fork::assert_forked(semaphore.value(), "the value");
        support::fork::assert_forked(semaphore.wait(7, Duration::ZERO), "a wait");
        // SAFETY: refused.
        support::fork::assert_forked(unsafe { semaphore.signal(8) }, "a signal");
        support::fork::assert_forked(Semaphore::new(&gpu, 0), "a semaphore");
        drop(semaphore);
        Ok(())
    })?;
    assert_eq!(mine.ok_or("nothing")?.value()?, 7);
    Ok(())
}
