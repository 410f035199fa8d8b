//! Streams: the waits of drops under each policy, and of maps, unbinding and waits. Shown by gates, never by time.
#![expect(unsafe_code, reason = "binds streams that the tests keep alive")]

use std::thread;

use support::blocking::was_open_on_return;
use support::codes;
use support::cuda::{self, Context, Stream, current};
use support::ledger::{Calls, Live};
use support::{Result, bind, host_read, host_write, pattern, simcuda, skip, supported};
use vkgdr::{DropPolicy, MapMode, Memory, MemoryKind, OpenFlags, StreamRef, Vkgdr};

use crate::{MAPPED, NONE};

const SIZE: usize = (1 << 16) + 1;
/// Why no memory is freed behind a shut gate on a real driver.
const FREE_MAY_WAIT: &str = "NVIDIA's cuMemFree may itself wait for the device";

/// Two memories, the first with a pattern.
fn source_and_target(gpu: &Vkgdr) -> Result<(Memory, Memory)> {
    let (source, target) = (Memory::allocate(gpu, SIZE, MAPPED)?, Memory::allocate(gpu, SIZE, MAPPED)?);
    host_write(&source, 0, &pattern(SIZE, 1))?;
    host_write(&target, 0, &pattern(SIZE, 2))?;
    Ok((source, target))
}

/// Memory with other bytes, which would be visible if freed memory were reused.
fn scribble(gpu: &Vkgdr) -> Result<Vec<Memory>> {
    let others = (0..8).map(|_| Memory::allocate(gpu, SIZE, MAPPED)).collect::<vkgdr::Result<Vec<_>>>()?;
    for other in &others {
        host_write(other, 0, &[0xee; SIZE])?;
    }
    Ok(others)
}

fn copy(target: &Memory, source: &Memory, stream: &Stream) {
    cuda::copy_dtod_async(target.device_ptr(), source.device_ptr(), SIZE, stream);
}

#[test]
fn memory_that_a_slow_stream_still_uses_is_intact_until_the_stream_has_passed() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let stream = Stream::create();
    let before = Live::now();
    let (source, target) = source_and_target(&gpu)?;
    bind(&source, &stream)?;
    let gate = stream.hold();
    gate.wait_until_reached();
    copy(&target, &source, &stream);

    // The drop returns while the gate is shut. If it waited, the gate would time out, and `open` would fail.
    drop(source);
    assert_eq!(Live::now(), before.plus_one(MAPPED).plus_one(MAPPED).plus_event());
    assert_eq!(gpu.collect(), 0);
    let others = scribble(&gpu)?;
    assert_eq!(gpu.collect(), 0);
    assert!(!stream.is_idle());
    gate.open();

    stream.synchronize();
    assert!(host_read(&target, 0, SIZE)? == pattern(SIZE, 1), "the copy read the bytes from before the drop");
    assert_eq!(gpu.collect(), 1);
    assert_eq!(gpu.collect(), 0);
    drop((others, target));
    assert_eq!(Live::now(), before);
    Ok(())
}

#[test]
fn deferred_frees_of_several_streams_are_collected_as_the_streams_pass() -> Result {
    if simcuda().is_none() {
        return skip(FREE_MAY_WAIT);
    }
    let (_context, gpu) = support::open(NONE)?;
    let (slow, fast) = (Stream::create(), Stream::create());
    let before = Live::now();
    let memories = (0..4).map(|_| Memory::allocate(&gpu, SIZE, MAPPED)).collect::<vkgdr::Result<Vec<_>>>()?;
    let gates = (slow.hold(), fast.hold());
    for (memory, stream) in memories.iter().zip([&slow, &fast, &slow, &fast]) {
        bind(memory, stream)?;
    }
    thread::spawn(|| drop(memories)).join().map_err(|_| "the drop panicked")?;
    assert_eq!((gpu.collect(), gpu.deferred_frees()), (0, 4));
    gates.1.open();
    fast.synchronize();
    // Any handle of the GPU collects deferred frees, on any thread.
    let other = Vkgdr::open(0, OpenFlags::FORCE_NON_COHERENT)?;
    assert_eq!(other.deferred_frees(), 4);
    assert_eq!(thread::spawn(move || other.collect()).join().map_err(|_| "collect panicked")?, 2);
    gates.0.open();
    slow.synchronize();
    assert_eq!(gpu.collect(), 2);
    assert_eq!(Live::now(), before);
    Ok(())
}

