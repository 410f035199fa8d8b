//! Streams: the waits of drops under each policy, and of maps. Shown by gates, never by time.
#![expect(unsafe_code, reason = "binds streams that the tests keep alive")]

use std::thread;

use support::blocking::was_open_on_return;
use support::codes;
use support::cuda::{self, Context, Stream, current};
use support::ledger::{Calls, Live};
use support::{Result, bind, host_read, host_write, pattern, simcuda, skip, vklayer};
use vkgdr::{DropPolicy, MapMode, Memory, MemoryKind, OpenFlags, StreamRef, Vkgdr};

const NONE: OpenFlags = OpenFlags::empty();
const MAPPED: MemoryKind = MemoryKind::Mapped;
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
    drop(memories);
    assert_eq!(gpu.collect(), 0);
    gates.1.open();
    fast.synchronize();
    // Any handle of the GPU collects deferred frees.
    assert_eq!(Vkgdr::open(0, OpenFlags::FORCE_NON_COHERENT)?.collect(), 2);
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
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    bind(&memory, &stream)?;
    let gate = stream.hold();
    drop(memory);
    gate.open();
    stream.synchronize();
    let another = Memory::allocate(&gpu, SIZE, MAPPED)?;
    assert_eq!(gpu.deferred_frees(), 1);
    drop(another);
    assert_eq!((gpu.deferred_frees(), Live::now()), (0, before));
    Ok(())
}

#[test]
fn by_default_a_drop_waits_for_the_whole_context() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let stream = Stream::create();
    let (source, target) = source_and_target(&gpu)?;
    let gate = stream.hold();
    copy(&target, &source, &stream);
    let (was_open, ()) = was_open_on_return(gate, "cuCtxSynchronize", || {
        drop(source);
        Ok(())
    })?;
    assert!(was_open, "the drop returned while the device used the memory");
    assert_eq!(gpu.collect(), 0, "nothing was deferred");
    stream.synchronize();
    assert!(host_read(&target, 0, SIZE)? == pattern(SIZE, 1));
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
fn by_default_free_waits_for_the_whole_context() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let stream = Stream::create();
    let (source, target) = source_and_target(&gpu)?;
    let gate = stream.hold();
    copy(&target, &source, &stream);
    let (was_open, ()) = was_open_on_return(gate, "cuCtxSynchronize", || Ok(source.free()?))?;
    assert!(was_open, "free returned while the device used the memory");
    stream.synchronize();
    assert!(host_read(&target, 0, SIZE)? == pattern(SIZE, 1));
    Ok(())
}

#[test]
fn the_last_region_waits_as_its_memory_would() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let stream = Stream::create();
    let (source, target) = source_and_target(&gpu)?;
    let region = source.slice(1..2)?;
    let gate = stream.hold();
    copy(&target, &source, &stream);
    // Not the last region: no wait.
    drop(source);
    let (was_open, ()) = was_open_on_return(gate, "cuCtxSynchronize", || {
        drop(region);
        Ok(())
    })?;
    assert!(was_open, "the drop returned while the device used the memory");
    stream.synchronize();
    assert!(host_read(&target, 0, SIZE)? == pattern(SIZE, 1));
    Ok(())
}

#[test]
fn a_drop_under_another_context_waits_for_the_context_of_the_memory() -> Result {
    let gpu = Vkgdr::open(0, NONE)?;
    let owner = Context::create(0);
    let stream = Stream::create();
    let (source, target) = source_and_target(&gpu)?;
    let gate = stream.hold();
    copy(&target, &source, &stream);
    let other = Context::create(0);
    let (was_open, ()) = was_open_on_return(gate, "cuCtxSynchronize", || {
        drop(source);
        Ok(())
    })?;
    assert!(was_open, "the drop returned while the device used the memory");
    assert_eq!(current(), other.raw());
    owner.with_current(|| stream.synchronize());
    assert!(host_read(&target, 0, SIZE)? == pattern(SIZE, 1));
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

#[test]
fn a_map_waits_for_the_bound_stream_and_shows_its_work() -> Result {
    let (_context, gpu) = support::open(OpenFlags::FORCE_NON_COHERENT)?;
    for mode in [MapMode::Read, MapMode::Write, MapMode::ReadWrite, MapMode::Discard] {
        let stream = Stream::create();
        let (source, target) = source_and_target(&gpu)?;
        bind(&target, &stream)?;
        let gate = stream.hold();
        copy(&target, &source, &stream);
        let (was_open, guard) =
            was_open_on_return(gate, "cuStreamSynchronize", || Ok(target.map(mode, 100..SIZE - 100)?))?;
        assert!(was_open, "{mode:?}: the guard began while the device used the memory");
        if mode != MapMode::Discard {
            let mut seen = vec![0_u8; SIZE - 200];
            guard.read(0, &mut seen)?;
            assert!(seen == pattern(SIZE, 1)[100..SIZE - 100], "{mode:?}");
        }
        guard.finish()?;
        drop(target);
        stream.synchronize();
        gpu.collect();
    }
    Ok(())
}

#[test]
fn a_map_waits_for_no_other_stream() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let (bound, other) = (Stream::create(), Stream::create());
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    let gate = other.hold();
    gate.wait_until_reached();
    // Unbound, then bound to an idle stream. If the map waited, the gate would time out.
    memory.map(MapMode::ReadWrite, ..)?.finish()?;
    bind(&memory, &bound)?;
    memory.map(MapMode::ReadWrite, ..)?.finish()?;
    gate.open();
    Ok(())
}

#[test]
fn a_drop_on_any_thread_can_be_deferred() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let stream = Stream::create();
    let before = Live::now();
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    bind(&memory, &stream)?;
    let gate = stream.hold();
    let dropped = thread::scope(|scope| scope.spawn(move || drop(memory)).join());
    dropped.map_err(|_| "the drop panicked")?;
    let collect = || thread::scope(|scope| scope.spawn(|| gpu.collect()).join());
    assert_eq!(collect().map_err(|_| "collect panicked")?, 0);
    gate.open();
    stream.synchronize();
    assert_eq!(collect().map_err(|_| "collect panicked")?, 1);
    assert_eq!(Live::now(), before);
    Ok(())
}

#[test]
fn an_allocation_without_memory_waits_for_the_deferred_frees() -> Result {
    let Some(layer) = vklayer() else {
        return skip("this needs VKGDR_TEST_LAYERS=faults");
    };
    let (_context, gpu) = support::open(NONE)?;
    let stream = Stream::create();
    let before = Live::now();
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    bind(&memory, &stream)?;
    let gate = stream.hold();
    gate.wait_until_reached();
    drop(memory);
    layer.fail("vkAllocateMemory", 1, codes::vulkan::OUT_OF_DEVICE_MEMORY);
    let (was_open, memory) = was_open_on_return(gate, "cuEventQuery", || Ok(Memory::allocate(&gpu, SIZE, MAPPED)?))?;
    layer.clear_faults();
    assert!(was_open, "the allocation did not wait for the deferred frees");
    assert_eq!(gpu.collect(), 0, "no free is deferred any more");
    assert_eq!(Live::now(), before.plus_one(MAPPED));
    memory.free()?;
    Ok(())
}
