//! Failures of foreign streams and their events.
#![expect(unsafe_code, reason = "uses streams and addresses that the tests keep alive")]

use std::ptr::null_mut;

use support::cuda::{Context, Stream};
use vkgdr::{CopyPtr, Extent, FillPattern, Memory, OpenFlags, PitchedPtr, StreamRef, Vkgdr};

use crate::Result;
use crate::place::{ENTER_AND_LEAVE, SomeMemory};
use crate::sweep::{Sweep, dropped};

const LEN: usize = 4096;

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
        let gpu = Vkgdr::open(0, OpenFlags::empty())?;
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
    fn sweep(&self, what: &str, function: &str, call: impl Fn(StreamRef) -> vkgdr::Result<()>) -> Result {
        let named = [&ENTER_AND_LEAVE[..], &[function]].concat();
        let settle = || self.stream.synchronize().unwrap_or_else(|error| panic!("{error}"));
        let sweep = Sweep { what, named: &named, settle: Some(&settle), ..Sweep::default() };
        sweep.run(|| Ok(()), |()| call(self.stream), |()| Ok(()))
    }
}

#[test]
fn finding_a_stream_names_the_call_that_failed() -> Result {
    let streams = Streams::create()?;
    let find = || {
        // SAFETY: the stream outlives the reference.
        unsafe { streams.memory.stream(streams.raw.raw()) }.map(drop)
    };
    streams.sweep("Memory::stream", "cuStreamGetCtx", |_| find())?;
    let named = &["cuCtxGetCurrent", "cuCtxGetId", "cuStreamGetCtx"];
    let sweep = Sweep { what: "in_current_context", named, ..Sweep::default() };
    // SAFETY: the default stream lives as long as its context.
    sweep.run(|| Ok(()), |()| unsafe { StreamRef::in_current_context(null_mut()) }, |_| Ok(()))
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
        streams.sweep("copy", function, |stream| unsafe { stream.copy(side(to), side(from), extent) })?;
    }
    let (to, from, from_context) = (streams.memory.device_ptr(), streams.other.device_ptr(), streams.other.context());
    let peer = |stream: StreamRef| {
        // SAFETY: as above.
        unsafe { stream.copy_between_contexts(to, from, from_context, LEN) }
    };
    streams.sweep("copy_between_contexts", "cuMemcpyPeerAsync", peer)?;
    // SAFETY: within the memory, which is otherwise unused.
    streams.sweep("fill_u8", "cuMemsetD8Async", |stream| unsafe { stream.fill(to, FillPattern::One(1), LEN) })?;
    // SAFETY: as above.
    streams.sweep("fill_u16", "cuMemsetD16Async", |stream| unsafe { stream.fill(to, FillPattern::Two(1), LEN / 2) })?;
    // SAFETY: as above.
    streams.sweep("fill_u32", "cuMemsetD32Async", |stream| unsafe { stream.fill(to, FillPattern::Four(1), LEN / 4) })
}

#[test]
fn waiting_names_the_call_that_failed() -> Result {
    let streams = Streams::create()?;
    let event = streams.stream.record()?;
    streams.sweep("synchronize", "cuStreamSynchronize", |stream| stream.synchronize())?;
    streams.sweep("wait", "cuStreamWaitEvent", |stream| stream.wait(&event))?;
    streams.sweep("is_complete", "cuEventQuery", |_| event.is_complete().map(drop))?;
    // This crate's own memory is known without the driver.
    let foreign = 0_u64;
    let address = (&raw const foreign).addr() as u64;
    streams.sweep("pointer_device", "cuPointerGetAttributes", |stream| stream.pointer_device(address).map(drop))?;
    streams.sweep("Event::synchronize", "cuEventSynchronize", |_| event.synchronize())?;
    support::bind(&streams.memory, &streams.raw)?;
    streams.sweep("wait_for_stream", "cuStreamSynchronize", |_| streams.memory.wait_for_stream())
}

#[test]
fn a_stream_that_cannot_wait_for_another_contexts_event_says_so() -> Result {
    let streams = Streams::create()?;
    // SAFETY: the default stream lives as long as its context.
    let event = unsafe { StreamRef::in_current_context(null_mut()) }?.record()?;
    streams.sweep("wait for a foreign event", "cuStreamWaitEvent", |stream| stream.wait(&event))
}

#[test]
fn unbinding_names_the_call_that_failed_and_leaves_the_memory_bound() -> Result {
    let streams = Streams::create()?;
    let bound = || {
        // SAFETY: the memory is dropped before the stream.
        Ok(unsafe { streams.memory.bind_raw_stream(streams.raw.raw()) }?)
    };
    let unbind = |()| {
        let unbound = streams.memory.unbind_stream();
        let expected = unbound.is_err().then_some(streams.raw.raw());
        assert_eq!(streams.memory.bound_stream(), expected, "{unbound:?}");
        unbound
    };
    let named = [&ENTER_AND_LEAVE[..], &["cuStreamSynchronize"]].concat();
    Sweep { what: "unbind_stream", named: &named, ..Sweep::default() }.run(bound, unbind, |()| Ok(()))
}

#[test]
fn a_failed_record_names_the_call_and_leaves_no_event() -> Result {
    let streams = Streams::create()?;
    let named = [&ENTER_AND_LEAVE[..], &["cuEventCreate", "cuEventRecord"]].concat();
    let sweep = Sweep { what: "record", named: &named, ..Sweep::default() };
    sweep.run(|| Ok(()), |()| streams.stream.record(), |_| Ok(()))
}

#[test]
fn dropping_an_event_survives_every_failure() -> Result {
    let streams = Streams::create()?;
    let survived = [&ENTER_AND_LEAVE[..], &["cuEventDestroy"]].concat();
    let sweep = Sweep { what: "drop of an event", survived: &survived, ..Sweep::default() };
    sweep.run(|| Ok(streams.stream.record()?), dropped, |()| Ok(()))
}