#[test]
fn the_next_drop_collects_too_and_an_allocation_does_not() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let stream = Stream::create();
    let before = Live::now();
    for kind in supported(&gpu, &MemoryKind::ALL) {
        let memory = Memory::allocate(&gpu, SIZE, kind)?;
        bind(&memory, &stream)?;
        let gate = stream.hold();
        drop(memory);
        gate.open();
        stream.synchronize();
        let another = Memory::allocate(&gpu, SIZE, kind)?;
        assert_eq!(gpu.deferred_frees(), 1, "{kind}: a free waits in the driver for running kernels");
        drop(another);
        assert_eq!((gpu.deferred_frees(), Live::now()), (0, before), "{kind}");
    }
    Ok(())
}

/// A release of memory that a stream still uses.
type Release = fn(Memory, &Stream) -> vkgdr::Result<()>;

#[test]
fn memory_that_is_not_bound_to_one_stream_waits_for_its_whole_context() -> Result {
    let gpu = Vkgdr::open(0, NONE)?;
    let owner = Context::create(0);
    let releases: [(&str, Release); 5] = [
        ("a drop", |_dropped, _| Ok(())),
        ("free", |memory, _| memory.free()),
        ("the drop of the last slice", |memory, _| {
            let slice = memory.slice(1..2)?;
            drop(memory);
            drop(slice);
            Ok(())
        }),
        ("a drop after a second binding", |memory, first| {
            let second = Stream::create();
            bind(&memory, first)?;
            bind(&memory, &second)?;
            drop(memory);
            Ok(())
        }),
        ("a drop under another context", |memory, _| {
            let other = Context::create(0);
            drop(memory);
            assert_eq!(current(), other.raw());
            Ok(())
        }),
    ];
    for (what, release) in releases {
        let stream = Stream::create();
        let (source, target) = source_and_target(&gpu)?;
        let gate = stream.hold();
        copy(&target, &source, &stream);
        let (was_open, ()) = was_open_on_return(gate, "cuCtxSynchronize", || Ok(release(source, &stream)?))?;
        assert!(was_open, "{what} returned while the device used the memory");
        assert_eq!(gpu.deferred_frees(), 0, "{what}");
        stream.synchronize();
        assert!(host_read(&target, 0, SIZE)? == pattern(SIZE, 1), "{what}");
    }
    drop(owner);
    Ok(())
}

#[test]
fn where_the_stream_cannot_be_asked_a_drop_waits_for_the_whole_context() -> Result {
    let Some(sim) = simcuda() else { return skip("fails calls of the simulated driver") };
    let (_context, gpu) = support::open(NONE)?;
    let (bound, other) = (Stream::create(), Stream::create());
    let before = Live::now();
    let (source, target) = source_and_target(&gpu)?;
    bind(&source, &bound)?;
    let gate = other.hold();
    copy(&target, &source, &other);
    sim.fail("cuEventRecord", 1, codes::INVALID_HANDLE);
    let (was_open, ()) = was_open_on_return(gate, "cuCtxSynchronize", || {
        drop(source);
        Ok(())
    })?;
    assert_eq!(sim.last_fault().as_deref(), Some("cuEventRecord"));
    assert!(was_open, "the drop returned while the device used the memory");
    assert_eq!(gpu.deferred_frees(), 0);
    drop(target);
    assert_eq!(Live::now(), before);
    Ok(())
}

