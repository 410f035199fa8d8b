//! Memory that cudarc's streams use is released, and lent again by its pool, after these uses, also those by streams of
//! other contexts.
#![expect(unsafe_code, reason = "blocks streams")]

use std::sync::Arc;

use support::blocking::{let_run, while_shut};
use support::codes::OUT_OF_MEMORY;
use support::cuda::{Context, Gate, Stream};
use support::ledger::Live;
use support::{Result, host_write, simcuda, skip};
use vkgdr::cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, DeviceSlice};
use vkgdr::{Memory, MemoryKind, OpenFlags, Pool, PoolMemory, PoolOptions, Vkgdr};

const LEN: usize = 32 << 10;
const BLOCK: usize = 256 << 10;

/// Memory is allocated in a context of its own, and a stream of the primary context reads it.
struct Setup {
    reader: Arc<CudaStream>,
    target: CudaSlice<u8>,
    gpu: Vkgdr,
    // Last, and current: the memory's.
    owner: Context,
}

impl Setup {
    fn new() -> Result<Self> {
        let context = CudaContext::new(0)?;
        let reader = context.new_stream()?;
        let target = reader.alloc_zeros(LEN)?;
        reader.synchronize()?;
        let gpu = Vkgdr::open(0, OpenFlags::empty())?;
        Ok(Self { reader, target, gpu, owner: Context::create(0) })
    }

    /// Memory full of ones, in the context of its own.
    fn memory(&self) -> Result<Memory> {
        let memory = self.owner.with_current(|| Memory::allocate(&self.gpu, LEN, MemoryKind::Mapped))?;
        host_write(&memory, 0, &[1; LEN])?;
        Ok(memory)
    }

    fn pool(&self) -> Result<Pool> {
        let options = PoolOptions::new(MemoryKind::Mapped).block_len(BLOCK).largest_piece(64 << 10);
        Ok(self.owner.with_current(|| Pool::new(&self.gpu, options))?)
    }

    /// Has the reader begin to copy memory, behind a gate.
    fn read(&mut self, memory: &impl DevicePtr<u8>) -> Result<Gate> {
        let gate = hold(&self.reader);
        self.reader.memcpy_dtod(memory, &mut self.target)?;
        Ok(gate)
    }

    /// As [`read`](Self::read), of several chunks full of ones, one after another.
    fn read_all(&mut self, chunks: &[PoolMemory]) -> Result<Gate> {
        let gate = hold(&self.reader);
        for chunk in chunks {
            host_write(chunk, 0, &[1; LEN])?;
            self.reader.memcpy_dtod::<u8, _, _>(chunk, &mut self.target)?;
        }
        Ok(gate)
    }

    /// Checks what the reader has copied.
    fn check(&self) -> Result {
        self.reader.synchronize().map_err(|error| format!("the read failed: {error}"))?;
        let wrong = self.reader.clone_dtoh(&self.target)?.iter().filter(|byte| **byte != 1).count();
        assert_eq!(wrong, 0, "wrong bytes of {LEN}");
        self.gpu.collect();
        Ok(())
    }
}

fn hold(stream: &CudaStream) -> Gate {
    // SAFETY: the reference keeps the stream alive.
    let gate = unsafe { Stream::hold_raw(stream.cu_stream()) };
    gate.wait_until_reached();
    gate
}

#[test]
fn memory_is_not_freed_while_a_stream_of_another_context_reads_it() -> Result {
    let mut setup = Setup::new()?;
    let memory = setup.memory()?;
    let gate = setup.read(&memory)?;
    while_shut(gate, || Ok(memory.free()?))?;
    setup.check()
}

#[test]
fn dropped_memory_is_not_released_while_a_stream_of_another_context_reads_it() -> Result {
    let mut setup = Setup::new()?;
    let memory = setup.memory()?;
    let region = memory.region(..)?;
    let gate = setup.read(&region)?;
    drop(memory);
    while_shut(gate, || {
        drop(region);
        Ok(())
    })?;
    setup.check()
}

#[test]
fn bound_memory_is_not_released_while_a_stream_of_another_context_reads_it() -> Result {
    let mut setup = Setup::new()?;
    let memory = setup.memory()?;
    let bound = DeviceSlice::<u8>::stream(&memory).context().new_stream()?;
    memory.bind_stream(&bound)?;
    let gate = setup.read(&memory)?;
    while_shut(gate, || {
        drop(memory);
        bound.synchronize()?;
        setup.gpu.collect();
        Ok(())
    })?;
    setup.check()
}

/// Allocates as much as there is in a block, and overwrites it.
fn overwrite(pool: &Pool) -> Result<Vec<PoolMemory>> {
    let all: Vec<_> = (0..BLOCK / LEN).map(|_| pool.allocate(LEN)).collect::<vkgdr::Result<_>>()?;
    all.iter().try_for_each(|chunk| host_write(chunk, 0, &[0xee; LEN]))?;
    Ok(all)
}

