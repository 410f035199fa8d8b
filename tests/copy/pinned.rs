//! Copies by the copy engine from and to private memory page-locked by the caller.

use support::codes;
use support::cuda::{self, PinnedBytes};
use support::ledger::Calls;
use support::{Result, assert_says, device_read, pattern, refused, simcuda, supported};
use vkgdr::{CopyPolicy, Memory, MemoryKind, OpenFlags};

const NONE: OpenFlags = OpenFlags::empty();
const MAPPED: MemoryKind = MemoryKind::Mapped;
const LEN: usize = (3 << 20) + 8192;

/// Counts of the driver's copies, to and from the device.
fn copies() -> impl Fn(u64, u64, &str) {
    let (writes, reads) = (Calls::of("cuMemcpyHtoDAsync"), Calls::of("cuMemcpyDtoHAsync"));
    move |expected_writes, expected_reads, what| {
        writes.assert(expected_writes, what);
        reads.assert(expected_reads, what);
    }
}

fn write_and_read(memory: &Memory, offset: usize, bytes: &mut [u8], seed: u64) -> Result {
    let expected = pattern(bytes.len(), seed);
    bytes.copy_from_slice(&expected);
    memory.write_with(CopyPolicy::Dma, offset, bytes)?;
    cuda::synchronize();
    assert!(device_read(memory.device_ptr() + offset as u64, bytes.len()) == expected, "written");
    bytes.fill(0);
    memory.read_with(CopyPolicy::Dma, offset, bytes)?;
    assert!(bytes == expected, "read");
    Ok(())
}

#[test]
fn page_locked_memory_and_other_memory_are_copied_by_one_call() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let (mut pinned, mut pageable) = (PinnedBytes::new(LEN), PinnedBytes::pageable(LEN));
    for kind in supported(&gpu, &MemoryKind::ALL) {
        let memory = Memory::allocate(&gpu, LEN + 77, kind)?;
        write_and_read(&memory, 0, &mut pageable, 1)?;
        let direct = copies();
        write_and_read(&memory, 77, &mut pinned, 2)?;
        direct(1, 1, "page-locked");
        let direct = copies();
        write_and_read(&memory, 3, &mut pinned[1..LEN - 5], 3)?;
        direct(1, 1, "part of a page-locked range");
        let other = copies();
        write_and_read(&memory, 3, &mut pageable, 4)?;
        other(1, 1, "not page-locked");
    }
    Ok(())
}

/// The copy does not return while the device may use the caller's memory: a failed wait is repeated, for a second, unless the copy
/// has ended. Its stream is known no more, as after its context was destroyed, or the context is broken.
#[test]
fn a_copy_is_waited_for_again_when_waiting_fails_unless_it_has_ended() -> Result {
    let Some(sim) = simcuda() else { return support::skip("fault injection needs the simulated driver") };
    let (_context, gpu) = support::open(NONE)?;
    let memory = Memory::allocate(&gpu, LEN, MAPPED)?;
    let mut pinned = PinnedBytes::new(LEN);
    write_and_read(&memory, 0, &mut pinned, 1)?;
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
    write_and_read(&memory, 0, &mut pinned, 2)
}
