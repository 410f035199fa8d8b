//! Threads that use one memory at once.
//!
//! Their calls interleave by chance: a test passes in any order, and a lost order shows in some rounds.

#![expect(unsafe_code, reason = "submits a copy by the driver's own call")]

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use support::blocking::{let_run, while_shut};
use support::cuda::{Context, Gate};
use support::ledger::Calls;
use support::{Result, host_write, simcuda, skip};
use vkgdr::cudarc::driver::result::memcpy_dtod_async;
use vkgdr::cudarc::driver::{CudaContext, DevicePtr, DeviceSlice, DriverError};
use vkgdr::{OpenFlags, Vkgdr};

use super::{let_run_briefly, new_pool};
use crate::order::{LEN, Setup, assert_all, filled, hold, hold_behind};

const ROUNDS: usize = 100;

/// Two threads, each with a stream of its own, read memory that a stream behind a gate has yet to fill with ones.
fn both_reads_wait<M: DevicePtr<u8> + Sync>(setup: &Setup, memory: &M, gate: Gate) -> Result {
    let mut targets = [filled(&setup.gpu, 0xee)?, filled(&setup.gpu, 0xee)?];
    let barrier = Barrier::new(2);
    let done = thread::scope(|scope| {
        let [one, other] = &mut targets;
        let [first, second, _] = &setup.streams;
        let readers = [(one, first), (other, second)].map(|(target, stream)| {
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                stream.memcpy_dtod(memory, target)?;
                stream.record_event(None)
            })
        });
        readers.map(thread::ScopedJoinHandle::join)
    });
    let mut events = Vec::new();
    for event in done {
        events.push(event.map_err(|_| "a thread panicked")??);
    }
    let_run_briefly(|| events.iter().all(|event| event.is_complete()));
    gate.open();
    setup.context.synchronize()?;
    targets.iter().try_for_each(|target| assert_all(target, 1, "a read got ahead of the write before it"))
}

#[test]
fn reads_of_two_threads_wait_for_a_recorded_write() -> Result {
    let setup = Setup::new()?;
    let writer = &setup.streams[2];
    for _ in 0..ROUNDS {
        let mut memory = filled(&setup.gpu, 0)?;
        let gate = hold(writer)?;
        writer.memcpy_dtod::<u8, _, _>(&setup.ones, &mut memory)?;
        both_reads_wait(&setup, &memory, gate)?;
    }
    Ok(())
}

/// Of a context value without other streams, so that cudarc records nothing: the first of the reads records the write.
#[test]
fn reads_of_two_threads_wait_for_an_unrecorded_write() -> Result {
    let setup = Setup::new()?;
    let writer = CudaContext::new(0)?.default_stream();
    for _ in 0..ROUNDS {
        let mut memory = filled(&setup.gpu, 0)?;
        let gate = hold(&writer)?;
        writer.memcpy_dtod::<u8, _, _>(&setup.ones, &mut memory)?;
        both_reads_wait(&setup, &memory, gate)?;
    }
    Ok(())
}

/// The first of the reads records the work of the stream that the memory was lent on.
#[test]
fn reads_of_two_threads_wait_for_the_last_holder_of_memory_lent_again() -> Result {
    let setup = Setup::new()?;
    let writer = &setup.streams[2];
    let pool = new_pool(&setup.gpu)?;
    for _ in 0..ROUNDS {
        let mut chunk = pool.allocate_on(LEN, writer)?;
        host_write(&chunk, 0, &[0; LEN])?;
        let gate = hold(writer)?;
        writer.memcpy_dtod::<u8, _, _>(&setup.ones, &mut chunk)?;
        drop(chunk);
        both_reads_wait(&setup, &pool.allocate_on(LEN, writer)?, gate)?;
    }
    Ok(())
}

/// If the stream were destroyed by then, the use would wait for the context.
#[test]
fn a_bound_stream_lives_until_its_work_is_recorded_though_a_thread_binds_another() -> Result {
    if simcuda().is_none() {
        return skip("only the simulated driver counts its calls");
    }
    let setup = Setup::new()?;
    let pool = new_pool(&setup.gpu)?;
    let [other, next, _] = &setup.streams;
    for _ in 0..5 * ROUNDS {
        let stream = setup.context.new_stream()?;
        let mut chunk = pool.allocate_on(LEN, &stream)?;
        stream.memset_zeros::<u8, _>(&mut chunk)?;
        drop(chunk);
        let memory = pool.allocate_on(LEN, &stream)?;
        setup.context.synchronize()?;
        // From now on the memory alone keeps the stream alive.
        pool.trim(usize::MAX);
        drop(stream);
        let mut region = memory.region(..)?;
        let barrier = Barrier::new(2);
        let waits = Calls::of("cuCtxSynchronize");
        let (filled, bound) = thread::scope(|scope| {
            let fill = scope.spawn(|| {
                barrier.wait();
                other.memset_zeros::<u8, _>(&mut region)
            });
            barrier.wait();
            let bound = memory.bind_stream(next);
            (fill.join(), bound)
        });
        bound?;
        filled.map_err(|_| "a thread panicked")??;
        waits.assert(0, "the driver refused to record a stream");
        drop((region, memory));
        pool.free_held();
    }
    Ok(())
}