#[test]
fn memory_of_a_pool_is_not_lent_again_while_a_stream_of_another_context_reads_it() -> Result {
    let mut setup = Setup::new()?;
    let pool = setup.pool()?;
    // All of a block, so that the pool waits rather than adds a block.
    let all: Vec<_> = (0..BLOCK / LEN).map(|_| pool.allocate(LEN)).collect::<vkgdr::Result<_>>()?;
    let gate = setup.read_all(&all)?;
    drop(all);
    let others = while_shut(gate, || overwrite(&pool))?;
    setup.check()?;
    drop(others);
    Ok(())
}

#[test]
fn memory_of_a_pool_is_not_given_back_while_a_stream_of_another_context_reads_it() -> Result {
    let mut setup = Setup::new()?;
    let pool = setup.pool()?;
    let chunk = pool.allocate(LEN)?;
    host_write(&chunk, 0, &[1; LEN])?;
    let gate = setup.read(&chunk)?;
    drop(chunk);
    while_shut(gate, || {
        pool.free_held();
        drop(pool);
        Ok(())
    })?;
    setup.check()
}

#[test]
fn memory_of_a_closed_pool_stays_while_waiting_for_another_context_fails() -> Result {
    let Some(sim) = simcuda() else { return skip("only the simulated driver's calls can be made to fail") };
    for chunk_last in [false, true] {
        let mut setup = Setup::new()?;
        let before = Live::now();
        let pool = setup.pool()?;
        let chunk = pool.allocate(LEN)?;
        host_write(&chunk, 0, &[1; LEN])?;
        let gate = setup.read(&chunk)?;
        let fail = || sim.fail("cuCtxSynchronize", 1, OUT_OF_MEMORY);
        if chunk_last {
            drop(pool);
            fail();
            drop(chunk);
        } else {
            drop(chunk);
            fail();
            drop(pool);
        }
        assert_eq!(sim.last_fault().as_deref(), Some("cuCtxSynchronize"));
        sim.clear_faults();
        assert_eq!(setup.gpu.pending_releases(), 1, "the chunk is last: {chunk_last}");
        gate.open();
        setup.check()?;
        assert_eq!((setup.gpu.pending_releases(), Live::now()), (0, before), "the chunk is last: {chunk_last}");
    }
    Ok(())
}

/// A chunk that was allocated on a stream belongs to that stream, which may reuse it at once.
#[test]
fn memory_of_a_stream_is_not_lent_again_while_a_stream_of_another_context_reads_it() -> Result {
    let mut setup = Setup::new()?;
    let pool = setup.pool()?;
    let probe = setup.memory()?;
    let stream = DeviceSlice::<u8>::stream(&probe).context().new_stream()?;
    let all: Vec<_> = (0..BLOCK / LEN).map(|_| pool.allocate_on(LEN, &stream)).collect::<vkgdr::Result<_>>()?;
    let gate = setup.read_all(&all)?;
    drop(all);
    let others = while_shut(gate, || {
        let all: Vec<_> = (0..BLOCK / LEN).map(|_| pool.allocate_on(LEN, &stream)).collect::<vkgdr::Result<_>>()?;
        all.iter().try_for_each(|chunk| host_write(chunk, 0, &[0xee; LEN]))?;
        Ok(all)
    })?;
    setup.check()?;
    drop(others);
    Ok(())
}

#[test]
fn memory_that_two_streams_read_is_released_after_both() -> Result {
    let (_primary, gpu) = support::open(OpenFlags::empty())?;
    let context = CudaContext::new(0)?;
    let (slow, fast) = (context.new_stream()?, context.new_stream()?);
    let mut targets = [slow.alloc_zeros::<u8>(LEN)?, fast.alloc_zeros::<u8>(LEN)?];
    context.synchronize()?;
    for bound in [false, true] {
        let before = Live::now();
        let memory = Memory::allocate(&gpu, LEN, MemoryKind::Mapped)?;
        host_write(&memory, 0, &[1; LEN])?;
        if bound {
            memory.bind_stream(&fast)?;
        }
        let gate = hold(&slow);
        slow.memcpy_dtod(&memory, &mut targets[0])?;
        fast.memcpy_dtod(&memory, &mut targets[1])?;
        while_shut(gate, || {
            drop(memory);
            let_run(|| gpu.collect() > 0);
            Ok(())
        })?;
        context.synchronize().map_err(|error| format!("a read failed: {error}"))?;
        for target in &targets {
            assert!(slow.clone_dtoh(target)?.iter().all(|byte| *byte == 1), "bound: {bound}");
        }
        gpu.collect();
        assert_eq!((gpu.pending_releases(), Live::now()), (0, before), "bound: {bound}");
    }
    Ok(())
}
