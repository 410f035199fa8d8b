//! Failures of host memory, which is registered pages.
#![expect(unsafe_code, reason = "raw memory is freed by hand, and descriptors are imported")]

use vkgdr::{Memory, MemoryKind, OpenFlags, RawMemory};

use crate::Result;
use crate::allocate::unused;
use crate::place::{ENTER_AND_LEAVE, Place};
use crate::sweep::Sweep;

const LEN: usize = 4097;
const HOST: MemoryKind = MemoryKind::Host;
const STAGES: [&str; 2] = ["cuMemHostRegister", "cuMemHostGetDevicePointer"];

/// Runs a check in each place, with the calls of an allocation there.
fn each_registered(check: impl Fn(&Place, &[&'static str]) -> Result) -> Result {
    // Both at once, so that allocations in the plain context also ask about the primary one.
    for place in [Place::plain(OpenFlags::empty())?, Place::primary(OpenFlags::empty())?] {
        check(&place, &[&STAGES[..], place.entering()].concat())?;
    }
    Ok(())
}

#[test]
fn a_failed_allocation_of_registered_pages_names_the_call_and_leaves_nothing() -> Result {
    each_registered(|place, named| {
        let what = format!("Memory::allocate of registered pages, {}", place.name);
        let sweep = Sweep { what: &what, named, ..Sweep::default() };
        sweep.run(|| Ok(()), |()| Memory::allocate(&unused(place)?, LEN, HOST), |memory| Ok(memory.free()?))
    })
}

#[test]
fn a_failed_allocation_of_raw_registered_pages_names_the_call_and_leaves_nothing() -> Result {
    each_registered(|place, named| {
        let what = format!("RawMemory::allocate of registered pages, {}", place.name);
        let sweep = Sweep { what: &what, named, ..Sweep::default() };
        let free = |mut memory: RawMemory| {
            // SAFETY: nothing uses the memory.
            unsafe { memory.free() }?;
            Ok(())
        };
        sweep.run(|| Ok(()), |()| RawMemory::allocate(&unused(place)?, LEN, HOST), free)
    })
}

#[test]
fn a_failed_import_of_registered_pages_names_the_call_and_leaves_nothing() -> Result {
    each_registered(|place, named| {
        let exported = Memory::allocate(&place.gpu, LEN, HOST)?;
        let what = format!("Memory::import_fd of registered pages, {}", place.name);
        let sweep = Sweep { what: &what, named, ..Sweep::default() };
        // SAFETY: exported from memory of this kind and length.
        let import = |fd| unsafe { Memory::import_fd(&unused(place)?, fd, LEN, HOST) };
        sweep.run(|| Ok(exported.export_fd()?), import, |memory| Ok(memory.free()?))
    })
}

#[test]
fn a_failed_release_of_registered_pages_names_the_call_and_leaves_nothing() -> Result {
    each_registered(|place, _| {
        let what = format!("free of registered pages, {}", place.name);
        let named = ["cuMemHostUnregister", "cuCtxSynchronize"];
        let incidental = ENTER_AND_LEAVE;
        let sweep = Sweep {
            what: &what,
            named: &named,
            incidental: &incidental,
            collects: Some(&place.gpu),
            ..Sweep::default()
        };
        sweep.run(|| Ok(Memory::allocate(&place.gpu, LEN, HOST)?), Memory::free, |()| Ok(()))
    })
}

#[test]
fn pages_at_an_address_that_is_still_registered_are_replaced_by_others() -> Result {
    let Some(sim) = support::simcuda() else { return support::skip("fault injection needs the simulated driver") };
    let (_context, gpu) = support::open(OpenFlags::empty())?;
    let already = support::codes::HOST_MEMORY_ALREADY_REGISTERED;
    (1..=5).for_each(|nth| sim.fail("cuMemHostRegister", nth, already));
    let error = support::refused(Memory::allocate(&gpu, LEN, HOST));
    support::assert_says(&error, &["cuMemHostRegister failed (CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)"]);
    sim.fail("cuMemHostRegister", 1, already);
    let tries = support::ledger::Calls::of("cuMemHostRegister");
    let memory = Memory::allocate(&gpu, LEN, HOST)?;
    tries.assert(2, "other pages the second time");
    memory.free()?;
    Ok(())
}
