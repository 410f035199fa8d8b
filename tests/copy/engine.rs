//! Copies by the GPU's copy engine: their bytes, their waits, and the cleanup after a destroyed context.

use std::thread;

use support::codes;
use support::cuda::{self, PinnedBytes, PrimaryContext, reset_primary};
use support::ledger::Calls;
use support::{Random, Result, assert_says, device_read, host_read, pattern, refused, simcuda, supported};
use vkgdr::{CopyPolicy, Error, Memory, MemoryKind, OpenFlags, Vkgdr};

const NONE: OpenFlags = OpenFlags::empty();
const FORCED: OpenFlags = OpenFlags::FORCE_NON_COHERENT;
const MAPPED: MemoryKind = MemoryKind::Mapped;
const LEN: usize = 64 << 10;

fn dma_read(region: &Memory, offset: usize, len: usize) -> vkgdr::Result<Vec<u8>> {
    let mut bytes = vec![0xa5; len];
    region.read_with(CopyPolicy::Dma, offset, &mut bytes)?;
    Ok(bytes)
}

#[test]
fn the_copy_engine_copies_the_bytes_asked_for_and_no_others() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let size = LEN + 8192;
    for kind in supported(&gpu, &MemoryKind::ALL) {
        let memory = Memory::allocate(&gpu, size, kind)?;
        let mut expected = pattern(size, 1);
        memory.write_with(CopyPolicy::Dma, 0, &expected)?;
        for (seed, len) in (2..).zip([0, 1, 195, 4096, LEN]) {
            // The second are a part of page-locked bytes.
            for (offset, mut bytes) in [(63, PinnedBytes::pageable(len)), (64, PinnedBytes::new(len + 2))] {
                let first = bytes.len() - len;
                let (what, bytes) =
                    (format!("{kind}: {len} bytes at {offset}"), &mut bytes[first / 2..first / 2 + len]);
                bytes.copy_from_slice(&pattern(len, seed));
                memory.write_with(CopyPolicy::Dma, offset, bytes)?;
                expected[offset..offset + len].copy_from_slice(bytes);
                bytes.fill(0);
                memory.read_with(CopyPolicy::Dma, offset, bytes)?;
                assert!(*bytes == expected[offset..offset + len], "{what}");
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
            let memory = Memory::allocate(&gpu, LEN, kind)?;
            let (one, two) = (pattern(LEN, 1), pattern(LEN, 2));
            memory.write_with(CopyPolicy::Cpu, 0, &one)?;
            assert!(dma_read(&memory, 0, LEN)? == one, "{kind}: what was not flushed");
            memory.write_with(CopyPolicy::Dma, 0, &two)?;
            let mut seen = vec![0; LEN];
            memory.read_with(CopyPolicy::Cpu, 0, &mut seen)?;
            assert!(seen == two, "{kind}: what was not invalidated");
            cuda::memcpy_htod(memory.device_ptr(), &one);
            cuda::synchronize();
            memory.invalidate(..)?;
            assert!(dma_read(&memory, 0, LEN)? == one, "{kind}: what the device wrote");
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
    let share = LEN + 4321;
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
fn a_destroyed_context_is_an_error_and_leaves_nothing() -> Result {
    let gpu = Vkgdr::open(0, NONE)?;
    let streams = || simcuda().map(|sim| sim.live_objects_of("stream"));
    let before = streams();
    for round in 0..3 {
        let _context = PrimaryContext::retain_and_push(0);
        let memory = Memory::allocate(&gpu, LEN, MAPPED)?;
        memory.write_with(CopyPolicy::Dma, 0, &pattern(LEN, round))?;
        assert!(dma_read(&memory, 0, LEN)? == pattern(LEN, round));
        reset_primary();
        let error = refused(memory.write_with(CopyPolicy::Dma, 0, &[1_u8]));
        assert_says(&error, &["failed (CUDA_ERROR_"]);
        if round == 1 {
            gpu.collect();
        }
        // The host view belongs to Vulkan and is still valid.
        assert!(host_read(&memory, 0, LEN)? == pattern(LEN, round));
    }
    gpu.collect();
    assert_eq!(streams(), before);
    Ok(())
}

/// The copy does not return while the device may use the caller's memory: a failed wait is repeated, for a second, unless the copy
/// has ended. Its stream is known no more, as after its context was destroyed, or the context is broken.
#[test]
fn a_copy_is_waited_for_again_when_waiting_fails_unless_it_has_ended() -> Result {
    let Some(sim) = simcuda() else { return support::skip("fault injection needs the simulated driver") };
    let (_context, gpu) = support::open(NONE)?;
    let memory = Memory::allocate(&gpu, LEN, MAPPED)?;
    let pinned = PinnedBytes::new(LEN);
    memory.write_with(CopyPolicy::Dma, 0, &pinned)?;
    for code in [codes::UNKNOWN, codes::STREAM_CAPTURE_UNSUPPORTED] {
        (1..=50).for_each(|nth| sim.fail("cuStreamSynchronize", nth, code));
        let waits = Calls::of("cuStreamSynchronize");
        memory.write_with(CopyPolicy::Dma, 0, &pinned)?;
        waits.assert(51, "until one succeeded");
    }
    // A code that lasts is taken for that of a broken context, although it is not a known one.
    let ended = [
        (codes::INVALID_HANDLE, 1),
        (codes::CONTEXT_IS_DESTROYED, 1),
        (codes::ILLEGAL_ADDRESS, 1),
        (codes::UNKNOWN, 1001),
    ];
    for (code, count) in ended {
        (1..=count).for_each(|nth| sim.fail("cuStreamSynchronize", nth, code));
        let waits = Calls::of("cuStreamSynchronize");
        let error = refused(memory.write_with(CopyPolicy::Dma, 0, &pinned));
        assert_says(&error, &["cuStreamSynchronize failed"]);
        assert_eq!(error.cuda_code(), Some(code));
        waits.assert(count, "no more");
        // The injected error ended no work: the copy may still run.
        cuda::synchronize();
    }
    memory.write_with(CopyPolicy::Dma, 0, &pinned)?;
    assert!(dma_read(&memory, 0, LEN)? == *pinned);
    Ok(())
}
