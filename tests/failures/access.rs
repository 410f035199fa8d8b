//! Failures of flush, invalidate and map on non-coherent memory, where they call the driver.
#![expect(unsafe_code, reason = "raw memory is freed by hand, and raw streams are bound")]

use support::cuda::{Stream, no_context};
use vkgdr::{MapMode, Memory, MemoryKind, OpenFlags, RawMemory};

use crate::Result;
use crate::place::{Place, imported_kind};
use crate::sweep::{Sweep, dropped};

const LEN: usize = 4097;
const FLUSH: &str = "vkFlushMappedMemoryRanges";
const INVALIDATE: &str = "vkInvalidateMappedMemoryRanges";

/// Sweeps an operation that creates no object.
fn sweep(what: &str, named: &[&str], operate: impl Fn() -> vkgdr::Result<()>) -> Result {
    let sweep = Sweep { what, named, ..Sweep::default() };
    sweep.run(|| Ok(()), |()| operate(), |()| Ok(()))
}

/// Runs a check in both places for every kind with a host view.
fn each_kind(check: impl Fn(&Place, MemoryKind) -> Result) -> Result {
    Place::each(OpenFlags::FORCE_NON_COHERENT, |place| {
        let visible = |&kind: &MemoryKind| support::is_imported(&place.gpu, kind) && kind.has_host_view();
        MemoryKind::ALL.into_iter().filter(visible).try_for_each(|kind| check(place, kind))
    })
}

#[test]
fn flush_and_invalidate_of_raw_memory_name_the_call_that_failed() -> Result {
    each_kind(|place, kind| {
        let mut memory = RawMemory::allocate(&place.gpu, LEN, kind)?;
        sweep("RawMemory::flush", &[FLUSH], || memory.flush(1, 65))?;
        sweep("RawMemory::invalidate", &[INVALIDATE], || memory.invalidate(1, 65))?;
        // SAFETY: nothing uses the memory.
        unsafe { memory.free() }?;
        Ok(())
    })
}

#[test]
fn flush_and_invalidate_of_memory_name_the_call_that_failed() -> Result {
    each_kind(|place, kind| {
        let memory = Memory::allocate(&place.gpu, LEN, kind)?;
        let region = memory.slice(63..)?;
        sweep("Memory::flush", &[FLUSH], || memory.flush(1..66))?;
        sweep("Memory::invalidate", &[INVALIDATE], || memory.invalidate(..))?;
        sweep("Memory::flush", &[FLUSH], || region.flush(..))?;
        sweep("Memory::invalidate", &[INVALIDATE], || region.invalidate(1..=1))
    })
}

#[test]
fn a_map_guard_names_the_call_that_failed() -> Result {
    each_kind(|place, kind| {
        let memory = Memory::allocate(&place.gpu, LEN, kind)?;
        let finish = |mode| memory.map(mode, 3..77)?.finish();
        sweep("map for reading", &[INVALIDATE], || finish(MapMode::Read))?;
        sweep("map for writing", &[INVALIDATE, FLUSH], || finish(MapMode::Write))?;
        sweep("map for both", &[INVALIDATE, FLUSH], || finish(MapMode::ReadWrite))?;
        sweep("map to overwrite", &[INVALIDATE, FLUSH], || finish(MapMode::Discard))
    })
}

#[test]
fn dropping_a_map_guard_survives_a_failed_flush() -> Result {
    each_kind(|place, kind| {
        let memory = Memory::allocate(&place.gpu, LEN, kind)?;
        let sweep = Sweep { what: "drop of a map guard", survived: &[FLUSH], ..Sweep::default() };
        sweep.run(|| Ok(memory.map(MapMode::ReadWrite, ..)?), dropped, |()| Ok(()))
    })
}

#[test]
fn mapping_bound_memory_names_the_call_that_failed() -> Result {
    let place = Place::plain(OpenFlags::FORCE_NON_COHERENT)?;
    let Some(kind) = imported_kind(&place.gpu) else {
        return support::skip("only Vulkan's memory is flushed");
    };
    let stream = Stream::create();
    let memory = Memory::allocate(&place.gpu, LEN, kind)?;
    support::bind(&memory, &stream)?;
    let named = ["cuCtxPushCurrent", "cuCtxGetId", "cuStreamSynchronize", "cuCtxPopCurrent", INVALIDATE, FLUSH];
    // Called when a reference to the stream is dropped.
    let incidental = &["cuCtxGetCurrent"];
    let sweep = Sweep { what: "map of bound memory", named: &named, incidental, ..Sweep::default() };
    no_context(|| sweep.run(|| Ok(()), |()| memory.map(MapMode::ReadWrite, ..)?.finish(), |()| Ok(())))?;
    drop(memory);
    stream.synchronize();
    place.gpu.collect();
    Ok(())
}
