//! The order of uses of one memory on several of cudarc's streams: each use waits for the earlier ones that it must not
//! overtake, as uses of cudarc's own slices do.
//!
//! A gate holds the first stream, so that without an order the second one gets ahead of it.
#![expect(unsafe_code, reason = "blocks streams and turns cudarc's tracking off")]

mod announced;
mod other_context;

use std::sync::Arc;
use std::thread;

use support::blocking::let_run;
use support::cuda::{Context, Gate, PrimaryContext, Stream};
use support::ledger::Calls;
use support::{Result, host_read, host_write};
use vkgdr::cudarc::driver::{CudaContext, CudaStream, DevicePtr, DevicePtrMut, DeviceSlice};
use vkgdr::{Memory, MemoryKind, OpenFlags, Pool, PoolMemory, PoolOptions, Region, Vkgdr, memory_of};

pub(crate) const LEN: usize = 4096;

/// What the tests use on the device.
trait Slice: DevicePtr<u8> + DevicePtrMut<u8> {
    fn as_region(&self) -> &Region;
}

impl Slice for Memory {
    fn as_region(&self) -> &Region {
        self
    }
}

impl Slice for Region {
    fn as_region(&self) -> &Region {
        self
    }
}

impl Slice for PoolMemory {
    fn as_region(&self) -> &Region {
        self
    }
}

/// Three streams of one context, and memory to copy from and to.
pub(crate) struct Setup {
    pub(crate) streams: [Arc<CudaStream>; 3],
    pub(crate) ones: Memory,
    pub(crate) seen: Memory,
    pub(crate) gpu: Vkgdr,
    pub(crate) context: Arc<CudaContext>,
    _primary: PrimaryContext,
}

impl Setup {
    pub(crate) fn new() -> Result<Self> {
        let (primary, gpu) = support::open(OpenFlags::empty())?;
        let context = CudaContext::new(0)?;
        let streams = [context.new_stream()?, context.new_stream()?, context.new_stream()?];
        let (ones, seen) = (filled(&gpu, 1)?, filled(&gpu, 0xee)?);
        Ok(Self { streams, ones, seen, gpu, context, _primary: primary })
    }
}

/// Memory with one value in all bytes.
pub(crate) fn filled(gpu: &Vkgdr, value: u8) -> Result<Memory> {
    let memory = Memory::allocate(gpu, LEN, MemoryKind::Mapped)?;
    host_write(&memory, 0, &[value; LEN])?;
    Ok(memory)
}

pub(crate) fn hold(stream: &CudaStream) -> Result<Gate> {
    // A default stream is that of the current context.
    stream.context().bind_to_thread()?;
    // SAFETY: the reference keeps the stream alive.
    let gate = unsafe { Stream::hold_raw(stream.cu_stream()) };
    gate.wait_until_reached();
    Ok(gate)
}

/// Blocks a stream behind another that is blocked already; see [`Stream::hold_raw_behind`].
pub(crate) fn hold_behind(stream: &CudaStream, first: &CudaStream) -> Result<Gate> {
    first.context().bind_to_thread()?;
    // SAFETY: the references keep both streams alive, and the first one's context is current.
    let gate = unsafe { Stream::hold_raw_behind(stream.cu_stream(), first.cu_stream()) };
    stream.context().bind_to_thread()?;
    Ok(gate)
}

/// Lets a stream go as far as it can, opens the gate and waits for everything.
pub(crate) fn finish(setup: &Setup, last: &CudaStream, gate: Gate) -> Result {
    let done = last.record_event(None)?;
    let_run(|| done.is_complete());
    gate.open();
    Ok(setup.context.synchronize()?)
}

/// Fails unless all bytes have the value.
#[track_caller]
pub(crate) fn assert_all(memory: &Region, value: u8, what: &str) -> Result {
    let wrong = host_read(memory, 0, LEN)?.iter().filter(|byte| **byte != value).count();
    assert_eq!(wrong, 0, "wrong bytes of {LEN}: {what}");
    Ok(())
}

