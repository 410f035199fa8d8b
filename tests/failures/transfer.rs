//! Failures of copies by the copy engine, and of its setup in a context.

use std::cell::RefCell;

use support::cuda::{Context, PinnedBytes, no_context};
use vkgdr::{CopyPolicy, Memory, MemoryKind, OpenFlags, Vkgdr};

use crate::Result;
use crate::place::{Place, SomeMemory, imported_kind};
use crate::sweep::{Sweep, dropped};

/// Larger than two slots of the copy engine.
const LEN: usize = (2 << 20) + 3;
const ENTER_AND_LEAVE: [&str; 3] = ["cuCtxPushCurrent", "cuCtxGetId", "cuCtxPopCurrent"];
const WRITE: [&str; 2] = ["cuMemcpyHtoDAsync", "cuStreamSynchronize"];
const READ: [&str; 2] = ["cuMemcpyDtoHAsync", "cuStreamSynchronize"];
/// The query whether the caller's memory is page-locked; its failure is survived.
const ASK: &str = "cuPointerGetAttributes";
const FLUSH: [&str; 1] = ["vkFlushMappedMemoryRanges"];
const SET_UP: [&str; 2] = ["cuMemHostRegister", "cuStreamCreate"];

fn write(memory: &Memory) -> vkgdr::Result<()> {
    memory.write_with(CopyPolicy::Dma, 1, &vec![3_u8; LEN - 1])
}

/// Sweeps a write and a read between `bytes` and all of the memory except its first byte.
fn sweep_copies(
    place: &Place,
    memory: &Memory,
    bytes: PinnedBytes,
    named: [&[&str]; 2],
    survived: [&[&str]; 2],
) -> Result {
    let bytes = RefCell::new(bytes);
    let write = || memory.write_with(CopyPolicy::Dma, 1, &bytes.borrow());
    let read = || memory.read_with(CopyPolicy::Dma, 1, &mut bytes.borrow_mut());
    let copies: [(&str, &dyn Fn() -> vkgdr::Result<()>); 2] = [("write_with", &write), ("read_with", &read)];
    let host_view = memory.kind().has_host_view();
    let flushes: [&[&str]; 2] = [&["vkFlushMappedMemoryRanges", "vkInvalidateMappedMemoryRanges"], &FLUSH];
    for ((((name, copy), named), survived), flushes) in copies.into_iter().zip(named).zip(survived).zip(flushes) {
        let what = format!("{name} of {} memory, {}", memory.kind(), place.name);
        let named = [&ENTER_AND_LEAVE[..], named, if host_view { flushes } else { &[] }].concat();
        let sweep = Sweep { what: &what, named: &named, survived, ..Sweep::default() };
        no_context(|| sweep.run(|| Ok(()), |()| copy(), |()| Ok(())))?;
        copy()?;
    }
    Ok(())
}

#[test]
fn a_copy_by_the_copy_engine_names_the_call_that_failed() -> Result {
    Place::each(OpenFlags::FORCE_NON_COHERENT, |place| {
        for kind in MemoryKind::ALL.into_iter().filter(|kind| support::is_imported(&place.gpu, *kind)) {
            let memory = place.inside(|| Memory::allocate(&place.gpu, LEN, kind))?;
            sweep_copies(place, &memory, PinnedBytes::pageable(LEN - 1), [&WRITE, &READ], [&[ASK]; 2])?;
        }
        Ok(())
    })
}

/// If the driver refuses a direct copy of page-locked memory, the copy goes in segments; a failed wait is repeated.
#[test]
fn a_copy_of_page_locked_memory_survives_a_call_that_failed() -> Result {
    let place = Place::plain(OpenFlags::FORCE_NON_COHERENT)?;
    let Some(kind) = imported_kind(&place.gpu) else {
        return support::skip("only Vulkan's memory is flushed");
    };
    let memory = place.inside(|| Memory::allocate(&place.gpu, LEN, kind))?;
    let pinned = PinnedBytes::new(LEN - 1);
    let survived = [[&[ASK], &WRITE[..]].concat(), [&[ASK], &READ[..]].concat()];
    sweep_copies(&place, &memory, pinned, [&[]; 2], [&survived[0], &survived[1]])
}

#[test]
fn a_failed_setup_of_the_copy_engine_leaves_nothing() -> Result {
    let named = [&SET_UP[..], &WRITE].concat();
    let sweep = Sweep {
        what: "first copy in a context",
        named: &named,
        survived: &[ASK],
        incidental: &["cuThreadExchangeStreamCaptureMode"],
        ..Sweep::default()
    };
    let prepare = || {
        let context = Context::create(0);
        let gpu = Vkgdr::open(0, OpenFlags::empty())?;
        Ok((Memory::allocate(&gpu, LEN, SomeMemory::of(&gpu).kind)?, context))
    };
    let operate = |both: (Memory, Context)| write(&both.0).map(|()| both);
    sweep.run(prepare, operate, dropped)
}
