//! Binding memory to streams: valid streams, the effect on drops, and the streams' lifetimes.
#![expect(unsafe_code, reason = "binds streams that the tests keep alive")]

use std::ptr::null_mut;
use std::sync::Arc;
use std::thread;

use support::blocking::was_open_on_return;
use support::cuda::{self, Context, PrimaryContext, Stream, current, no_context};
use support::ledger::{Calls, Live};
use support::{Result, assert_says, bind, host_read, host_write, pattern, refused};
use vkgdr::cudarc::driver::{CudaContext, CudaStream};
use vkgdr::{DropPolicy, Error, MapMode, Memory, MemoryKind, OpenFlags, Vkgdr};

const NONE: OpenFlags = OpenFlags::empty();
const MAPPED: MemoryKind = MemoryKind::Mapped;
const SIZE: usize = 4097;

/// A stream of the primary context, created on another thread, since cudarc changes the current context.
fn stream_of_another_thread() -> Result<Arc<CudaStream>> {
    let made = thread::spawn(|| CudaContext::new(0)?.new_stream()).join();
    Ok(made.map_err(|_| "the thread panicked")??)
}

/// Waits for the primary context and releases what is deferred.
fn settle(gpu: &Vkgdr) -> Result {
    let _primary = PrimaryContext::retain_and_push(0);
    cuda::synchronize();
    gpu.collect();
    Ok(())
}

#[test]
fn the_policy_follows_the_binding() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let stream = Stream::create();
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    assert_eq!(memory.drop_policy(), DropPolicy::WaitForContext);
    bind(&memory, &stream)?;
    assert_eq!(memory.drop_policy(), DropPolicy::WaitForStream);
    assert_eq!(DropPolicy::default(), DropPolicy::WaitForContext);
    Ok(())
}

#[test]
fn binding_to_the_same_stream_again_changes_nothing() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let stream = Stream::create();
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    bind(&memory, &stream)?;
    bind(&memory, &stream)?;
    assert_eq!(memory.drop_policy(), DropPolicy::WaitForStream);
    let shared = stream_of_another_thread()?;
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    memory.bind_stream(&shared)?;
    memory.bind_stream(&shared)?;
    assert_eq!(memory.drop_policy(), DropPolicy::WaitForStream);
    assert_eq!(Arc::strong_count(&shared), 2);
    Ok(())
}

#[test]
fn binding_to_a_second_stream_makes_the_drop_wait_for_the_first_as_well() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let (first, second) = (Stream::create(), Stream::create());
    let (source, target) = (Memory::allocate(&gpu, SIZE, MAPPED)?, Memory::allocate(&gpu, SIZE, MAPPED)?);
    host_write(&source, 0, &pattern(SIZE, 1))?;
    bind(&source, &first)?;
    let gate = first.hold();
    cuda::copy_dtod_async(target.device_ptr(), source.device_ptr(), SIZE, &first);
    bind(&source, &second)?;
    assert_eq!(source.drop_policy(), DropPolicy::WaitForContext);
    let (was_open, ()) = was_open_on_return(gate, "cuCtxSynchronize", || {
        drop(source);
        Ok(())
    })?;
    assert!(was_open, "the drop returned while the first stream used the memory");
    first.synchronize();
    assert_eq!(host_read(&target, 0, SIZE)?, pattern(SIZE, 1));
    Ok(())
}

#[test]
fn a_map_waits_for_the_stream_that_was_bound_last() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let (first, second) = (Stream::create(), Stream::create());
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    bind(&memory, &first)?;
    bind(&memory, &second)?;
    let gate = first.hold();
    gate.wait_until_reached();
    // If it waited, the gate would time out.
    memory.map(MapMode::ReadWrite, ..)?.finish()?;
    gate.open();
    let gate = second.hold();
    let (was_open, ()) =
        was_open_on_return(gate, "cuStreamSynchronize", || Ok(memory.map(MapMode::Read, ..)?.finish()?))?;
    assert!(was_open, "the map returned before the second stream had passed");
    Ok(())
}

#[test]
fn a_binding_does_not_end_immediate_release() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let stream = Stream::create();
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    // SAFETY: no work of the device uses the memory.
    unsafe { memory.set_drop_policy(DropPolicy::Immediate) };
    bind(&memory, &stream)?;
    assert_eq!(memory.drop_policy(), DropPolicy::Immediate);
    Ok(())
}

#[test]
fn the_per_thread_stream_is_refused_and_changes_nothing() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    let context = CudaContext::new(0)?;
    for error in [
        // SAFETY: CU_STREAM_PER_THREAD is always valid.
        refused(unsafe { memory.bind_raw_stream(cuda::PER_THREAD_STREAM) }),
        refused(memory.bind_stream(&context.per_thread_stream())),
    ] {
        assert!(matches!(error, Error::PerThreadStream), "{error}");
        assert_says(&error, &["per-thread default stream", "another stream on every thread"]);
    }
    assert_eq!(memory.drop_policy(), DropPolicy::WaitForContext);
    Ok(())
}