/// Runs a check with memory, with a region and with memory of a pool, all bytes of which are 0.
fn for_each(
    with_memory: fn(&mut Setup, &mut Memory) -> Result,
    with_region: fn(&mut Setup, &mut Region) -> Result,
    with_pool: fn(&mut Setup, &mut PoolMemory) -> Result,
) -> Result {
    let mut setup = Setup::new()?;
    let mut memory = filled(&setup.gpu, 0)?;
    with_memory(&mut setup, &mut memory)?;
    let larger = Memory::allocate(&setup.gpu, 3 * LEN, MemoryKind::Mapped)?;
    host_write(&larger, 0, &[0; 3 * LEN])?;
    with_region(&mut setup, &mut larger.region(LEN..2 * LEN)?)?;
    let pool = Pool::new(&setup.gpu, PoolOptions::new(MemoryKind::Mapped))?;
    let mut chunk = pool.allocate(LEN)?;
    host_write(&chunk, 0, &[0; LEN])?;
    with_pool(&mut setup, &mut chunk)
}

fn read_after_write<M: Slice>(setup: &mut Setup, memory: &mut M) -> Result {
    let [first, second, _] = setup.streams.clone();
    let gate = hold(&first)?;
    first.memcpy_dtod(&setup.ones, memory)?;
    second.memcpy_dtod(memory, &mut setup.seen)?;
    finish(setup, &second, gate)?;
    assert_all(&setup.seen, 1, "a read got ahead of the write before it")
}

#[test]
fn a_read_on_another_stream_sees_the_write_before_it() -> Result {
    for_each(read_after_write, read_after_write, read_after_write)
}

fn read_after_fill<M: Slice>(setup: &mut Setup, memory: &mut M) -> Result {
    let [first, second, _] = setup.streams.clone();
    host_write(memory.as_region(), 0, &[7; LEN])?;
    let gate = hold(&first)?;
    first.memset_zeros(memory)?;
    second.memcpy_dtod(memory, &mut setup.seen)?;
    finish(setup, &second, gate)?;
    assert_all(&setup.seen, 0, "a read got ahead of the fill before it")
}

#[test]
fn a_read_on_another_stream_sees_the_fill_before_it() -> Result {
    for_each(read_after_fill, read_after_fill, read_after_fill)
}

fn write_after_read<M: Slice>(setup: &mut Setup, memory: &mut M) -> Result {
    let [first, second, _] = setup.streams.clone();
    let gate = hold(&first)?;
    first.memcpy_dtod(memory, &mut setup.seen)?;
    second.memcpy_dtod(&setup.ones, memory)?;
    finish(setup, &second, gate)?;
    assert_all(&setup.seen, 0, "a write got ahead of the read before it")
}

#[test]
fn a_write_on_another_stream_does_not_overtake_the_read_before_it() -> Result {
    for_each(write_after_read, write_after_read, write_after_read)
}

fn write_after_write<M: Slice>(setup: &mut Setup, memory: &mut M) -> Result {
    let [first, second, _] = setup.streams.clone();
    let gate = hold(&first)?;
    first.memset_zeros(memory)?;
    second.memcpy_dtod(&setup.ones, memory)?;
    finish(setup, &second, gate)?;
    assert_all(memory.as_region(), 1, "a write got ahead of the write before it")
}

#[test]
fn a_write_on_another_stream_does_not_overtake_the_write_before_it() -> Result {
    for_each(write_after_write, write_after_write, write_after_write)
}

/// cudarc's own slices keep the last read only.
fn write_after_two_reads<M: Slice>(setup: &mut Setup, memory: &mut M) -> Result {
    let [first, second, third] = setup.streams.clone();
    let mut other = filled(&setup.gpu, 0xee)?;
    let gate = hold(&first)?;
    first.memcpy_dtod(memory, &mut setup.seen)?;
    second.memcpy_dtod(memory, &mut other)?;
    third.memcpy_dtod(&setup.ones, memory)?;
    finish(setup, &third, gate)?;
    assert_all(&other, 0, "a write got ahead of the last read")?;
    assert_all(&setup.seen, 0, "a write got ahead of a read, since another stream has read later")
}

#[test]
fn a_write_does_not_overtake_the_reads_of_two_other_streams() -> Result {
    for_each(write_after_two_reads, write_after_two_reads, write_after_two_reads)
}

