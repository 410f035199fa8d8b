//! Failures of foreign streams and their events.
#![expect(unsafe_code, reason = "uses streams and addresses that the tests keep alive")]

use std::ptr::null_mut;

use support::cuda::{Context, Stream};
use vkgdr::{CopyPtr, Extent, FillPattern, Memory, PitchedPtr, StreamRef, Vkgdr};

use crate::place::{ENTER_AND_LEAVE, SomeMemory};
use crate::sweep::Sweep;
use crate::{LEN, NONE, Result};

/// Two contexts, each with memory, and a stream of the first; the second is current.
struct Streams {
    // Drop order: users before the streams and contexts they use.
    stream: StreamRef,
    memory: Memory,
    other: Memory,
    raw: Stream,
    _contexts: [Context; 2],
}

impl Streams {
    fn create() -> Result<Self> {
        let first = Context::create(0);
        let gpu = Vkgdr::open(0, NONE)?;
        let kind = SomeMemory::of(&gpu).kind;
        let memory = Memory::allocate(&gpu, LEN, kind)?;
        let raw = Stream::create();
        // SAFETY: the stream is kept in the same struct.
        let stream = unsafe { memory.stream(raw.raw()) }?;
        let second = Context::create(0);
        let other = Memory::allocate(&gpu, LEN, kind)?;
        Ok(Self { stream, memory, other, raw, _contexts: [first, second] })
    }

    /// Sweeps a method of the stream.
    fn sweep<R>(&self, function: &'static str, call: impl Fn(StreamRef) -> vkgdr::Result<R>) -> Result {
        let settle = || self.stream.synchronize().unwrap_or_else(|error| panic!("{error}"));
        let sweep = Sweep::of(format!("a call of {function}")).named(&ENTER_AND_LEAVE).named(&[function]);
        sweep.settling(settle).call(|| call(self.stream))
    }
}

#[test]
fn finding_a_stream_names_the_call_that_failed() -> Result {
    let streams = Streams::create()?;
    // SAFETY: the stream outlives the reference.
    streams.sweep("cuStreamGetCtx", |_| unsafe { streams.memory.stream(streams.raw.raw()) })?;
    let sweep = Sweep::of("in_current_context").named(&["cuCtxGetCurrent", "cuCtxGetId", "cuStreamGetCtx"]);
    // SAFETY: the default stream lives as long as its context.
    sweep.call(|| unsafe { StreamRef::in_current_context(null_mut()) })
}

#[test]
fn copying_and_filling_name_the_call_that_failed() -> Result {
    let streams = Streams::create()?;
    let device = CopyPtr::Device(streams.memory.device_ptr());
    let mut bytes = [0_u8; 64];
    let host = CopyPtr::Host(bytes.as_mut_ptr());
    let rows = Extent { width: 4, height: 2, depth: 2 };
    for (function, to, from, extent) in [
        ("cuMemcpyHtoDAsync", device, host, support::row(64)),
        ("cuMemcpyDtoHAsync", host, device, support::row(64)),
        ("cuMemcpyDtoDAsync", CopyPtr::Device(streams.memory.device_ptr() + 64), device, support::row(64)),
        ("cuMemcpy3DAsync", device, host, rows),
    ] {
        let side = |ptr| PitchedPtr { ptr, row_pitch: 8, slice_pitch: 16 };
        // SAFETY: both sides have the bytes, and no other code uses them.
        streams.sweep(function, |stream| unsafe { stream.copy(side(to), side(from), extent) })?;
    }
    let (to, from, from_context) = (streams.memory.device_ptr(), streams.other.device_ptr(), streams.other.context());
    // SAFETY: as above.
    let peer = |stream: StreamRef| unsafe { stream.copy_between_contexts(to, from, from_context, LEN) };
    streams.sweep("cuMemcpyPeerAsync", peer)?;
    for (function, value) in [
        ("cuMemsetD8Async", FillPattern::One(1)),
        ("cuMemsetD16Async", FillPattern::Two(1)),
        ("cuMemsetD32Async", FillPattern::Four(1)),
    ] {
        // SAFETY: within the memory, which is otherwise unused.
        streams.sweep(function, |stream| unsafe { stream.fill(to, value, LEN / 4) })?;
    }
    Ok(())
}

#[test]
fn waiting_and_recording_name_the_call_that_failed() -> Result {
    let streams = Streams::create()?;
    let event = streams.stream.record()?;
    // SAFETY: the default stream lives as long as its context.
    let foreign = unsafe { StreamRef::in_current_context(null_mut()) }?.record()?;
    streams.sweep("cuStreamSynchronize", |stream| stream.synchronize())?;
    streams.sweep("cuStreamWaitEvent", |stream| stream.wait(&event))?;
    streams.sweep("cuStreamWaitEvent", |stream| stream.wait(&foreign))?;
    streams.sweep("cuEventQuery", |_| event.is_complete())?;
    streams.sweep("cuEventSynchronize", |_| event.synchronize())?;
    streams.sweep("cuEventCreate", |stream| stream.record())?;
    streams.sweep("cuEventRecord", |stream| stream.record())?;
    let destroy = Sweep::of("drop of an event").survived(&ENTER_AND_LEAVE).survived(&["cuEventDestroy"]);
    destroy.drop(|| Ok(streams.stream.record()?))?;
    // This crate's own memory is known without the driver.
    let local = 0_u64;
    streams.sweep("cuPointerGetAttributes", |stream| stream.pointer_device((&raw const local).addr() as u64))?;
    support::bind(&streams.memory, &streams.raw)?;
    streams.sweep("cuStreamSynchronize", |_| streams.memory.wait_for_stream())?;
    // Bound memory may be freed later, and its context ends here.
    Ok(streams.memory.unbind_stream()?)
}

#[test]
fn unbinding_names_the_call_that_failed_and_leaves_the_memory_bound() -> Result {
    let streams = Streams::create()?;
    let unbind = |()| {
        let unbound = streams.memory.unbind_stream();
        let expected = unbound.is_err().then_some(streams.raw.raw());
        assert_eq!(streams.memory.bound_stream(), expected, "{unbound:?}");
        unbound
    };
    let sweep = Sweep::of("unbind_stream").named(&ENTER_AND_LEAVE).named(&["cuStreamSynchronize"]);
    sweep.run(|| Ok(support::bind(&streams.memory, &streams.raw)?), unbind, |()| Ok(()))
}
