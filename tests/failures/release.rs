//! Failures of freeing and dropping, under every policy: everything is released, whichever call fails.
#![expect(unsafe_code, reason = "raw memory is freed by hand, and raw streams are bound")]

use cudarc::driver::CudaContext;
use support::blocking::waits;
use support::cuda::{Context, Gate, Stream, no_context};
use vkgdr::{DropPolicy, Memory, MemoryKind, OpenFlags, RawMemory, Vkgdr, cudarc};

use crate::Result;
use crate::place::{ENTER_AND_LEAVE, Place, SomeMemory};
use crate::sweep::{Sweep, dropped};

const LEN: usize = 4097;
/// The releasing calls of CUDA. Those of Vulkan return no result.
const STAGES: [&str; 2] = ["cuMemFree", "cuDestroyExternalMemory"];
/// The calls that keep the caller's context current while cudarc drops a stream.
const KEEP_CURRENT: [&str; 2] = ["cuCtxGetCurrent", "cuCtxSetCurrent"];

fn all(lists: &[&[&'static str]]) -> Vec<&'static str> {
    lists.concat()
}

/// Runs a check in both places for every supported kind. Deferred frees are completed by a later `collect`.
fn each_kind(check: impl Fn(&Place, MemoryKind, Sweep<'_>) -> Result) -> Result {
    Place::each(OpenFlags::empty(), |place| {
        for kind in MemoryKind::ALL.into_iter().filter(|&kind| support::is_imported(&place.gpu, kind)) {
            let what = format!("release of {kind} memory, {}", place.name);
            check(place, kind, Sweep { what: &what, collects: Some(&place.gpu), ..Sweep::default() })?;
        }
        Ok(())
    })
}

/// Like [`each_kind`], with no context current: the release has to enter the memory's context.
fn each_kind_from_outside(check: impl Fn(&Place, MemoryKind, Sweep<'_>) -> Result) -> Result {
    each_kind(|place, kind, sweep| no_context(|| check(place, kind, sweep)))
}

#[test]
fn freeing_raw_memory_names_what_failed_and_frees_all_the_same() -> Result {
    each_kind(|place, kind, sweep| {
        let context: &[_] = if place.is_plain() { &[] } else { &ENTER_AND_LEAVE };
        let named = all(&[&STAGES, context]);
        let sweep = Sweep { named: &named, ..sweep };
        let free = |mut memory: RawMemory| {
            // SAFETY: nothing uses the memory.
            let freed = unsafe { memory.free() };
            assert_eq!((memory.device_ptr(), memory.host_ptr()), (0, None), "freed despite the failure");
            freed
        };
        sweep.run(|| Ok(RawMemory::allocate(&place.gpu, LEN, kind)?), free, |()| Ok(()))
    })
}

#[test]
fn freeing_memory_names_what_failed_and_frees_all_the_same() -> Result {
    each_kind_from_outside(|place, kind, sweep| {
        let named = all(&[&STAGES, &ENTER_AND_LEAVE, &["cuCtxSynchronize"]]);
        let sweep = Sweep { named: &named, ..sweep };
        sweep.run(|| Ok(place.inside(|| Memory::allocate(&place.gpu, LEN, kind))?), Memory::free, |()| Ok(()))
    })
}

#[test]
fn freeing_memory_immediately_names_what_failed_and_frees_all_the_same() -> Result {
    each_kind_from_outside(|place, kind, sweep| {
        let named = all(&[&STAGES, &ENTER_AND_LEAVE]);
        let sweep = Sweep { named: &named, ..sweep };
        let free = |memory: Memory| {
            // SAFETY: the device does not use it.
            unsafe { memory.set_drop_policy(DropPolicy::Immediate) };
            memory.free()
        };
        sweep.run(|| Ok(place.inside(|| Memory::allocate(&place.gpu, LEN, kind))?), free, |()| Ok(()))
    })
}

#[test]
fn freeing_idle_memory_names_what_failed_and_frees_all_the_same() -> Result {
    each_kind_from_outside(|place, kind, sweep| {
        let named = all(&[&STAGES, &ENTER_AND_LEAVE]);
        let sweep = Sweep { named: &named, ..sweep };
        // SAFETY: the device does not use it.
        let free = |memory: Memory| unsafe { memory.free_unsynchronized() };
        sweep.run(|| Ok(place.inside(|| Memory::allocate(&place.gpu, LEN, kind))?), free, |()| Ok(()))
    })
}

#[test]
fn freeing_the_last_region_names_what_failed_and_frees_all_the_same() -> Result {
    each_kind_from_outside(|place, kind, sweep| {
        let named = all(&[&STAGES, &ENTER_AND_LEAVE, &["cuCtxSynchronize"]]);
        let sweep = Sweep { named: &named, ..sweep };
        let region = || Ok(place.inside(|| Memory::allocate(&place.gpu, LEN, kind))?.slice(1..17)?);
        sweep.run(region, Memory::free, |()| Ok(()))
    })
}

#[test]
fn dropping_memory_survives_every_failure() -> Result {
    each_kind_from_outside(|place, kind, sweep| {
        // A drop logs errors instead of returning them.
        let survived = all(&[&STAGES, &ENTER_AND_LEAVE, &["cuCtxSynchronize"]]);
        let sweep = Sweep { survived: &survived, ..sweep };
        sweep.run(|| Ok(place.inside(|| Memory::allocate(&place.gpu, LEN, kind))?), dropped, |()| Ok(()))
    })
}

#[test]
fn dropping_the_last_region_survives_every_failure() -> Result {
    each_kind_from_outside(|place, kind, sweep| {
        let survived = all(&[&STAGES, &ENTER_AND_LEAVE, &["cuCtxSynchronize"]]);
        let sweep = Sweep { survived: &survived, ..sweep };
        let region = || Ok(place.inside(|| Memory::allocate(&place.gpu, LEN, kind))?.slice(1..17)?);
        sweep.run(region, dropped, |()| Ok(()))
    })
}

/// Memory bound to a stream that outlives it.
fn bound(place: &Place, stream: &Stream) -> Result<Memory> {
    let memory = place.inside(|| Memory::allocate(&place.gpu, LEN, SomeMemory::of(&place.gpu).kind))?;
    support::bind(&memory, stream)?;
    Ok(memory)
}

/// Runs a check with a plain context and a stream of it, and with no context current. Deferred frees are completed
/// before the state is compared.
fn with_stream(check: impl Fn(&Place, &Stream, Sweep<'_>) -> Result) -> Result {
    let place = Place::plain(OpenFlags::empty())?;
    let stream = Stream::create();
    let settle = || {
        place.inside(|| stream.synchronize());
        place.gpu.collect();
    };
    no_context(|| {
        check(&place, &stream, Sweep { incidental: &KEEP_CURRENT, settle: Some(&settle), ..Sweep::default() })
    })
}

/// Runs `release` while the gate is shut. If no event can be recorded, the release waits for the whole context, and
/// that wait opens the gate.
fn while_held(gate: Gate, release: impl FnOnce() -> vkgdr::Result<()>) -> vkgdr::Result<()> {
    let (_, released) = waits(gate, "cuCtxSynchronize", || Ok(release())).expect("the only errors are the call's");
    released
}

#[test]
fn freeing_memory_that_a_stream_still_uses_names_what_failed_and_frees_it_in_the_end() -> Result {
    with_stream(|place, stream, sweep| {
        let held = || Ok((bound(place, stream)?, place.inside(|| stream.hold())));
        let free = |(memory, gate): (Memory, _)| while_held(gate, || memory.free());
        // Errors of a deferred free can only be logged.
        let survived = &["cuCtxPushCurrent", "cuCtxGetId", "cuEventQuery", "cuCtxPopCurrent"];
        let named = &["cuCtxPushCurrent", "cuCtxGetId", "cuEventCreate", "cuEventRecord", "cuCtxPopCurrent"];
        let sweep = Sweep { what: "free of bound memory", named, survived, ..sweep };
        sweep.run(held, free, |()| Ok(()))
    })
}

#[test]
fn dropping_memory_that_a_stream_still_uses_survives_every_failure() -> Result {
    with_stream(|place, stream, sweep| {
        let held = || Ok((bound(place, stream)?, place.inside(|| stream.hold())));
        let drop = |(memory, gate): (Memory, _)| while_held(gate, || dropped(memory));
        let survived = all(&[&ENTER_AND_LEAVE, &["cuEventCreate", "cuEventRecord", "cuEventQuery"]]);
        let sweep = Sweep { what: "drop of bound memory", survived: &survived, ..sweep };
        sweep.run(held, drop, |()| Ok(()))
    })
}

#[test]
fn dropping_memory_that_owns_its_stream_survives_every_failure() -> Result {
    let cudarc_context = CudaContext::new(0)?;
    let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
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
    let settle = || {
        gpu.finish_deferred_frees();
        // cudarc returns the error of destroying a stream from its next call.
        let _ = cudarc_context.check_err();
    };
    let survived = all(&[some.release, &ENTER_AND_LEAVE, &["cuEventCreate", "cuEventRecord", "cuStreamDestroy"]]);
    let incidental = &[KEEP_CURRENT[0], KEEP_CURRENT[1], "cuEventQuery", "cuEventSynchronize", "cuEventDestroy"];
    let what = "drop of memory with its stream";
    let sweep = Sweep { what, survived: &survived, incidental, settle: Some(&settle), ..Sweep::default() };
    // Where the stream's work is not done yet, the drop defers the free.
    let drop = |memory| {
        dropped(memory)?;
        gpu.finish_deferred_frees();
        Ok(())
    };
    sweep.run(bound, drop, |()| Ok(()))
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
        let release = SomeMemory::of(&place.gpu).release;
        let survived = all(&[release, &ENTER_AND_LEAVE, &["cuEventQuery", "cuEventDestroy"]]);
        let sweep = Sweep { what: "collect", survived: &survived, ..sweep };
        let collect = |()| Ok(place.gpu.collect());
        sweep.run(deferred, collect, |_| Ok(()))
    })
}

#[test]
fn binding_to_a_raw_stream_names_the_call_that_failed() -> Result {
    let named = all(&[&ENTER_AND_LEAVE, &["cuStreamGetCtx"]]);
    with_stream(|place, stream, sweep| {
        let sweep = Sweep { what: "bind_raw_stream", named: &named, ..sweep };
        let memory = place.inside(|| Memory::allocate(&place.gpu, LEN, SomeMemory::of(&place.gpu).kind))?;
        // SAFETY: the memory is dropped before the stream.
        let bind = |()| unsafe { memory.bind_raw_stream(stream.raw()) };
        sweep.run(|| Ok(()), bind, |()| Ok(()))
    })
}

#[test]
fn binding_to_cudarcs_stream_calls_no_driver() -> Result {
    let stream = CudaContext::new(0)?.new_stream()?;
    let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
    let memory = Memory::allocate(&gpu, LEN, SomeMemory::of(&gpu).kind)?;
    let sweep = Sweep { what: "bind_stream", incidental: &KEEP_CURRENT, ..Sweep::default() };
    sweep.run(|| Ok(()), |()| memory.bind_stream(&stream), |()| Ok(()))
}
