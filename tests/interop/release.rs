//! Memory is released, and lent again by its pool, after its uses through views and those of `record_use`, also by streams of other
//! contexts.
#![expect(unsafe_code, reason = "records uses of streams that the tests keep")]

use std::mem::ManuallyDrop;
use std::sync::Arc;

use support::blocking::{let_run, while_shut};
use support::cuda::{Context, Gate, Stream, current, hold};
use support::ledger::Live;
use support::{Result, host_write, simcuda, skip};
use vkgdr::cudarc::driver::{CudaContext, CudaSlice, CudaStream};
use vkgdr::{DropPolicy, Memory, MemoryKind, OpenFlags, Pool, PoolOptions, StreamRef, Vkgdr};

const LEN: usize = 32 << 10;
const BLOCK: usize = 256 << 10;

fn ones(gpu: &Vkgdr) -> Result<Memory> {
    let memory = Memory::allocate(gpu, LEN, MemoryKind::Mapped)?;
    host_write(&memory, 0, &[1; LEN])?;
    Ok(memory)
}

#[test]
fn memory_that_two_streams_read_by_views_is_released_after_both() -> Result {
    let (_primary, gpu) = support::open(OpenFlags::empty())?;
    let context = CudaContext::new(0)?;
    let (slow, fast) = (context.new_stream()?, context.new_stream()?);
    let mut targets = [slow.alloc_zeros::<u8>(LEN)?, fast.alloc_zeros::<u8>(LEN)?];
    context.synchronize()?;
    for bound in [false, true] {
        let before = Live::now();
        let memory = ones(&gpu)?;
        if bound {
            memory.bind_stream(&fast)?;
        }
        let gate = hold(&slow);
        slow.memcpy_dtod(&memory.view::<u8>(&slow)?, &mut targets[0])?;
        fast.memcpy_dtod(&memory.view::<u8>(&fast)?, &mut targets[1])?;
        let slice = memory.slice(1..)?;
        drop(memory);
        while_shut(gate, || {
            drop(slice);
            let_run(|| gpu.collect() > 0);
            Ok(())
        })?;
        context.synchronize().map_err(|error| format!("a read failed: {error}"))?;
        for target in &targets {
            assert!(slow.clone_dtoh(target)?.iter().all(|byte| *byte == 1), "bound: {bound}");
        }
        gpu.collect();
        assert_eq!((gpu.deferred_frees(), Live::now()), (0, before), "bound: {bound}");
    }
    Ok(())
}

#[test]
fn bound_or_viewed_memory_may_be_the_last_owner_of_a_context_of_cudarc() -> Result {
    if simcuda().is_none() {
        return skip("only the simulated driver says what becomes of a destroyed context");
    }
    let before = Live::now();
    for (is_bound, is_used) in [(true, false), (true, true), (false, false)] {
        let context = ManuallyDrop::new(Context::create(0));
        // SAFETY: live, of device 0, and destroyed by cudarc alone.
        let context = unsafe { CudaContext::from_raw_context(0, 0, context.raw()) }?;
        let (stream, gpu) = (context.new_stream()?, Vkgdr::open_current_context(OpenFlags::empty())?);
        let memory = ones(&gpu)?;
        if is_bound {
            memory.bind_stream(&stream)?;
        } else {
            assert_eq!(memory.view::<u8>(&stream)?.len(), LEN);
        }
        let gate = is_used.then(|| hold(&stream));
        assert_ne!(memory.device_ptr(), 0);
        drop((stream, context));
        memory.free()?;
        if let Some(gate) = gate {
            gate.open();
        }
        let_run(|| {
            gpu.collect();
            current().is_null()
        });
        assert!(current().is_null(), "bound: {is_bound}, used: {is_used}: the context ended with the memory");
    }
    assert_eq!(Live::now(), before);
    Ok(())
}

#[test]
fn memory_that_is_viewed_on_a_stream_for_each_request_keeps_few_of_them() -> Result {
    let Some(simcuda) = simcuda() else { return skip("only the simulated driver counts streams") };
    let (_primary, gpu) = support::open(OpenFlags::empty())?;
    let context = CudaContext::new(0)?;
    let stream = context.new_stream()?;
    for is_bound in [false, true] {
        let memory = ones(&gpu)?;
        if is_bound {
            memory.bind_stream(&stream)?;
        }
        let kept: Vec<_> = (0..63).map(|_| context.new_stream()).collect::<std::result::Result<_, _>>()?;
        for stream in kept.iter().chain(&kept).filter(|_| is_bound) {
            assert_eq!(memory.view::<u8>(stream)?.len(), LEN);
            assert_eq!(memory.drop_policy(), DropPolicy::WaitForStream);
        }
        drop(kept);
        let before = simcuda.live_objects_of("stream");
        for _ in 0..200 {
            let request = context.new_stream()?;
            assert!(request.clone_dtoh(&memory.view::<u8>(&request)?)?.iter().all(|byte| *byte == 1));
            request.synchronize()?;
        }
        assert_eq!(simcuda.live_objects_of("stream") - before, 1, "bound: {is_bound}");
        assert_eq!(memory.drop_policy(), DropPolicy::WaitForContext);
    }
    Ok(())
}

