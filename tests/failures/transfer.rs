//! Copies by the copy engine, and what they set up in a context.

use support::cuda::{Context, no_context};
use support::simcuda;
use vkgdr::{CopyPolicy, CopyThresholds, Memory, MemoryKind, OpenFlags, Vkgdr};

use crate::Result;
use crate::place::Place;
use crate::sweep::Sweep;

/// More than two slots.
const LEN: usize = (2 << 20) + 3;
const ENTER_AND_LEAVE: [&str; 3] = ["cuCtxPushCurrent", "cuCtxGetId", "cuCtxPopCurrent"];
const WRITE: [&str; 2] = ["cuMemcpyHtoDAsync", "cuStreamSynchronize"];
const READ: [&str; 2] = ["cuMemcpyDtoHAsync", "cuStreamSynchronize"];
const SET_UP: [&str; 2] = ["cuMemHostRegister", "cuStreamCreate"];

fn write(memory: &Memory) -> vkgdr::Result<()> {
    memory.write_with(CopyPolicy::Dma, 1, &vec![3_u8; LEN - 1])
}

fn read(memory: &Memory) -> vkgdr::Result<()> {
    memory.read_with(CopyPolicy::Dma, 1, &mut vec![3_u8; LEN - 1])
}

#[test]
fn a_copy_by_the_copy_engine_names_the_call_that_failed() -> Result {
    type Copy = fn(&Memory) -> vkgdr::Result<()>;
    Place::each(OpenFlags::FORCE_NON_COHERENT, |place| {
        for kind in MemoryKind::ALL.into_iter().filter(|kind| place.gpu.supports(*kind)) {
            let memory = place.inside(|| Memory::allocate(&place.gpu, LEN, kind))?;
            let flushes: &[&str] = if kind.has_host_view() { &["vkFlushMappedMemoryRanges"] } else { &[] };
            let invalidates: &[&str] = if kind.has_host_view() { &["vkInvalidateMappedMemoryRanges"] } else { &[] };
            let copies: [(&str, Copy, Vec<&str>); 2] = [
                ("write_with", write, [&ENTER_AND_LEAVE[..], &WRITE, flushes, invalidates].concat()),
                ("read_with", read, [&ENTER_AND_LEAVE[..], &READ, flushes].concat()),
            ];
            for (name, copy, named) in copies {
                let what = format!("{name} of {kind} memory, {}", place.name);
                let sweep = Sweep { what: &what, named: &named, ..Sweep::default() };
                no_context(|| sweep.run(|| Ok(()), |()| copy(&memory), |()| Ok(())))?;
                copy(&memory)?;
            }
        }
        Ok(())
    })
}

#[test]
fn what_a_first_copy_cannot_set_up_leaves_nothing() -> Result {
    let gpu = Vkgdr::open(0, OpenFlags::empty())?;
    let settle = || {
        gpu.collect();
    };
    let named = [&SET_UP[..], &WRITE].concat();
    let sweep = Sweep {
        what: "first copy in a context",
        named: &named,
        // Whether other contexts are gone is asked in passing.
        incidental: &["cuCtxGetId", "cuThreadExchangeStreamCaptureMode"],
        settle: Some(&settle),
        ..Sweep::default()
    };
    let prepare = || {
        let context = Context::create(0);
        Ok((Memory::allocate(&gpu, LEN, MemoryKind::Mapped)?, context))
    };
    let operate = |both: (Memory, Context)| write(&both.0).map(|()| both);
    let finish = |both| {
        drop(both);
        Ok(())
    };
    sweep.run(prepare, operate, finish)
}

#[test]
fn a_calibration_that_failed_can_be_done_again() -> Result {
    let Some(sim) = simcuda() else {
        eprintln!("skipped: nothing fails on a real driver");
        return Ok(());
    };
    let place = Place::plain(OpenFlags::empty())?;
    let functions =
        [&SET_UP[..], &WRITE, &READ, &["cuImportExternalMemory", "cuExternalMemoryGetMappedBuffer"]].concat();
    for function in functions {
        let live = sim.live_objects_of("external");
        sim.fail(function, 1, 999);
        match place.gpu.calibrate() {
            Err(error) => assert!(error.to_string().starts_with(&format!("{function} failed (")), "{error}"),
            Ok(found) => panic!("{found:?} although {function} failed"),
        }
        assert_eq!(place.gpu.copy_thresholds(), CopyThresholds::default());
        assert_eq!(sim.live_objects_of("external"), live, "{function}");
    }
    place.gpu.calibrate()?;
    Ok(())
}
