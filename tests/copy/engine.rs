//! Copies by the GPU's copy engine: their bytes, and the cleanup after a destroyed context.

use std::thread;

use support::cuda::{self, Context, PrimaryContext, no_context, reset_primary};
use support::ledger::Calls;
use support::{Random, Result, amount, assert_says, device_read, host_read, pattern, refused, simcuda, supported};
use vkgdr::{CopyPolicy, Error, Memory, MemoryKind, OpenFlags, Vkgdr};

const NONE: OpenFlags = OpenFlags::empty();
const FORCED: OpenFlags = OpenFlags::FORCE_NON_COHERENT;
const MAPPED: MemoryKind = MemoryKind::Mapped;
/// Lengths of copies.
const SLOT: usize = 1 << 20;
const SEGMENT: usize = 64 << 10;

fn dma_read(region: &Memory, offset: usize, len: usize) -> vkgdr::Result<Vec<u8>> {
    let mut bytes = vec![0xa5; len];
    region.read_with(CopyPolicy::Dma, offset, &mut bytes)?;
    Ok(bytes)
}

#[test]
fn the_copy_engine_copies_the_bytes_asked_for_and_no_others() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let size = 3 * SLOT + 200;
    let lens = [0, 1, SEGMENT - 1, SEGMENT, SEGMENT + 1, SLOT - 1, SLOT, SLOT + 1, 2 * SLOT + 77, 3 * SLOT + 5];
    let offsets = &[1, 195, 0, 63, 64][..amount(2, 5)];
    for kind in supported(&gpu, &MemoryKind::ALL) {
        let memory = Memory::allocate(&gpu, size, kind)?;
        let mut expected = pattern(size, 1);
        memory.write_with(CopyPolicy::Dma, 0, &expected)?;
        for (seed, len) in (2..).zip(lens).step_by(amount(2, 1)) {
            for &offset in offsets {
                let what = format!("{kind}: {len} bytes at {offset}");
                let bytes = pattern(len, seed);
                memory.write_with(CopyPolicy::Dma, offset, &bytes)?;
                expected[offset..offset + len].copy_from_slice(&bytes);
                assert!(dma_read(&memory, offset, len)? == bytes, "{what}");
            }
            assert!(device_read(memory.device_ptr(), size) == expected, "{kind}: {len} bytes");
            if kind.has_host_view() {
                assert!(host_read(&memory, 0, size)? == expected, "{kind}: {len} bytes, by the CPU");
            }
        }
    }
    Ok(())
}

#[test]
fn the_copy_engine_and_the_cpu_see_each_others_bytes() -> Result {
    for flags in [NONE, FORCED] {
        let (_context, gpu) = support::open(flags)?;
        for kind in supported(&gpu, &support::HOST_VIEWS) {
            let memory = Memory::allocate(&gpu, 2 * SLOT, kind)?;
            let (one, two) = (pattern(2 * SLOT, 1), pattern(2 * SLOT, 2));
            memory.write_with(CopyPolicy::Cpu, 0, &one)?;
            assert!(dma_read(&memory, 0, 2 * SLOT)? == one, "{kind}: what was not flushed");
            memory.write_with(CopyPolicy::Dma, 0, &two)?;
            let mut seen = vec![0; 2 * SLOT];
            memory.read_with(CopyPolicy::Cpu, 0, &mut seen)?;
            assert!(seen == two, "{kind}: what was not invalidated");
            cuda::memcpy_htod(memory.device_ptr(), &one);
            cuda::synchronize();
            memory.invalidate(..)?;
            assert!(dma_read(&memory, 0, 2 * SLOT)? == one, "{kind}: what the device wrote");
        }
    }
    Ok(())
}

#[test]
fn memory_that_is_not_coherent_is_flushed_before_and_invalidated_after() -> Result {
    let (forced, coherent) = (support::open(FORCED)?, support::open_coherent()?);
    for ((_, gpu), atoms) in [(Some(&forced), 1), (coherent.as_ref(), 0)].into_iter().filter_map(|(o, n)| Some((o?, n)))
    {
        let memory = Memory::allocate(gpu, 4096, MAPPED)?;
        let count = || (Calls::of("vkFlushMappedMemoryRanges"), Calls::of("vkInvalidateMappedMemoryRanges"));
        let (flushes, invalidates) = count();
        memory.write_with(CopyPolicy::Dma, 100, &[1_u8; 1000])?;
        flushes.assert(atoms, "before a write");
        invalidates.assert(atoms, "after a write");
        let (flushes, invalidates) = count();
        dma_read(&memory, 100, 1000)?;
        flushes.assert(atoms, "before a read");
        invalidates.assert(0, "after a read");
    }
    Ok(())
}