#[test]
fn a_chunk_that_a_foreign_context_reads_is_not_given_back_by_another_thread() -> Result {
    let foreign = CudaContext::new(0)?;
    let reader = foreign.new_stream()?;
    let mut target = reader.alloc_zeros::<u8>(LEN)?;
    foreign.synchronize()?;
    let gpu = Vkgdr::open(0, OpenFlags::empty())?;
    let owner = Context::create(0);
    let (pool, stop) = (new_pool(&gpu)?, AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                pool.free_held();
            }
        });
        let read = || -> Result {
            let chunk = owner.with_current(|| pool.allocate(LEN))?;
            let gate = hold(&reader)?;
            reader.memcpy_dtod::<u8, _, _>(&chunk, &mut target)?;
            drop(chunk);
            let_run_briefly(|| false);
            gate.open();
            reader.synchronize().map_err(|error| format!("a read of a chunk that was given back: {error}"))?;
            Ok(())
        };
        // Also if a read panics: the scope waits for the thread.
        let _stop = StopOnDrop(&stop);
        std::iter::repeat_with(read).take(2 * ROUNDS).collect()
    })
}

/// Ends a thread that runs until it is set.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The writer waits for the contexts that have read; one of them reads again in the meantime.
#[test]
fn a_read_that_begins_while_a_write_waits_for_others_keeps_the_memory() -> Result {
    let gpu = Vkgdr::open(0, OpenFlags::empty())?;
    let foreign = CudaContext::new(0)?;
    let reader = foreign.new_stream()?;
    let mut target = reader.alloc_zeros::<u8>(LEN)?;
    foreign.synchronize()?;
    let third = Context::create(0);
    let mut slow_target = filled(&gpu, 0)?;
    let slow = DeviceSlice::<u8>::stream(&slow_target).context().new_stream()?;
    let owner = Context::create(0);
    let memory = filled(&gpu, 1)?;
    let own = DeviceSlice::<u8>::stream(&memory).context().new_stream()?;
    let mut region = memory.region(..)?;
    // Of the two other contexts that read, one is done and one is held.
    reader.memcpy_dtod(&memory, &mut target)?;
    reader.synchronize()?;
    let gate = hold(&slow)?;
    slow.memcpy_dtod::<u8, _, _>(&memory, &mut slow_target)?;
    let waits = Calls::of("cuCtxSynchronize");
    let (second_gate, written) = thread::scope(|scope| {
        let writer = scope.spawn(|| own.memset_zeros::<u8, _>(&mut region));
        // Until it waits for the second of the two.
        let_run(|| waits.count().is_some_and(|count| count > 1));
        let mut begin = || -> Result<Gate> {
            let second_gate = hold_behind(&reader, &slow)?;
            reader.memcpy_dtod(&memory, &mut target)?;
            Ok(second_gate)
        };
        let second_gate = begin();
        gate.open();
        (second_gate, writer.join())
    });
    written.map_err(|_| "a thread panicked")??;
    drop(region);
    while_shut(second_gate?, || {
        drop(memory);
        Ok::<_, Box<dyn std::error::Error>>(())
    })?;
    reader.synchronize().map_err(|error: DriverError| format!("a read of released memory: {error}"))?;
    // Streams and memory before their contexts.
    drop((slow_target, slow, own));
    drop((owner, third));
    Ok(())
}

/// cudarc takes the address, and then submits the copy; a write may wait for the readers' contexts in between.
#[test]
fn a_read_that_was_announced_before_a_write_waited_keeps_the_memory() -> Result {
    let gpu = Vkgdr::open(0, OpenFlags::empty())?;
    let foreign = CudaContext::new(0)?;
    let reader = foreign.new_stream()?;
    let target = reader.alloc_zeros::<u8>(LEN)?;
    foreign.synchronize()?;
    let owner = Context::create(0);
    let memory = filled(&gpu, 1)?;
    let own = DeviceSlice::<u8>::stream(&memory).context().new_stream()?;
    let mut region = memory.region(..)?;
    foreign.bind_to_thread()?;
    let (source, announced) = DevicePtr::<u8>::device_ptr(&memory, DeviceSlice::<u8>::stream(&memory));
    own.memset_zeros::<u8, _>(&mut region)?;
    own.synchronize()?;
    let gate = hold(&reader)?;
    foreign.bind_to_thread()?;
    let (to, _recorded) = target.device_ptr(&reader);
    // SAFETY: both have `LEN` bytes. The memory is released after the copy, which this test is about.
    unsafe { memcpy_dtod_async(to, source, LEN, reader.cu_stream()) }?;
    drop(announced);
    drop(region);
    while_shut(gate, || {
        drop(memory);
        Ok::<_, Box<dyn std::error::Error>>(())
    })?;
    reader.synchronize().map_err(|error: DriverError| format!("a read of released memory: {error}"))?;
    // The stream before its context.
    drop(own);
    drop(owner);
    Ok(())
}
