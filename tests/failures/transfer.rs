//! Failures of copies by the copy engine, and of its setup in a context.

use std::cell::RefCell;

use support::cuda::{Context, no_context};
use vkgdr::{CopyPolicy, Memory, MemoryKind, OpenFlags, Vkgdr};

use crate::Result;
use crate::place::{ENTER_AND_LEAVE, Place, SomeMemory};
use crate::sweep::{Sweep, dropped};

const LEN: usize = (2 << 20) + 3;
const WRITE: &str = "cuMemcpyHtoDAsync";
const READ: &str = "cuMemcpyDtoHAsync";
/// A failed wait is repeated, and a failed change of the thread's capture mode changes nothing.
const SURVIVED: [&str; 2] = ["cuStreamSynchronize", "cuThreadExchangeStreamCaptureMode"];
const FLUSH: [&str; 1] = ["vkFlushMappedMemoryRanges"];

fn write(memory: &Memory) -> vkgdr::Result<()> {
    memory.write_with(CopyPolicy::Dma, 1, &vec![3_u8; LEN - 1])
}

/// Sweeps a write and a read of all of the memory except its first byte.
fn sweep_copies(place: &Place, memory: &Memory) -> Result {
    let bytes = RefCell::new(vec![5_u8; LEN - 1]);
    let write = || memory.write_with(CopyPolicy::Dma, 1, &bytes.borrow());
    let read = || memory.read_with(CopyPolicy::Dma, 1, &mut bytes.borrow_mut());
    type Copy<'a> = &'a dyn Fn() -> vkgdr::Result<()>;
    let copies: [(_, _, Copy<'_>); 2] = [("write_with", WRITE, &write), ("read_with", READ, &read)];
    let host_view = memory.kind().has_host_view();
    let flushes: [&[&str]; 2] = [&["vkFlushMappedMemoryRanges", "vkInvalidateMappedMemoryRanges"], &FLUSH];
    for ((name, call, copy), flushes) in copies.into_iter().zip(flushes) {
        let what = format!("{name} of {} memory, {}", memory.kind(), place.name);
        let named = [&ENTER_AND_LEAVE[..], &[call], if host_view { flushes } else { &[] }].concat();
        let sweep = Sweep { what: &what, named: &named, survived: &SURVIVED, ..Sweep::default() };
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
            sweep_copies(place, &memory)?;
        }
        Ok(())
    })
}

#[test]
fn a_failed_setup_of_the_copy_engine_leaves_nothing() -> Result {
    let named = ["cuStreamCreate", WRITE];
    let sweep = Sweep { what: "first copy in a context", named: &named, survived: &SURVIVED, ..Sweep::default() };
    let prepare = || {
        let context = Context::create(0);
        let gpu = Vkgdr::open(0, OpenFlags::empty())?;
        Ok((Memory::allocate(&gpu, LEN, SomeMemory::of(&gpu).kind)?, context))
    };
    let operate = |both: (Memory, Context)| write(&both.0).map(|()| both);
    sweep.run(prepare, operate, dropped)
}