#[test]
fn a_broken_context_does_not_release_what_the_stream_of_another_still_uses() -> Result {
    let Some(sim) = simcuda() else { return skip("fails calls of the simulated driver") };
    let (_context, gpu) = support::open(NONE)?;
    let (bound, broken) = (Stream::create(), Stream::create());
    let before = Live::now();
    let (source, target) = source_and_target(&gpu)?;
    bind(&source, &bound)?;
    // SAFETY: the stream is declared earlier.
    source.record_use(unsafe { StreamRef::in_current_context(broken.raw()) }?)?;
    let gate = bound.hold();
    copy(&target, &source, &bound);
    sim.fail("cuEventRecord", 2, codes::ASSERT);
    drop(source);
    assert_eq!(sim.last_fault().as_deref(), Some("cuEventRecord"));
    assert_eq!(gpu.deferred_frees(), 1, "freed while the bound stream read it");
    gate.open();
    bound.synchronize();
    assert_eq!(gpu.collect(), 1);
    assert!(host_read(&target, 0, SIZE)? == pattern(SIZE, 1));
    drop(target);
    assert_eq!(Live::now(), before);
    Ok(())
}

#[test]
fn immediate_release_waits_for_nothing() -> Result {
    if simcuda().is_none() {
        return skip(FREE_MAY_WAIT);
    }
    let (_context, gpu) = support::open(NONE)?;
    let stream = Stream::create();
    let before = Live::now();
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    bind(&memory, &stream)?;
    // SAFETY: no work of the device uses the memory.
    unsafe { memory.set_drop_policy(DropPolicy::Immediate) };
    assert_eq!(memory.drop_policy(), DropPolicy::Immediate);
    let gate = stream.hold();
    gate.wait_until_reached();
    let waits = ["cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize", "cuEventRecord"].map(Calls::of);
    drop(memory);
    for calls in waits {
        calls.assert(0, "immediate release");
    }
    assert_eq!(Live::now(), before);
    assert_eq!(gpu.collect(), 0);
    gate.open();
    Ok(())
}

/// What waits for the stream that memory is bound to.
type Wait = fn(&Memory) -> vkgdr::Result<()>;

#[test]
fn maps_waits_and_unbinding_wait_for_the_stream_that_was_bound_last_and_for_no_other() -> Result {
    let (_context, gpu) = support::open(OpenFlags::FORCE_NON_COHERENT)?;
    let waits: [(&str, Wait); 6] = [
        ("map for reading", |memory| memory.map(MapMode::Read, 100..200)?.finish()),
        ("map for writing", |memory| memory.map(MapMode::Write, 100..200)?.finish()),
        ("map for both", |memory| memory.map(MapMode::ReadWrite, 100..200)?.finish()),
        ("map to overwrite", |memory| memory.map(MapMode::Discard, 100..200)?.finish()),
        ("wait_for_stream", |memory| memory.slice(1..2)?.wait_for_stream()),
        ("unbind_stream", Memory::unbind_stream),
    ];
    for (what, wait) in waits {
        let (earlier, bound) = (Stream::create(), Stream::create());
        let (source, target) = source_and_target(&gpu)?;
        let held = earlier.hold();
        held.wait_until_reached();
        // Unbound, then bound to an idle stream. If it waited, the gate would time out.
        wait(&target)?;
        bind(&target, &earlier)?;
        bind(&target, &bound)?;
        wait(&target)?;
        held.open();
        bind(&target, &bound)?;
        let gate = bound.hold();
        copy(&target, &source, &bound);
        let (was_open, ()) = was_open_on_return(gate, "cuStreamSynchronize", || Ok(wait(&target)?))?;
        assert!(was_open, "{what} returned while the device used the memory");
        assert!(host_read(&target, 200, SIZE - 200)? == pattern(SIZE, 1)[200..], "{what}");
        drop(target);
        [earlier, bound].iter().for_each(Stream::synchronize);
        gpu.collect();
    }
    Ok(())
}
