//! Failures of freeing and dropping, under every policy: everything is released, whichever call fails.
#![expect(unsafe_code, reason = "frees without waiting, and keeps contexts current")]

use cudarc::driver::CudaContext;
use support::blocking::waits;
use support::cuda::{Context, Gate, Stream, no_context};
use vkgdr::{DropPolicy, Memory, RawMemory, Vkgdr, cudarc};

use crate::place::{ENTER_AND_LEAVE, Place, SomeMemory};
use crate::sweep::Sweep;
use crate::{LEN, NONE, Result};

/// The calls that keep the caller's context current while cudarc drops a stream.
const KEEP_CURRENT: [&str; 2] = ["cuCtxGetCurrent", "cuCtxSetCurrent"];

#[test]
fn each_release_names_what_failed_or_survives_it_and_releases_all_the_same() -> Result {
    Place::each(NONE, |place| {
        for SomeMemory { kind, release, .. } in SomeMemory::each(&place.gpu) {
            let sweep = |what| Sweep::of(format!("{what} {kind} memory, {}", place.name)).collecting(&place.gpu);
            let entering: &[_] = if place.is_plain() { &[] } else { &ENTER_AND_LEAVE };
            sweep("RawMemory::free of").named(release).named(entering).run(
                || Ok(RawMemory::allocate(&place.gpu, LEN, kind)?),
                |mut memory| {
                    let freed = support::free(&mut memory);
                    assert_eq!((memory.device_ptr(), memory.host_ptr()), (0, None), "freed despite the failure");
                    freed
                },
                |()| Ok(()),
            )?;
            // With no context current, the others have to enter the memory's.
            let make = || Ok(place.inside(|| Memory::allocate(&place.gpu, LEN, kind))?);
            let slice = || -> Result<Memory> { Ok(make()?.slice(1..17)?) };
            let entered = [release, &ENTER_AND_LEAVE].concat();
            let waited = [&entered[..], &["cuCtxSynchronize"]].concat();
            let free_immediately = |memory: Memory| {
                // SAFETY: the device does not use it.
                unsafe { memory.set_drop_policy(DropPolicy::Immediate) };
                memory.free()
            };
            // SAFETY: the device does not use it.
            let free_idle = |memory: Memory| unsafe { memory.free_unsynchronized() };
            no_context(|| {
                sweep("free of").named(&waited).run(make, Memory::free, |()| Ok(()))?;
                sweep("free of the last slice of").named(&waited).run(slice, Memory::free, |()| Ok(()))?;
                sweep("immediate free of").named(&entered).run(make, free_immediately, |()| Ok(()))?;
                sweep("free of idle").named(&entered).run(make, free_idle, |()| Ok(()))?;
                // A drop logs errors instead of returning them.
                sweep("drop of").survived(&waited).drop(make)?;
                sweep("drop of the last slice of").survived(&waited).drop(slice)
            })?;
        }
        Ok(())
    })
}

/// Memory bound to a stream that outlives it.
fn bound(place: &Place, stream: &Stream) -> Result<Memory> {
    let memory = place.inside(|| Memory::allocate(&place.gpu, LEN, SomeMemory::of(&place.gpu).kind))?;
    support::bind(&memory, stream)?;
    Ok(memory)
}

/// Runs a check with a plain context and a stream of it, with no context current. Sweeps complete deferred frees.
fn with_stream(check: impl for<'a> Fn(&'a Place, &'a Stream, &dyn Fn(&'static str) -> Sweep<'a>) -> Result) -> Result {
    let place = Place::plain(NONE)?;
    let stream = Stream::create();
    let sweep = |what| {
        Sweep::of(what).incidental(&KEEP_CURRENT).settling(|| {
            place.inside(|| stream.synchronize());
            place.gpu.collect();
        })
    };
    no_context(|| check(&place, &stream, &sweep))
}

/// Runs `release` while the gate is shut. If no event can be recorded, the release waits for the whole context, and
/// that wait opens the gate.
fn while_held(gate: Gate, release: impl FnOnce() -> vkgdr::Result<()>) -> vkgdr::Result<()> {
    let (_, released) = waits(gate, "cuCtxSynchronize", || Ok(release())).expect("the only errors are the call's");
    released
}

