//! Foreign streams and their events: waits, streams of other contexts, and use on any thread.
#![expect(unsafe_code, reason = "uses streams and addresses that the tests keep alive")]

use std::ptr::null_mut;
use std::thread;

use support::blocking::was_open_on_return;
use support::cuda::{self, Context, PrimaryContext, Stream, current, no_context, reset_primary};
use support::ledger::Live;
use support::{Result, assert_says, host_read, host_write, logs, refused};
use vkgdr::{CopyPtr, Error, Event, FillPattern, Memory, StreamRef, Vkgdr};

use crate::{MAPPED, NONE, here, stream_of};

const SIZE: usize = 4097;

const _: () = {
    const fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<StreamRef>();
    is_send_and_sync::<Event>();
};

#[test]
fn synchronize_waits_for_the_stream_and_for_no_other() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    let (held, idle) = (Stream::create(), Stream::create());
    let gate = held.hold();
    gate.wait_until_reached();
    // If it waited, the gate would time out.
    stream_of(&memory, &idle)?.synchronize()?;
    let stream = stream_of(&memory, &held)?;
    let (was_open, ()) = was_open_on_return(gate, "cuStreamSynchronize", || Ok(stream.synchronize()?))?;
    assert!(was_open, "returned before the stream had passed");
    Ok(())
}

#[test]
fn an_event_is_complete_when_what_was_before_it_is_done() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    let raw = Stream::create();
    let stream = stream_of(&memory, &raw)?;
    let before = Live::now();
    let gate = raw.hold();
    gate.wait_until_reached();
    let event = stream.record()?;
    assert_eq!(Live::now(), before.plus_event());
    assert_ne!(event.raw(), null_mut());
    assert!(!event.is_complete()?);
    let (was_open, ()) = was_open_on_return(gate, "cuEventSynchronize", || Ok(event.synchronize()?))?;
    assert!(was_open, "returned before the event had passed");
    assert!(event.is_complete()?);
    let later = raw.hold();
    later.wait_until_reached();
    assert!(event.is_complete()?, "later work does not count");
    later.open();
    drop(event);
    assert_eq!(Live::now(), before);
    Ok(())
}

#[test]
fn a_stream_that_waits_for_an_event_goes_on_after_it() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let (source, target) = (Memory::allocate(&gpu, SIZE, MAPPED)?, Memory::allocate(&gpu, SIZE, MAPPED)?);
    let (first, second) = (Stream::create(), Stream::create());
    let (one, two) = (stream_of(&source, &first)?, stream_of(&source, &second)?);
    host_write(&source, 0, &[1; SIZE])?;
    let gate = first.hold();
    // SAFETY: within the memory, and the copy below waits for it.
    unsafe { one.fill(source.device_ptr(), FillPattern::One(2), SIZE) }?;
    two.wait(&one.record()?)?;
    let linear = |memory: &Memory| support::linear(CopyPtr::Device(memory.device_ptr()));
    let (to, from) = (linear(&target), linear(&source));
    // SAFETY: both memories have the bytes, and no other code uses them.
    unsafe { two.copy(to, from, support::row(SIZE)) }?;
    let copied = two.record()?;
    gate.wait_until_reached();
    assert!(!copied.is_complete()?, "the copy did not wait");
    gate.open();
    copied.synchronize()?;
    assert!(host_read(&target, 0, SIZE)? == [2; SIZE]);
    Ok(())
}

#[test]
fn a_stream_waits_for_another_contexts_event() -> Result {
    let one = Context::create(0);
    let first = Stream::create();
    let gate = first.hold();
    let event = here(first.raw())?.record()?;
    let two = Context::create(0);
    let second = Stream::create();
    let stream = here(second.raw())?;
    stream.wait(&event)?;
    let after = stream.record()?;
    gate.wait_until_reached();
    assert!(!after.is_complete()?);
    gate.open();
    after.synchronize()?;
    assert_eq!(current(), two.raw());
    // Before their contexts.
    drop((event, after, second));
    drop(two);
    one.with_current(|| drop(first));
    Ok(())
}