#[test]
fn a_view_leaves_bound_memory_to_its_streams() -> Result {
    let (_primary, gpu) = support::open(OpenFlags::empty())?;
    let context = CudaContext::new(0)?;
    let (stream, other) = (context.new_stream()?, context.new_stream()?);
    let memory = ones(&gpu)?;
    assert_eq!(memory.view::<u8>(&stream)?.len(), LEN);
    assert_eq!(memory.drop_policy(), DropPolicy::WaitForContext);
    memory.bind_stream(&stream)?;
    assert_eq!(memory.drop_policy(), DropPolicy::WaitForContext, "another stream may have used it before");
    let memory = ones(&gpu)?;
    memory.bind_stream(&stream)?;
    assert_eq!(memory.view::<u8>(&other)?.len(), LEN);
    assert_eq!(memory.drop_policy(), DropPolicy::WaitForStream);
    // SAFETY: the device uses the memory no more.
    unsafe { memory.set_drop_policy(DropPolicy::Immediate) };
    assert_eq!(memory.view::<u8>(&stream)?.len(), LEN);
    assert_eq!(memory.drop_policy(), DropPolicy::Immediate);
    Ok(())
}

/// Memory is allocated in a context of its own, and a stream of the primary context reads it.
struct Elsewhere {
    reader: Arc<CudaStream>,
    target: CudaSlice<u8>,
    gpu: Vkgdr,
    // Last, and current: the memory's.
    owner: Context,
}

impl Elsewhere {
    fn new() -> Result<Self> {
        let context = CudaContext::new(0)?;
        let reader = context.new_stream()?;
        let target = reader.alloc_zeros(LEN)?;
        reader.synchronize()?;
        let gpu = Vkgdr::open(0, OpenFlags::empty())?;
        Ok(Self { reader, target, gpu, owner: Context::create(0) })
    }

    fn pool(&self) -> Result<Pool> {
        let options = PoolOptions::new(MemoryKind::Mapped).block_len(BLOCK).largest_chunk(64 << 10);
        Ok(self.owner.with_current(|| Pool::new(&self.gpu, options))?)
    }

    /// Has the reader begin to copy memory, behind a gate.
    fn read(&mut self, memory: &Memory) -> Result<Gate> {
        self.reader.context().bind_to_thread()?;
        // SAFETY: this value keeps the stream longer than the tests keep the memory.
        let stream = unsafe { StreamRef::in_current_context(self.reader.cu_stream()) }?;
        let gate = hold(&self.reader);
        memory.record_use(stream)?;
        let source = memory.device_ptr();
        // SAFETY: the memory is released after this use.
        let source = unsafe { self.reader.upgrade_device_ptr::<u8>(source, LEN) };
        self.reader.memcpy_dtod(&source, &mut self.target)?;
        // A drop would free the memory.
        source.leak();
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

#[test]
fn memory_is_not_freed_while_a_recorded_stream_of_another_context_reads_it() -> Result {
    for bound in [false, true] {
        let mut setup = Elsewhere::new()?;
        let memory = setup.owner.with_current(|| ones(&setup.gpu))?;
        let stream = setup.owner.with_current(Stream::create);
        if bound {
            support::bind(&memory, &stream)?;
        }
        let gate = setup.read(&memory)?;
        while_shut(gate, || {
            memory.free()?;
            setup.gpu.collect();
            Ok(())
        })?;
        // Late work may not have passed its event yet.
        setup.owner.with_current(|| stream.synchronize());
        setup.check()?;
        assert_eq!(setup.gpu.deferred_frees(), 0, "bound: {bound}");
    }
    Ok(())
}

#[test]
fn memory_of_a_pool_is_not_lent_again_while_a_recorded_stream_of_another_context_reads_it() -> Result {
    let mut setup = Elsewhere::new()?;
    let pool = setup.pool()?;
    let all: Vec<_> = (0..BLOCK / LEN).map(|_| pool.allocate(LEN)).collect::<vkgdr::Result<_>>()?;
    all.iter().try_for_each(|memory| host_write(memory, 0, &[1; LEN]))?;
    let gate = setup.read(&all[0])?;
    let others = while_shut(gate, || {
        // Waits for the stream of the other context.
        drop(all);
        pool.release_unused();
        let all: Vec<_> = (0..BLOCK / LEN).map(|_| pool.allocate(LEN)).collect::<vkgdr::Result<_>>()?;
        all.iter().try_for_each(|memory| host_write(memory, 0, &[0xee; LEN]))?;
        Ok(all)
    })?;
    setup.check()?;
    drop(others);
    Ok(())
}
