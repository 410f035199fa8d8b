//! Failures of host memory: Vulkan's, which a refusal replaces by registered pages, and those pages'.
#![expect(unsafe_code, reason = "raw memory is freed by hand, and descriptors are imported")]

use support::codes::{self, vulkan};
use support::ledger::Calls;
use support::state::State;
use vkgdr::{Memory, MemoryKind, MemoryTypeInfo, OpenFlags, RawMemory, Vkgdr};

use crate::allocate::{ENTER_AND_LEAVE, unused};
use crate::place::Place;
use crate::sweep::{Sweep, Victim, victims};
use crate::{Result, child};

const LEN: usize = 4097;
const HOST: MemoryKind = MemoryKind::Host;
const STAGES: [&str; 2] = ["cuMemHostRegister", "cuMemHostGetDevicePointer"];

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

/// What follows when calls of Vulkan's way fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    /// Nothing: the drivers were asked again.
    Nothing,
    /// The allocation fails with the call's error.
    Fails,
    /// This allocation is registered pages, the next one Vulkan's.
    Registers,
    /// This allocation and all later ones are registered pages.
    Switches,
}

/// As often as a driver is asked before its refusal counts: twice as it is, and twice for a dedicated allocation.
const ALWAYS: u64 = 4;

/// Codes of each call, how often in a row it fails with them, and what follows.
const ANSWERS: [(&str, &[i32], u64, Then); 12] = [
    ("vkAllocateMemory", &[vulkan::OUT_OF_HOST_MEMORY, vulkan::OUT_OF_DEVICE_MEMORY], 1, Then::Fails),
    ("vkAllocateMemory", &[vulkan::INITIALIZATION_FAILED], 1, Then::Fails),
    ("vkGetMemoryFdKHR", &[vulkan::OUT_OF_HOST_MEMORY, vulkan::INITIALIZATION_FAILED], 1, Then::Fails),
    // May be a want of descriptors that has passed.
    ("vkGetMemoryFdKHR", &[vulkan::INVALID_EXTERNAL_HANDLE], 1, Then::Registers),
    ("cuImportExternalMemory", &[codes::OUT_OF_MEMORY, codes::UNKNOWN], 1, Then::Fails),
    ("cuImportExternalMemory", &[codes::OPERATING_SYSTEM], 1, Then::Registers),
    ("cuImportExternalMemory", &[codes::INVALID_VALUE, codes::INVALID_HANDLE, codes::NOT_SUPPORTED], 1, Then::Nothing),
    ("cuImportExternalMemory", &[codes::INVALID_VALUE, codes::INVALID_HANDLE], ALWAYS, Then::Switches),
    ("cuImportExternalMemory", &[codes::NOT_SUPPORTED], ALWAYS, Then::Switches),
    ("cuExternalMemoryGetMappedBuffer", &[codes::OUT_OF_MEMORY, codes::UNKNOWN], 1, Then::Fails),
    ("cuExternalMemoryGetMappedBuffer", &[codes::INVALID_VALUE, codes::NOT_SUPPORTED], 1, Then::Nothing),
    ("cuExternalMemoryGetMappedBuffer", &[codes::INVALID_VALUE, codes::NOT_SUPPORTED], ALWAYS, Then::Switches),
];

/// The child: the calls of one line of [`ANSWERS`] fail while Vulkan's host memory is allocated.
fn play(line: usize, code: i32) -> Result {
    let (function, _, times, then) = ANSWERS[line];
    let place = Place::plain(OpenFlags::empty())?;
    let gpu = &place.gpu;
    let victim = of_function(function).ok_or("no such driver")?;
    // The drivers find out what they want, if this is the first time.
    allocate_once(gpu)?;
    let buffers = allocate_once(gpu)?;
    let before = State::take();
    assert!(!is_registered(gpu)?, "host memory is not Vulkan's from the start");
    (1..=times).for_each(|nth| victim.controls.fail(function, nth, code));
    let made = Memory::allocate(gpu, LEN, HOST);
    assert!(victim.controls.last_fault().is_some_and(|fired| fired == function));
    victim.controls.clear_faults();
    match made {
        Err(error) => {
            assert_eq!(then, Then::Fails, "{error}");
            assert!(error.to_string().starts_with(&format!("{function} failed (")), "{error}");
        }
        Ok(memory) => {
            assert_ne!(then, Then::Fails, "succeeded");
            let is_registered = memory.memory_type().index == MemoryTypeInfo::OUTSIDE_VULKAN;
            assert_eq!(is_registered, [Then::Registers, Then::Switches].contains(&then));
            let bytes = support::pattern(LEN, 3);
            support::host_write(&memory, 0, &bytes)?;
            assert!(support::device_read(memory.device_ptr(), LEN) == bytes);
            memory.free()?;
        }
    }
    let what = format!("{function} failed with {code}");
    State::assert_unchanged(&before, &what);
    assert_eq!(is_registered(gpu)?, then == Then::Switches, "{what}: is not remembered rightly");
    assert!(gpu.supports(HOST));
    let imports = Calls::of("cuImportExternalMemory");
    let buffers_now = allocate_once(gpu)?;
    imports.assert((then != Then::Switches).into(), &what);
    assert!(then == Then::Switches || buffers_now == buffers, "{what}: memory is dedicated allocations now");
    child::say("played");
    Ok(())
}

/// Allocates host memory. Returns the number of buffers that were made: one for a dedicated allocation.
fn allocate_once(gpu: &Vkgdr) -> Result<u64> {
    let buffers = || support::vklayer().map_or(0, |layer| layer.calls(Some("vkCreateBuffer")));
    let before = buffers();
    Memory::allocate(gpu, LEN, HOST)?.free()?;
    Ok(buffers() - before)
}

/// The driver that has a function.
fn of_function(function: &str) -> Option<Victim> {
    let name = if function.starts_with("vk") { "vulkan" } else { "cuda" };
    victims().into_iter().find(|victim| victim.name == name)
}

#[test]
fn a_refusal_makes_host_memory_registered_pages_and_no_other_error_does() -> Result {
    if let Some(role) = child::role() {
        let (line, code) = role.split_once(' ').ok_or("a role is a line and a code")?;
        return play(line.parse()?, code.parse()?);
    }
    let place = Place::plain(OpenFlags::empty())?;
    if !support::is_imported(&place.gpu, HOST) {
        return support::skip("the driver refuses Vulkan's host memory without an injected failure");
    }
    for (line, (function, codes, ..)) in ANSWERS.into_iter().enumerate() {
        if of_function(function).is_some() {
            codes.iter().try_for_each(|code| child::run(child::command(&format!("{line} {code}"))?).map(drop))?;
        }
    }
    Ok(())
}