#[test]
fn a_stream_works_on_any_thread_and_leaves_the_current_context_alone() -> Result {
    let gpu = Vkgdr::open(0, NONE)?;
    let owner = Context::create(0);
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    let raw = Stream::create();
    let stream = here(raw.raw())?;
    assert_eq!((stream.raw(), stream.context()), (raw.raw(), owner.raw()));
    let other = Context::create(0);
    let use_it = |stream: StreamRef| -> vkgdr::Result<()> {
        // SAFETY: within the memory, which is otherwise unused.
        unsafe { stream.fill(memory.device_ptr(), FillPattern::One(5), SIZE) }?;
        let event = stream.record()?;
        stream.wait(&event)?;
        event.synchronize()?;
        assert!(event.is_complete()?);
        stream.synchronize()
    };
    use_it(stream)?;
    // SAFETY: the stream is kept.
    use_it(unsafe { memory.stream(raw.raw()) }?)?;
    assert_eq!(current(), other.raw());
    let elsewhere = thread::scope(|scope| {
        scope.spawn(|| use_it(stream).map(|()| assert_eq!(current(), null_mut())).map_err(|e| e.to_string())).join()
    });
    elsewhere.map_err(|_| "the thread panicked")??;
    drop(memory);
    owner.with_current(|| drop(raw));
    Ok(())
}

#[test]
fn a_stream_of_another_context_is_refused() -> Result {
    let gpu = Vkgdr::open(0, NONE)?;
    let owner = Context::create(0);
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    let own = Stream::create();
    let _other = Context::create(0);
    let foreign = Stream::create();
    for error in [refused(stream_of(&memory, &foreign)), refused(here(own.raw()))] {
        assert!(matches!(error, Error::ForeignStream), "{error}");
    }
    stream_of(&memory, &own)?.synchronize()?;
    here(foreign.raw())?.synchronize()?;
    assert_says(&no_context(|| refused(here(null_mut()))), &["CUDA_ERROR_INVALID_CONTEXT"]);
    drop((memory, foreign));
    owner.with_current(|| drop(own));
    Ok(())
}

#[test]
fn the_default_streams_fit_every_context() -> Result {
    let gpu = Vkgdr::open(0, NONE)?;
    let owner = Context::create(0);
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    let other = Context::create(0);
    for (value, raw) in [(1, null_mut()), (2, cuda::LEGACY_STREAM), (3, cuda::PER_THREAD_STREAM)] {
        // SAFETY: the default streams live as long as their context.
        let stream = unsafe { memory.stream(raw) }?;
        assert_eq!((stream.raw(), stream.context()), (raw, owner.raw()));
        // SAFETY: within the memory, which is otherwise unused.
        unsafe { stream.fill(memory.device_ptr(), FillPattern::One(value), SIZE) }?;
        stream.record()?.synchronize()?;
        assert!(host_read(&memory, 0, SIZE)? == [value; SIZE]);
        assert_eq!(here(raw)?.context(), other.raw());
        here(raw)?.synchronize()?;
    }
    drop(memory);
    Ok(())
}

#[test]
fn streams_and_events_of_a_destroyed_context_are_errors_and_are_dropped_silently() -> Result {
    let gpu = Vkgdr::open(0, NONE)?;
    let _other = Context::create(0);
    let survivor = here(null_mut())?;
    let before = Live::now();
    let _context = PrimaryContext::retain_and_push(0);
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    let stream = here(null_mut())?;
    let (event, another) = (stream.record()?, stream.record()?);
    assert!(event.synchronize().is_ok() && event.is_complete()?);
    reset_primary();
    logs::capture();
    for error in [
        refused(event.is_complete()),
        refused(event.synchronize()),
        refused(survivor.wait(&event)),
        refused(stream.synchronize()),
        refused(stream.record()),
    ] {
        let text = error.to_string();
        assert!(text.contains("CONTEXT_IS_DESTROYED") || text.contains("INVALID_CONTEXT"), "{text}");
    }
    drop(event);
    thread::spawn(|| drop(another)).join().map_err(|_| "the drop panicked")?;
    survivor.synchronize()?;
    assert_eq!(logs::captured(), [""; 0]);
    memory.free()?;
    assert_eq!(Live::now(), before);
    Ok(())
}

#[test]
fn an_event_is_dropped_on_any_thread_under_any_context() -> Result {
    let owner = Context::create(0);
    let stream = here(null_mut())?;
    let before = Live::now();
    let events = [stream.record()?, stream.record()?, stream.record()?];
    let other = Context::create(0);
    logs::capture();
    let [one, two, three] = events;
    drop(one);
    no_context(|| drop(two));
    thread::spawn(|| drop(three)).join().map_err(|_| "the drop panicked")?;
    assert_eq!(logs::captured(), [""; 0]);
    assert_eq!(Live::now(), before);
    assert_eq!(current(), other.raw());
    drop((other, owner));
    Ok(())
}