#[test]
fn releasing_memory_that_a_stream_still_uses_names_or_survives_what_failed_and_frees_it_in_the_end() -> Result {
    with_stream(|place, stream, sweep| {
        let held = || Ok((bound(place, stream)?, place.inside(|| stream.hold())));
        let event = ["cuEventCreate", "cuEventRecord"];
        sweep("free of bound memory").named(&ENTER_AND_LEAVE).named(&event).named(&["cuEventQuery"]).run(
            held,
            |(memory, gate): (Memory, _)| while_held(gate, || memory.free()),
            |()| Ok(()),
        )?;
        sweep("drop of bound memory").survived(&ENTER_AND_LEAVE).survived(&event).survived(&["cuEventQuery"]).run(
            held,
            |(memory, gate): (Memory, _)| {
                while_held(gate, move || {
                    drop(memory);
                    Ok(())
                })
            },
            |()| Ok(()),
        )
    })
}

#[test]
fn dropping_memory_that_owns_its_stream_survives_every_failure() -> Result {
    let cudarc_context = CudaContext::new(0)?;
    let gpu = Vkgdr::open_primary_context(0, NONE)?;
    let some = SomeMemory::of(&gpu);
    // A context other than the stream's is current, and must be current afterwards.
    let current = Context::create(0);
    let bound = || {
        let stream = cudarc_context.new_stream()?;
        let memory = Memory::allocate(&gpu, LEN, some.kind)?;
        memory.bind_stream(&stream)?;
        drop(stream);
        // SAFETY: a live context.
        unsafe { cudarc::driver::result::ctx::set_current(current.raw()) }?;
        Ok(memory)
    };
    let sweep = Sweep::of("drop of memory with its stream").survived(some.release).survived(&ENTER_AND_LEAVE);
    let sweep = sweep.survived(&["cuEventCreate", "cuEventRecord", "cuStreamDestroy"]).incidental(&KEEP_CURRENT);
    let sweep = sweep.incidental(&["cuEventQuery", "cuEventSynchronize", "cuEventDestroy"]).settling(|| {
        gpu.finish_deferred_frees();
        // cudarc returns the error of destroying a stream from its next call.
        let _ = cudarc_context.check_err();
    });
    // Where the stream's work is not done yet, the drop defers the free.
    let free = |memory| {
        drop(memory);
        gpu.finish_deferred_frees();
        Ok(())
    };
    sweep.run(bound, free, |()| Ok(()))
}

#[test]
fn collecting_survives_every_failure() -> Result {
    with_stream(|place, stream, sweep| {
        let deferred = || {
            let memory = bound(place, stream)?;
            let gate = place.inside(|| stream.hold());
            drop(memory);
            gate.open();
            place.inside(|| stream.synchronize());
            Ok(())
        };
        let sweep = sweep("collect").survived(SomeMemory::of(&place.gpu).release).survived(&ENTER_AND_LEAVE);
        let collect = |()| Ok(place.gpu.collect());
        sweep.survived(&["cuEventQuery", "cuEventDestroy"]).run(deferred, collect, |_| Ok(()))
    })
}

#[test]
fn binding_to_a_raw_stream_names_the_call_that_failed_and_to_cudarcs_calls_no_driver() -> Result {
    with_stream(|place, stream, sweep| {
        let memory = place.inside(|| Memory::allocate(&place.gpu, LEN, SomeMemory::of(&place.gpu).kind))?;
        let sweep = sweep("bind_raw_stream").named(&ENTER_AND_LEAVE).named(&["cuStreamGetCtx"]);
        sweep.call(|| support::bind(&memory, stream))
    })?;
    let stream = CudaContext::new(0)?.new_stream()?;
    let gpu = Vkgdr::open_primary_context(0, NONE)?;
    let memory = Memory::allocate(&gpu, LEN, SomeMemory::of(&gpu).kind)?;
    Sweep::of("bind_stream").incidental(&KEEP_CURRENT).call(|| memory.bind_stream(&stream))
}

#[test]
fn a_view_whose_context_cannot_be_left_frees_nothing() -> Result {
    let Some(sim) = support::simcuda() else {
        return support::skip("needs the simulated driver's faults");
    };
    let place = Place::primary(NONE)?;
    let stream = CudaContext::new(0)?.new_stream()?;
    let memory = Memory::allocate(&place.gpu, LEN, vkgdr::MemoryKind::Device)?;
    let refused = no_context(|| {
        sim.fail("cuCtxPopCurrent", 1, support::codes::UNKNOWN);
        let refused = memory.view::<u8>(&stream).map(drop);
        sim.clear_faults();
        refused
    });
    assert!(refused.is_err_and(|error| error.to_string().starts_with("cuCtxPopCurrent failed")));
    assert_eq!(memory.view::<u8>(&stream)?.len(), LEN);
    Ok(memory.free()?)
}