#[test]
fn uses_of_a_memory_and_of_its_regions_are_ordered_together() -> Result {
    let mut setup = Setup::new()?;
    let mut memory = filled(&setup.gpu, 0)?;
    let mut region = memory.region(..)?;
    let [first, second, third] = setup.streams.clone();
    let gate = hold(&first)?;
    first.memcpy_dtod::<u8, _, _>(&setup.ones, &mut region)?;
    second.memcpy_dtod::<u8, _, _>(&memory, &mut setup.seen)?;
    third.memset_zeros::<u8, _>(&mut memory)?;
    drop(region);
    finish(&setup, &third, gate)?;
    assert_all(&setup.seen, 1, "a read of the memory got ahead of a write to its region")?;
    assert_all(&memory, 0, "a write to the memory got ahead of a write to its region")
}

#[test]
fn streams_of_two_values_of_one_context_are_ordered() -> Result {
    let mut setup = Setup::new()?;
    let mut memory = filled(&setup.gpu, 0)?;
    let first = setup.streams[0].clone();
    let second = CudaContext::new(0)?.new_stream()?;
    let gate = hold(&first)?;
    first.memcpy_dtod::<u8, _, _>(&setup.ones, &mut memory)?;
    second.memcpy_dtod::<u8, _, _>(&memory, &mut setup.seen)?;
    finish(&setup, &second, gate)?;
    assert_all(&setup.seen, 1, "a read got ahead of the write before it")
}

/// cudarc tracks the uses of its own slices by contexts that have made a stream only.
#[test]
fn the_default_stream_of_a_context_without_others_is_ordered_with_streams_of_another_value() -> Result {
    let mut setup = Setup::new()?;
    let mut memory = filled(&setup.gpu, 0)?;
    let first = CudaContext::new(0)?.default_stream();
    let second = setup.streams[0].clone();
    let gate = hold(&first)?;
    first.memcpy_dtod::<u8, _, _>(&setup.ones, &mut memory)?;
    second.memcpy_dtod::<u8, _, _>(&memory, &mut setup.seen)?;
    finish(&setup, &second, gate)?;
    assert_all(&setup.seen, 1, "a read got ahead of the write before it")
}

#[test]
fn a_stream_that_wrote_and_is_gone_is_still_waited_for() -> Result {
    let mut setup = Setup::new()?;
    let mut memory = filled(&setup.gpu, 0)?;
    let (first, second) = (setup.context.new_stream()?, setup.streams[0].clone());
    let gate = hold(&first)?;
    first.memcpy_dtod::<u8, _, _>(&setup.ones, &mut memory)?;
    drop(first);
    second.memcpy_dtod::<u8, _, _>(&memory, &mut setup.seen)?;
    finish(&setup, &second, gate)?;
    assert_all(&setup.seen, 1, "a read got ahead of the write before it")
}

#[test]
fn reads_on_two_streams_do_not_wait_for_each_other() -> Result {
    let mut setup = Setup::new()?;
    let memory = filled(&setup.gpu, 5)?;
    let mut other = filled(&setup.gpu, 0xee)?;
    let [first, second, _] = setup.streams.clone();
    let gate = hold(&first)?;
    first.memcpy_dtod::<u8, _, _>(&memory, &mut other)?;
    second.memcpy_dtod::<u8, _, _>(&memory, &mut setup.seen)?;
    second.synchronize()?;
    gate.open();
    assert_all(&setup.seen, 5, "the second read")
}

#[test]
fn uses_of_other_memory_do_not_wait() -> Result {
    let setup = Setup::new()?;
    let (mut one, mut other) = (filled(&setup.gpu, 0)?, filled(&setup.gpu, 0)?);
    let [first, second, _] = setup.streams.clone();
    let gate = hold(&first)?;
    first.memset_zeros::<u8, _>(&mut one)?;
    second.memcpy_dtod::<u8, _, _>(&setup.ones, &mut other)?;
    second.synchronize()?;
    gate.open();
    assert_all(&other, 1, "the copy on the second stream")
}

/// The calls of a driver that order streams.
fn ordering_calls() -> [Calls; 3] {
    ["cuEventCreate", "cuEventRecord", "cuStreamWaitEvent"].map(Calls::of)
}

/// Some copies on each stream in turn.
fn copies(streams: &[Arc<CudaStream>], ones: &Memory, memory: &mut Memory) -> Result {
    for stream in streams.iter().cycle().take(12) {
        stream.memcpy_dtod::<u8, _, _>(ones, memory)?;
        stream.memset_zeros::<u8, _>(memory)?;
    }
    Ok(())
}

