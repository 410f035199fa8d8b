//! Failures of flush, invalidate and map on non-coherent memory, where they call the driver.

use support::cuda::{Stream, no_context};
use vkgdr::{MapMode, Memory, RawMemory};

use crate::place::{ENTER_AND_LEAVE, Place, SomeMemory, imported_kind};
use crate::sweep::Sweep;
use crate::{FORCED, LEN, Result};

const FLUSH: &str = "vkFlushMappedMemoryRanges";
const INVALIDATE: &str = "vkInvalidateMappedMemoryRanges";

/// What is done to memory.
type Access<'a> = (&'a str, &'a [&'static str], &'a dyn Fn() -> vkgdr::Result<()>);

#[test]
fn each_access_names_the_call_that_failed() -> Result {
    Place::each(FORCED, |place| {
        let kinds = SomeMemory::each(&place.gpu).map(|some| some.kind);
        for kind in kinds.filter(|&kind| kind.has_host_view() && support::is_imported(&place.gpu, kind)) {
            let (memory, mut raw) =
                (Memory::allocate(&place.gpu, LEN, kind)?, RawMemory::allocate(&place.gpu, LEN, kind)?);
            let region = memory.slice(63..)?;
            let finish = |mode| memory.map(mode, 3..77)?.finish();
            let accesses: [Access<'_>; 10] = [
                ("RawMemory::flush", &[FLUSH], &|| raw.flush(1, 65)),
                ("RawMemory::invalidate", &[INVALIDATE], &|| raw.invalidate(1, 65)),
                ("Memory::flush", &[FLUSH], &|| memory.flush(1..66)),
                ("Memory::invalidate", &[INVALIDATE], &|| memory.invalidate(..)),
                ("flush of a region", &[FLUSH], &|| region.flush(..)),
                ("invalidate of a region", &[INVALIDATE], &|| region.invalidate(1..=1)),
                ("map for reading", &[INVALIDATE], &|| finish(MapMode::Read)),
                ("map for writing", &[INVALIDATE, FLUSH], &|| finish(MapMode::Write)),
                ("map for both", &[INVALIDATE, FLUSH], &|| finish(MapMode::ReadWrite)),
                ("map to overwrite", &[INVALIDATE, FLUSH], &|| finish(MapMode::Discard)),
            ];
            for (what, named, access) in accesses {
                Sweep::of(what).named(named).call(access)?;
            }
            Sweep::of("drop of a map guard").survived(&[FLUSH]).drop(|| Ok(memory.map(MapMode::ReadWrite, ..)?))?;
            support::free(&mut raw)?;
        }
        Ok(())
    })
}

#[test]
fn mapping_bound_memory_names_the_call_that_failed() -> Result {
    let place = Place::plain(FORCED)?;
    let Some(kind) = imported_kind(&place.gpu) else {
        return support::skip("only Vulkan's memory is flushed");
    };
    let stream = Stream::create();
    let memory = Memory::allocate(&place.gpu, LEN, kind)?;
    support::bind(&memory, &stream)?;
    let sweep =
        Sweep::of("map of bound memory").named(&ENTER_AND_LEAVE).named(&["cuStreamSynchronize", INVALIDATE, FLUSH]);
    // Called when a reference to the stream is dropped.
    let sweep = sweep.incidental(&["cuCtxGetCurrent"]);
    no_context(|| sweep.call(|| memory.map(MapMode::ReadWrite, ..)?.finish()))?;
    drop(memory);
    stream.synchronize();
    place.gpu.collect();
    Ok(())
}
