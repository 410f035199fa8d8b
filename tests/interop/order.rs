//! The order of uses of one memory's views on several streams: that of cudarc's own slices.
//!
//! A gate holds the first stream, so that without an order the second one gets ahead of it.

use std::sync::Arc;

use support::blocking::let_run;
use support::cuda::{Gate, PrimaryContext, hold};
use support::{Result, host_read, host_write};
use vkgdr::cudarc::driver::{CudaContext, CudaStream};
use vkgdr::{Memory, MemoryKind, OpenFlags, Pool, PoolOptions, Vkgdr};

const LEN: usize = 4096;

struct Setup {
    streams: [Arc<CudaStream>; 2],
    ones: Memory,
    seen: Memory,
    gpu: Vkgdr,
    _primary: PrimaryContext,
}

impl Setup {
    fn new() -> Result<Self> {
        let (primary, gpu) = support::open(OpenFlags::empty())?;
        let context = CudaContext::new(0)?;
        let streams = [context.new_stream()?, context.new_stream()?];
        let (ones, seen) = (filled(&gpu, 1)?, filled(&gpu, 0xee)?);
        Ok(Self { streams, ones, seen, gpu, _primary: primary })
    }
}

/// Memory with one value in all bytes.
fn filled(gpu: &Vkgdr, value: u8) -> Result<Memory> {
    let memory = Memory::allocate(gpu, LEN, MemoryKind::Mapped)?;
    host_write(&memory, 0, &[value; LEN])?;
    Ok(memory)
}

/// Gives the last stream the time to get ahead, opens the gate, and waits for all.
fn finish(setup: &Setup, gate: Gate) -> Result {
    let_run(|| false);
    gate.open();
    setup.streams.iter().try_for_each(|stream| stream.synchronize())?;
    Ok(())
}

fn assert_all(memory: &Memory, value: u8, what: &str) -> Result {
    let wrong = host_read(memory, 0, LEN)?.iter().filter(|byte| **byte != value).count();
    assert_eq!(wrong, 0, "wrong bytes of {LEN}: {what}");
    Ok(())
}

#[test]
fn a_use_on_another_stream_waits_for_the_earlier_ones_that_it_must_not_overtake() -> Result {
    let mut setup = Setup::new()?;
    let [first, second] = setup.streams.clone();
    let pool = Pool::new(&setup.gpu, PoolOptions::new(MemoryKind::Mapped))?;
    for mut memory in [Memory::allocate(&setup.gpu, LEN, MemoryKind::Mapped)?, pool.allocate(LEN)?] {
        host_write(&memory, 0, &[0; LEN])?;
        let gate = hold(&first);
        first.memcpy_dtod(&setup.ones.view::<u8>(&first)?, &mut memory.view_mut(&first)?)?;
        second.memcpy_dtod(&memory.view::<u8>(&second)?, &mut setup.seen.view_mut(&second)?)?;
        finish(&setup, gate)?;
        assert_all(&setup.seen, 1, "a read got ahead of the write")?;

        let gate = hold(&first);
        first.memcpy_dtod(&memory.view::<u8>(&first)?, &mut setup.seen.view_mut(&first)?)?;
        second.memset_zeros(&mut memory.view_mut::<u8>(&second)?)?;
        finish(&setup, gate)?;
        assert_all(&setup.seen, 1, "a write got ahead of the read")?;
        assert_all(&memory, 0, "the write")?;

        let gate = hold(&first);
        first.memset_zeros(&mut memory.view_mut::<u8>(&first)?)?;
        second.memcpy_dtod(&setup.ones.view::<u8>(&second)?, &mut memory.view_mut(&second)?)?;
        finish(&setup, gate)?;
        assert_all(&memory, 1, "a write got ahead of the write")?;
    }
    Ok(())
}

#[test]
fn reads_on_two_streams_do_not_wait_for_each_other() -> Result {
    let mut setup = Setup::new()?;
    let [first, second] = setup.streams.clone();
    let mut other = filled(&setup.gpu, 0)?;
    let gate = hold(&first);
    first.memcpy_dtod(&setup.ones.view::<u8>(&first)?, &mut setup.seen.view_mut(&first)?)?;
    second.memcpy_dtod(&setup.ones.view::<u8>(&second)?, &mut other.view_mut(&second)?)?;
    second.synchronize()?;
    assert_all(&other, 1, "the second read")?;
    assert_all(&setup.seen, 0xee, "the first read, which waits")?;
    finish(&setup, gate)?;
    assert_all(&setup.seen, 1, "the first read")
}
