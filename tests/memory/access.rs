//! CPU access: flush, invalidate, and edge cases of ranges.

use support::ledger::Calls;
use support::{HOST_VIEWS, Result, refused, supported};
use vkgdr::{Error, MapMode, Memory, MemoryKind, OpenFlags};

pub(crate) const NONE: OpenFlags = OpenFlags::empty();
pub(crate) const FORCED: OpenFlags = OpenFlags::FORCE_NON_COHERENT;
pub(crate) const SIZE: usize = 4097;
pub(crate) const MODES: [MapMode; 4] = [MapMode::Read, MapMode::Write, MapMode::ReadWrite, MapMode::Discard];

/// Counts the flushes and invalidates that call the driver.
pub(crate) struct Syncs {
    flushes: Calls,
    invalidates: Calls,
}

impl Syncs {
    pub(crate) fn count() -> Self {
        Self {
            flushes: Calls::of("vkFlushMappedMemoryRanges"),
            invalidates: Calls::of("vkInvalidateMappedMemoryRanges"),
        }
    }

    #[track_caller]
    pub(crate) fn assert(&self, flushes: u64, invalidates: u64, what: &str) {
        self.flushes.assert(flushes, what);
        self.invalidates.assert(invalidates, what);
    }
}

#[test]
fn the_whole_is_flushed_and_invalidated_in_one_call() -> Result {
    let (_context, gpu) = support::open(FORCED)?;
    for kind in support::imported(&gpu, &HOST_VIEWS) {
        for len in [1, 4095, 4096, 4097, (64 << 20) + 1] {
            let memory = Memory::allocate(&gpu, len, kind)?;
            let syncs = Syncs::count();
            memory.flush(..)?;
            memory.invalidate(..)?;
            syncs.assert(1, 1, &format!("{kind}: {len} bytes"));
        }
    }
    Ok(())
}

#[test]
fn coherent_memory_makes_no_driver_calls_for_flush_and_invalidate() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    for kind in supported(&gpu, &MemoryKind::ALL) {
        let memory = Memory::allocate(&gpu, SIZE, kind)?;
        if !memory.is_coherent() {
            eprintln!("left out: {kind} memory is not coherent");
            continue;
        }
        let syncs = Syncs::count();
        memory.flush(..)?;
        memory.flush(3..5)?;
        memory.invalidate(..)?;
        if kind.has_host_view() {
            for mode in MODES {
                memory.map(mode, ..)?.finish()?;
            }
        }
        syncs.assert(0, 0, &kind.to_string());
    }
    Ok(())
}

#[test]
fn ranges_may_be_written_in_every_way_that_rust_has() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let memory = Memory::allocate(&gpu, SIZE, MemoryKind::Mapped)?;
    let lens = [
        memory.slice(..)?.len(),
        memory.slice(97..)?.len(),
        memory.slice(..97)?.len(),
        memory.slice(..=97)?.len(),
        memory.slice(1..97)?.len(),
        memory.slice(1..=97)?.len(),
    ];
    assert_eq!(lens, [4097, 4000, 97, 98, 96, 97]);
    for error in [
        refused(memory.slice(..=usize::MAX)),
        refused(memory.slice(0..=usize::MAX)),
        refused(memory.slice(usize::MAX..)),
        refused(memory.slice(usize::MAX..=usize::MAX)),
    ] {
        assert!(matches!(error, Error::OutOfRange { .. }), "{error}");
    }
    Ok(())
}
