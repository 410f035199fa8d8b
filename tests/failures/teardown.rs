//! The order in which the stages of an allocation are dropped after a failure.
//!
//! The stages of CUDA are made to fail and log an error; at each log line the ledgers show the live objects.

use std::sync::{Mutex, PoisonError};

use log::{Level, LevelFilter, Log, Metadata, Record};
use support::codes;
use support::state::State;
use support::{simcuda, vklayer};
use vkgdr::{Memory, MemoryKind};

use crate::place::{Place, imports_mapped};
use crate::{NONE, Result};

/// Live objects at a log line: device mappings, imports, host mappings, Vulkan memories.
type Left = [usize; 4];

static SEEN: Mutex<Vec<(String, Left)>> = Mutex::new(Vec::new());

struct Recorder;

impl Log for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= Level::Warn
    }

    fn log(&self, record: &Record<'_>) {
        let seen = (record.args().to_string(), left());
        SEEN.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
    }

    fn flush(&self) {}
}

fn left() -> Left {
    let cuda = |noun| simcuda().map_or(0, |sim| sim.live_objects_of(noun));
    let vulkan = |noun| vklayer().map_or(0, |layer| layer.live_objects_of(noun));
    [cuda("mapped"), cuda("external"), vulkan("mapping"), vulkan("memory")]
}

#[test]
fn an_allocation_is_torn_down_in_reverse_order() -> Result {
    let (Some(sim), Some(_)) = (simcuda(), vklayer()) else {
        return support::skip("needs the simulated CUDA driver and the fault layer");
    };
    let place = Place::primary(NONE)?;
    if !imports_mapped(&place.gpu) {
        return Ok(());
    }
    Memory::allocate(&place.gpu, 4096, MemoryKind::Mapped)?.free()?;
    let (before, none) = (State::take(), left());
    log::set_logger(&Recorder).map_err(|error| error.to_string())?;
    log::set_max_level(LevelFilter::Warn);

    // The mapping ends before the import: the first error is that of the mapping. The failing call did its work: the simulator
    // injects the error afterwards, as CUDA may report one.
    let memory = Memory::allocate(&place.gpu, 4096, MemoryKind::Mapped)?;
    sim.fail("cuMemFree", 1, codes::UNKNOWN);
    sim.fail("cuDestroyExternalMemory", 1, codes::UNKNOWN);
    let freed = memory.free();
    assert!(freed.is_err_and(|error| error.to_string().starts_with("cuMemFree failed")));

    // The import ends before Vulkan's memory. Mapping fails, and what was made before is dropped, whose error is logged.
    sim.fail("cuExternalMemoryGetMappedBuffer", 1, codes::UNKNOWN);
    sim.fail("cuDestroyExternalMemory", 1, codes::UNKNOWN);
    let refused = Memory::allocate(&place.gpu, 4096, MemoryKind::Mapped).map(drop);
    sim.clear_faults();
    log::set_max_level(LevelFilter::Off);
    assert!(refused.is_err_and(|error| error.to_string().starts_with("cuExternalMemoryGetMappedBuffer failed")));
    let seen = std::mem::take(&mut *SEEN.lock().unwrap_or_else(PoisonError::into_inner));
    let more_than_before = |left: Left| std::array::from_fn::<_, 4, _>(|i| left[i] - none[i]);
    let seen: Vec<_> = seen.iter().map(|(line, left)| (line.as_str(), more_than_before(*left))).collect();
    assert_eq!(seen, [("releasing memory: cuDestroyExternalMemory failed (CUDA_ERROR_UNKNOWN)", [0, 0, 1, 1])]);

    // Leaving the context fails after the allocation, which is then dropped.
    sim.fail("cuCtxPopCurrent", 1, codes::UNKNOWN);
    let refused = Memory::allocate(&place.gpu, 4096, MemoryKind::Mapped).map(drop);
    sim.clear_faults();
    assert!(refused.is_err_and(|error| error.to_string().starts_with("cuCtxPopCurrent failed")));
    State::assert_unchanged(&before, "the drop");
    Ok(())
}