#[test]
fn a_stream_of_another_context_is_refused_and_changes_nothing() -> Result {
    let gpu = Vkgdr::open(0, NONE)?;
    let owner = Context::create(0);
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    let other = Context::create(0);
    let foreign = Stream::create();
    let error = refused(bind(&memory, &foreign));
    assert!(matches!(error, Error::ForeignStream), "{error}");
    assert_eq!(memory.drop_policy(), DropPolicy::WaitForContext);

    let own = owner.with_current(Stream::create);
    bind(&memory, &own)?;
    assert!(matches!(refused(bind(&memory, &foreign)), Error::ForeignStream));
    assert_eq!(memory.drop_policy(), DropPolicy::WaitForStream);
    assert_eq!(current(), other.raw());
    drop(memory);
    owner.with_current(|| own.synchronize());
    gpu.collect();
    Ok(())
}

#[test]
fn the_null_stream_can_be_bound() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let before = Live::now();
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    // SAFETY: the default stream lives as long as the context.
    unsafe { memory.bind_raw_stream(null_mut()) }?;
    assert_eq!(memory.drop_policy(), DropPolicy::WaitForStream);
    cuda::memset_d8(memory.device_ptr(), 0x77, SIZE);
    let mut seen = vec![0_u8; SIZE];
    memory.map(MapMode::Read, ..)?.read(0, &mut seen)?;
    assert!(seen == [0x77; SIZE], "the map waits for the default stream");
    no_context(|| drop(memory));
    cuda::synchronize();
    gpu.collect();
    assert_eq!(Live::now(), before);
    Ok(())
}

#[test]
fn a_cudarc_stream_of_another_context_is_refused() -> Result {
    let gpu = Vkgdr::open(0, NONE)?;
    let _owner = Context::create(0);
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    let stream = stream_of_another_thread()?;
    let error = refused(memory.bind_stream(&stream));
    assert!(matches!(error, Error::ForeignStream), "{error}");
    assert_eq!(memory.drop_policy(), DropPolicy::WaitForContext);
    assert_eq!(Arc::strong_count(&stream), 1);
    Ok(())
}

#[test]
fn a_bound_cudarc_stream_is_kept_alive_until_the_memory_is_gone() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let (first, second) = (stream_of_another_thread()?, stream_of_another_thread()?);
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    memory.bind_stream(&first)?;
    assert_eq!(memory.drop_policy(), DropPolicy::WaitForStream);
    assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (2, 1));
    memory.bind_stream(&second)?;
    assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (1, 2));
    memory.map(MapMode::ReadWrite, ..)?.finish()?;
    drop(memory);
    assert_eq!(Arc::strong_count(&second), 1);
    second.synchronize()?;
    gpu.collect();
    Ok(())
}

#[test]
fn a_drop_that_ends_a_cudarc_stream_leaves_the_current_context_alone() -> Result {
    let gpu = Vkgdr::open_primary_context(0, NONE)?;
    let before = Live::now();
    let other = Context::create(0);
    let bound = || -> Result<Memory> {
        let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
        memory.bind_stream(&stream_of_another_thread()?)?;
        Ok(memory)
    };
    drop(bound()?);
    assert_eq!(current(), other.raw());
    bound()?.free()?;
    assert_eq!(current(), other.raw());
    let memory = bound()?;
    no_context(|| {
        drop(memory);
        assert_eq!(current(), null_mut());
    });
    assert_eq!(current(), other.raw());
    settle(&gpu)?;
    assert_eq!(Live::now(), before);
    Ok(())
}

#[test]
fn a_binding_that_ends_a_cudarc_stream_leaves_the_current_context_alone() -> Result {
    let gpu = Vkgdr::open_primary_context(0, NONE)?;
    let other = Context::create(0);
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    let last = stream_of_another_thread()?;
    memory.bind_stream(&stream_of_another_thread()?)?;
    memory.bind_stream(&last)?;
    assert_eq!(current(), other.raw());
    no_context(|| -> Result {
        memory.bind_stream(&stream_of_another_thread()?)?;
        memory.bind_stream(&last)?;
        assert_eq!(current(), null_mut());
        Ok(())
    })
}

