//! Failures of host memory: Vulkan's, which a refusal replaces by registered pages, and those pages'.
#![expect(unsafe_code, reason = "raw memory is freed by hand, and descriptors are imported")]

use support::codes;
use support::state::State;
use vkgdr::{Memory, MemoryKind, MemoryTypeInfo, OpenFlags, RawMemory, Vkgdr};

use crate::allocate::{ENTER_AND_LEAVE, unused};
use crate::place::Place;
use crate::sweep::{Sweep, Victim, victims};
use crate::{Result, child};

const LEN: usize = 4097;
const HOST: MemoryKind = MemoryKind::Host;
const STAGES: [&str; 2] = ["cuMemHostRegister", "cuMemHostGetDevicePointer"];
/// The calls of Vulkan's way that may refuse it.
const SHARING: [&str; 4] =
    ["vkAllocateMemory", "vkGetMemoryFdKHR", "cuImportExternalMemory", "cuExternalMemoryGetMappedBuffer"];

fn is_registered(gpu: &Vkgdr) -> vkgdr::Result<bool> {
    Ok(gpu.memory_type_of(HOST)?.index == MemoryTypeInfo::OUTSIDE_VULKAN)
}

/// A context, a handle whose host memory is registered pages; none, with a message, where that cannot be had.
fn registered(place: Place) -> Result<Option<Place>> {
    if !support::register_host(&place.gpu)? {
        return Ok(None);
    }
    assert!(is_registered(&place.gpu)?);
    Ok(Some(place))
}

fn each_registered(check: impl Fn(&Place, &[&'static str]) -> Result) -> Result {
    let plain = ["cuCtxGetCurrent", "cuCtxGetId", "cuCtxGetDevice"];
    let places: [(Place, &[&str]); 2] =
        [(Place::plain(OpenFlags::empty())?, &plain), (Place::primary(OpenFlags::empty())?, &ENTER_AND_LEAVE)];
    for (place, context) in places {
        let Some(place) = registered(place)? else { return Ok(()) };
        check(&place, &[&STAGES[..], context].concat())?;
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
    each_registered(|place, _| {
        let what = format!("RawMemory::allocate of registered pages, {}", place.name);
        let context: &[_] = if place.name.starts_with("plain") { &["cuCtxGetDevice"] } else { &ENTER_AND_LEAVE };
        let named = [&STAGES[..], context].concat();
        let sweep = Sweep { what: &what, named: &named, ..Sweep::default() };
        let free = |mut memory: RawMemory| {
            // SAFETY: nothing uses the memory.
            unsafe { memory.free() }?;
            Ok(())
        };
        sweep.run(|| Ok(()), |()| RawMemory::allocate(&place.gpu, LEN, HOST), free)
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
        let settle = || {
            place.gpu.collect();
        };
        let sweep =
            Sweep { what: &what, named: &named, incidental: &incidental, settle: Some(&settle), ..Sweep::default() };
        sweep.run(|| Ok(Memory::allocate(&place.gpu, LEN, HOST)?), Memory::free, |()| Ok(()))
    })
}

/// The child: `FUNCTION CODE` fails once while Vulkan's host memory is allocated.
fn play(role: &str) -> Result {
    let (function, code) = role.split_once(' ').ok_or("a role is a function and a code")?;
    let code = code.parse()?;
    let place = Place::plain(OpenFlags::empty())?;
    let gpu = &place.gpu;
    Memory::allocate(gpu, LEN, HOST)?.free()?;
    let name = if function.starts_with("vk") { "vulkan" } else { "cuda" };
    let victim = victims().into_iter().find(|victim| victim.name == name).ok_or("no such driver")?;
    let before = State::take();
    assert!(!is_registered(gpu)?, "host memory is not Vulkan's from the start");
    victim.controls.fail(function, 1, code);
    let made = Memory::allocate(gpu, LEN, HOST);
    assert!(victim.controls.last_fault().is_some_and(|fired| fired == function));
    victim.controls.clear_faults();
    let exhausted = [codes::OUT_OF_MEMORY, codes::vulkan::OUT_OF_HOST_MEMORY, codes::vulkan::OUT_OF_DEVICE_MEMORY];
    match made {
        Err(error) => assert!(exhausted.contains(&code), "{error}"),
        Ok(memory) => {
            assert!(!exhausted.contains(&code), "succeeded");
            let bytes = support::pattern(LEN, 3);
            support::host_write(&memory, 0, &bytes)?;
            assert!(support::device_read(memory.device_ptr(), LEN) == bytes);
            memory.free()?;
        }
    }
    State::assert_unchanged(&before, role);
    assert_eq!(is_registered(gpu)?, !exhausted.contains(&code), "is not remembered rightly");
    assert!(gpu.supports(HOST));
    let imports = support::ledger::Calls::of("cuImportExternalMemory");
    Memory::allocate(gpu, LEN, HOST)?.free()?;
    imports.assert(exhausted.contains(&code).into(), "the next allocation");
    child::say("played");
    Ok(())
}

#[test]
fn host_memory_that_vulkan_may_not_share_is_registered_pages_and_a_shortage_changes_nothing() -> Result {
    if let Some(role) = child::role() {
        return play(&role);
    }
    let place = Place::plain(OpenFlags::empty())?;
    if !support::is_imported(&place.gpu, HOST) {
        return support::skip("the driver refuses Vulkan's host memory without an injected failure");
    }
    let name = "host::host_memory_that_vulkan_may_not_share_is_registered_pages_and_a_shortage_changes_nothing";
    for Victim { name: driver, codes, .. } in victims() {
        let prefix = if driver == "vulkan" { "vk" } else { "cu" };
        for function in SHARING.into_iter().filter(|function| function.starts_with(prefix)) {
            for code in codes {
                child::run(child::command(name, &format!("{function} {code}"))?)?;
            }
        }
    }
    Ok(())
}
