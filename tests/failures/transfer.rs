//! Failures of copies by the copy engine, and of its setup in a context.

use std::cell::RefCell;

use support::cuda::{Context, no_context};
use vkgdr::{CopyPolicy, Memory, MemoryKind, Vkgdr};

use crate::place::{ENTER_AND_LEAVE, Place, SomeMemory};
use crate::sweep::Sweep;
use crate::{FORCED, NONE, Result};

const LEN: usize = (2 << 20) + 3;
const WRITE: &str = "cuMemcpyHtoDAsync";
/// A failed wait is repeated, and a failed change of the thread's capture mode changes nothing.
const SURVIVED: [&str; 2] = ["cuStreamSynchronize", "cuThreadExchangeStreamCaptureMode"];

#[test]
fn a_copy_by_the_copy_engine_names_the_call_that_failed() -> Result {
    let bytes = RefCell::new(vec![5_u8; LEN - 1]);
    Place::each(FORCED, |place| {
        for kind in MemoryKind::ALL.into_iter().filter(|kind| support::is_imported(&place.gpu, *kind)) {
            let memory = place.inside(|| Memory::allocate(&place.gpu, LEN, kind))?;
            let flushes = ["vkFlushMappedMemoryRanges", "vkInvalidateMappedMemoryRanges"];
            let flushes = if kind.has_host_view() { &flushes[..] } else { &[] };
            let sweep = |what, call| {
                let sweep = Sweep::of(format!("{what} of {kind} memory, {}", place.name)).survived(&SURVIVED);
                sweep.named(&ENTER_AND_LEAVE).named(&[call])
            };
            // All of the memory except its first byte.
            let write = || memory.write_with(CopyPolicy::Dma, 1, &bytes.borrow());
            let read = || memory.read_with(CopyPolicy::Dma, 1, &mut bytes.borrow_mut());
            no_context(|| sweep("write_with", WRITE).named(flushes).call(write))?;
            no_context(|| {
                sweep("read_with", "cuMemcpyDtoHAsync").named(flushes.get(..1).unwrap_or_default()).call(read)
            })?;
            write()?;
            read()?;
        }
        Ok(())
    })
}

#[test]
fn a_failed_setup_of_the_copy_engine_leaves_nothing() -> Result {
    let prepare = || {
        let context = Context::create(0);
        let gpu = Vkgdr::open(0, NONE)?;
        Ok((Memory::allocate(&gpu, LEN, SomeMemory::of(&gpu).kind)?, context))
    };
    let operate = |both: (Memory, Context)| both.0.write_with(CopyPolicy::Dma, 1, &[3_u8; 9]).map(|()| both);
    let sweep = Sweep::of("first copy in a context").named(&["cuStreamCreate", WRITE]).survived(&SURVIVED);
    sweep.run(prepare, operate, |_| Ok(()))
}