#[test]
fn device_memory_is_copied_by_the_copy_engine_alone() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let memory = Memory::allocate(&gpu, 1000, MemoryKind::Device)?;
    let (writes, reads) = (Calls::of("cuMemcpyHtoDAsync"), Calls::of("cuMemcpyDtoHAsync"));
    memory.write_with(CopyPolicy::Auto, 1, &[5_u8; 900])?;
    let mut seen = [0_u8; 900];
    memory.read_with(CopyPolicy::Auto, 1, &mut seen)?;
    assert_eq!(seen, [5; 900]);
    writes.assert(1, "written");
    reads.assert(1, "read");
    for error in [
        refused(memory.write_with(CopyPolicy::Cpu, 0, &[1_u8])),
        refused(memory.read_with(CopyPolicy::Cpu, 0, &mut [1_u8])),
        refused(memory.writer().write(0, &[1_u8])),
    ] {
        assert!(matches!(error, Error::NoHostView { kind: MemoryKind::Device }), "{error}");
    }
    Ok(())
}

#[test]
fn copies_of_many_threads_do_not_mix() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let share = SLOT + 4321;
    let memory = Memory::allocate(&gpu, 4 * share, MAPPED)?;
    let copy = |thread: usize| -> vkgdr::Result<()> {
        let part = memory.slice(thread * share..(thread + 1) * share)?;
        let mut random = Random::new(thread as u64);
        for _ in 0..12 {
            let (offset, len) = random.range_within(share);
            let bytes = random.bytes(len);
            part.write_with(CopyPolicy::Dma, offset, &bytes)?;
            assert!(dma_read(&part, offset, len)? == bytes, "thread {thread}: {len} bytes at {offset}");
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || copy(thread))).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    Ok(())
}

#[test]
fn a_context_has_one_copy_engine() -> Result {
    let context = Context::create(0);
    let gpu = Vkgdr::open(0, NONE)?;
    let memory = Memory::allocate(&gpu, 4 * SLOT, MAPPED)?;
    let streams = Calls::of("cuStreamCreate");
    for len in [1, SEGMENT, SLOT, 4 * SLOT] {
        let (writes, reads) = (Calls::of("cuMemcpyHtoDAsync"), Calls::of("cuMemcpyDtoHAsync"));
        no_context(|| memory.write_with(CopyPolicy::Dma, 0, &pattern(len, 3)))?;
        assert!(no_context(|| dma_read(&memory, 0, len))? == pattern(len, 3));
        writes.assert(1, &format!("{len} bytes written"));
        reads.assert(1, &format!("{len} bytes read"));
    }
    streams.assert(1, "shared by all copies");
    drop((memory, gpu));
    drop(context);
    Ok(())
}

#[test]
fn a_destroyed_context_is_an_error_and_leaves_nothing() -> Result {
    let gpu = Vkgdr::open(0, NONE)?;
    let streams = || simcuda().map(|sim| (sim.live_objects_of("stream"), sim.live_objects_of("host")));
    let before = streams();
    for round in 0..3 {
        let _context = PrimaryContext::retain_and_push(0);
        let memory = Memory::allocate(&gpu, SLOT, MAPPED)?;
        memory.write_with(CopyPolicy::Dma, 0, &pattern(SLOT, round))?;
        assert!(dma_read(&memory, 0, SLOT)? == pattern(SLOT, round));
        reset_primary();
        let error = refused(memory.write_with(CopyPolicy::Dma, 0, &[1_u8]));
        assert_says(&error, &["failed (CUDA_ERROR_"]);
        if round == 1 {
            gpu.collect();
        }
        // The host view belongs to Vulkan and is still valid.
        assert!(host_read(&memory, 0, SLOT)? == pattern(SLOT, round));
    }
    gpu.collect();
    assert_eq!(streams(), before);
    Ok(())
}