#[test]
fn one_stream_records_no_events() -> Result {
    let (_primary, gpu) = support::open(OpenFlags::empty())?;
    let context = CudaContext::new(0)?;
    let (ones, mut memory) = (filled(&gpu, 1)?, filled(&gpu, 0)?);
    let calls = ordering_calls();
    copies(&[context.default_stream()], &ones, &mut memory)?;
    context.synchronize()?;
    drop((ones, memory));
    calls.iter().for_each(|calls| calls.assert(0, "uses by the default stream alone"));
    Ok(())
}

#[test]
fn a_context_without_event_tracking_orders_nothing() -> Result {
    let setup = Setup::new()?;
    let mut memory = filled(&setup.gpu, 0)?;
    // SAFETY: the test synchronises the streams by itself.
    unsafe { setup.context.disable_event_tracking() };
    let calls = ordering_calls();
    let gate = hold(&setup.streams[0])?;
    copies(&setup.streams[..2], &setup.ones, &mut memory)?;
    setup.streams[1].synchronize()?;
    gate.open();
    setup.context.synchronize()?;
    calls.iter().for_each(|calls| calls.assert(0, "tracking is off"));
    Ok(())
}

/// A stream of a new context, and memory of that context.
fn elsewhere(gpu: &Vkgdr) -> Result<(Context, Memory, Arc<CudaStream>)> {
    let context = Context::create(0);
    let memory = filled(gpu, 0)?;
    let stream = DeviceSlice::<u8>::stream(&memory).context().new_stream()?;
    Ok((context, memory, stream))
}

#[test]
fn a_read_of_memory_that_is_looked_up_during_a_write_is_waited_for() -> Result {
    let mut setup = Setup::new()?;
    let plain = Vkgdr::open(0, OpenFlags::empty())?;
    let [(_first_context, mut first, first_stream), (_second_context, mut second, second_stream)] =
        [elsewhere(&plain)?, elsewhere(&plain)?];
    setup.context.bind_to_thread()?;
    let (mut memory, nines) = (filled(&setup.gpu, 0)?, filled(&setup.gpu, 9)?);
    let address = memory.device_ptr();
    let Setup { streams: [writer, reader, last], ones, seen, context, .. } = &mut setup;
    writer.memset_zeros::<u8, _>(&mut memory)?;
    reader.memcpy_dtod::<u8, _, _>(&memory, seen)?;
    context.synchronize()?;
    // The write below waits for one other context that reads the memory, and the read for one that reads its target.
    let first_gate = hold(&first_stream)?;
    first_stream.memcpy_dtod::<u8, _, _>(&memory, &mut first)?;
    let second_gate = hold_behind(&second_stream, &first_stream)?;
    second_stream.memcpy_dtod::<u8, _, _>(seen, &mut second)?;
    let gate = hold_behind(reader, &second_stream)?;
    let waits = Calls::of("cuCtxSynchronize");
    thread::scope(|scope| -> Result {
        let (memory, ones, seen, writer, reader) = (&mut memory, &*ones, &mut *seen, &*writer, &*reader);
        let write = scope.spawn(move || writer.memcpy_dtod::<u8, _, _>(ones, memory));
        let_run(|| waits.count().is_some_and(|count| count > 0));
        let read = scope.spawn(move || {
            let found = memory_of(address).map(|(found, _)| found);
            found.map(|found| reader.memcpy_dtod::<u8, _, _>(&found, seen))
        });
        let_run(|| waits.count().is_some_and(|count| count > 1));
        first_gate.open();
        write.join().map_err(|_| "the write panicked")??;
        second_gate.open();
        Ok(read.join().map_err(|_| "the read panicked")?.ok_or("the memory was not found")??)
    })?;
    writer.synchronize()?;
    last.memcpy_dtod::<u8, _, _>(&nines, &mut memory)?;
    let done = last.record_event(None)?;
    let_run(|| done.is_complete());
    gate.open();
    context.synchronize()?;
    let overtaken = host_read(seen, 0, LEN)?.iter().filter(|byte| **byte == 9).count();
    assert_eq!(overtaken, 0, "the last write overtook the read");
    drop((first, second));
    Ok(())
}