#[test]
fn unbinding_waits_for_the_stream_and_ends_the_binding() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let (stream, other) = (Stream::create(), Stream::create());
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    assert_eq!(memory.bound_stream(), None);
    memory.unbind_stream()?;
    bind(&memory, &stream)?;
    assert_eq!(memory.bound_stream(), Some(stream.raw()));
    let gate = stream.hold();
    let (was_open, ()) = was_open_on_return(gate, "cuStreamSynchronize", || Ok(memory.unbind_stream()?))?;
    assert!(was_open, "unbound while the stream used the memory");
    assert_eq!((memory.bound_stream(), memory.drop_policy()), (None, DropPolicy::WaitForContext));

    // The earlier stream was waited for, so that it does not count after another binding.
    bind(&memory, &other)?;
    assert_eq!((memory.bound_stream(), memory.drop_policy()), (Some(other.raw()), DropPolicy::WaitForStream));
    Ok(())
}

#[test]
fn unbinding_drops_a_cudarc_stream() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let stream = stream_of_another_thread()?;
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    memory.bind_stream(&stream)?;
    assert_eq!((memory.bound_stream(), Arc::strong_count(&stream)), (Some(stream.cu_stream()), 2));
    memory.unbind_stream()?;
    assert_eq!((memory.bound_stream(), Arc::strong_count(&stream)), (None, 1));

    memory.bind_stream(&stream_of_another_thread()?)?;
    let other = Context::create(0);
    no_context(|| memory.unbind_stream().map(|()| assert_eq!(current(), null_mut())))?;
    assert_eq!(current(), other.raw());
    Ok(())
}

#[test]
fn unbinding_does_not_end_immediate_release() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let stream = Stream::create();
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    bind(&memory, &stream)?;
    // SAFETY: no work of the device uses the memory.
    unsafe { memory.set_drop_policy(DropPolicy::Immediate) };
    memory.unbind_stream()?;
    assert_eq!(memory.drop_policy(), DropPolicy::Immediate);
    Ok(())
}

#[test]
fn a_recorded_stream_is_waited_for_beside_the_bound_one() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let (bound, other) = (Stream::create(), Stream::create());
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    bind(&memory, &bound)?;
    support::record_use(&memory, bound.raw())?;
    assert_eq!(memory.drop_policy(), DropPolicy::WaitForStream);
    support::record_use(&memory, other.raw())?;
    // Another binding does not clear the recorded use.
    memory.unbind_stream()?;
    bind(&memory, &bound)?;
    assert_eq!(memory.drop_policy(), DropPolicy::WaitForStream);

    let gate = other.hold();
    gate.wait_until_reached();
    let waits = Calls::of("cuCtxSynchronize");
    drop(memory);
    waits.assert(0, "the drop waits for events");
    assert_eq!((gpu.collect(), gpu.deferred_frees()), (0, 1), "freed while the other stream uses it");
    gate.open();
    // An idle stream may pass an event later as well.
    [other, bound].iter().for_each(Stream::synchronize);
    assert_eq!((gpu.collect(), gpu.deferred_frees()), (1, 0));
    Ok(())
}

#[test]
fn a_use_that_was_recorded_before_the_binding_counts_too() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let (early, bound) = (Stream::create(), Stream::create());
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    support::record_use(&memory, early.raw())?;
    bind(&memory, &bound)?;
    let gate = early.hold();
    gate.wait_until_reached();
    drop(memory);
    assert_eq!((gpu.collect(), gpu.deferred_frees()), (0, 1));
    gate.open();
    [early, bound].iter().for_each(Stream::synchronize);
    assert_eq!(gpu.collect(), 1);
    Ok(())
}

#[test]
fn both_names_of_the_legacy_stream_are_one_stream() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let names = [null_mut(), cuda::LEGACY_STREAM];
    for (bound, used) in [(names[0], names[1]), (names[1], names[0])] {
        let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
        for name in [bound, used] {
            // SAFETY: the default stream lives as long as the context.
            unsafe { memory.bind_raw_stream(name) }?;
            support::record_use(&memory, used)?;
            assert_eq!(memory.drop_policy(), DropPolicy::WaitForStream, "bound to {name:?}, used by {used:?}");
        }
        support::record_use(&memory, cuda::PER_THREAD_STREAM)?;
        assert_eq!(memory.drop_policy(), DropPolicy::WaitForContext);
    }
    Ok(())
}

#[test]
fn waiting_for_the_stream_waits_for_the_bound_one_only() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let (bound, other) = (Stream::create(), Stream::create());
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    let part = memory.slice(1..2)?;
    let held = other.hold();
    held.wait_until_reached();
    // If they waited, the gate would time out.
    part.wait_for_stream()?;
    bind(&memory, &bound)?;
    part.wait_for_stream()?;
    held.open();
    let gate = bound.hold();
    let (was_open, ()) = was_open_on_return(gate, "cuStreamSynchronize", || Ok(part.wait_for_stream()?))?;
    assert!(was_open, "returned before the bound stream had passed");
    Ok(())
}
