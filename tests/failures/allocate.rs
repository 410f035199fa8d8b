//! Failures of allocation: both memory types, both places, mapped and device memory. Host memory is in `host.rs`.
#![expect(unsafe_code, reason = "raw memory is freed by hand")]

use vkgdr::{Memory, MemoryKind, OpenFlags, RawMemory, Vkgdr};

use crate::Result;
use crate::place::{Place, imported_kind, only_imports_mapped};
use crate::sweep::Sweep;

const LEN: usize = 4097;
/// The kinds that Vulkan allocates, and CUDA where Vulkan refuses mapped memory and the driver allows that.
const KINDS: [MemoryKind; 2] = [MemoryKind::Mapped, MemoryKind::Device];
const STAGES: [&str; 4] =
    ["vkAllocateMemory", "vkGetMemoryFdKHR", "cuImportExternalMemory", "cuExternalMemoryGetMappedBuffer"];

/// The calls of an allocation: its stages, a mapping if the kind has a host view, and those for the context.
fn calls(kind: MemoryKind, context: &[&'static str]) -> Vec<&'static str> {
    let map = kind.has_host_view().then_some("vkMapMemory");
    STAGES.into_iter().chain(map).chain(context.iter().copied()).collect()
}

/// Sweeps `allocate` in both places for each of [`KINDS`].
fn sweep_kinds<M>(
    what: &str,
    allocate: impl Fn(&Place, MemoryKind) -> vkgdr::Result<M>,
    free: impl Fn(M) -> Result,
) -> Result {
    Place::each(OpenFlags::empty(), |place| {
        let has_one_way = |kind| kind == MemoryKind::Device || only_imports_mapped(&place.gpu).is_ok_and(|only| only);
        for kind in KINDS.into_iter().filter(|&kind| support::is_imported(&place.gpu, kind) && has_one_way(kind)) {
            let (what, named) = (format!("{what} of {kind} memory, {}", place.name), calls(kind, place.entering()));
            let sweep = Sweep { what: &what, named: &named, ..Sweep::default() };
            sweep.run(|| Ok(()), |()| allocate(place, kind), &free)?;
        }
        Ok(())
    })
}

#[test]
fn a_failed_allocation_of_raw_memory_names_the_call_and_leaves_nothing() -> Result {
    let free = |mut memory: RawMemory| {
        // SAFETY: nothing uses the memory.
        unsafe { memory.free() }?;
        Ok(())
    };
    let allocate = |place: &Place, kind| RawMemory::allocate(&unused(place)?, LEN, kind);
    sweep_kinds("RawMemory::allocate", allocate, free)
}

/// A fresh handle, which queries the current context; a used one caches the context of its last allocation.
pub(crate) fn unused(place: &Place) -> vkgdr::Result<Vkgdr> {
    if place.is_plain() { Vkgdr::open(0, OpenFlags::empty()) } else { Ok(place.gpu.clone()) }
}

#[test]
fn a_failed_allocation_of_memory_names_the_call_and_leaves_nothing() -> Result {
    let free = |memory: Memory| Ok(memory.free()?);
    let allocate = |place: &Place, kind| Memory::allocate(&unused(place)?, LEN, kind);
    sweep_kinds("Memory::allocate", allocate, free)
}

#[test]
fn a_failed_import_names_the_call_and_leaves_nothing() -> Result {
    Place::each(OpenFlags::empty(), |place| {
        for kind in KINDS.into_iter().filter(|&kind| support::is_imported(&place.gpu, kind)) {
            let exported = Memory::allocate(&place.gpu, LEN, kind)?;
            let mut named = calls(kind, place.entering());
            // CUDA gets a duplicate of the descriptor.
            named.retain(|function| *function != "vkGetMemoryFdKHR");
            let what = format!("Memory::import_fd of {kind} memory, {}", place.name);
            let sweep = Sweep { what: &what, named: &named, ..Sweep::default() };
            // SAFETY: exported from memory of this kind and length.
            let import = |fd| unsafe { Memory::import_fd(&unused(place)?, fd, LEN, kind) };
            sweep.run(|| Ok(exported.export_fd()?), import, |memory| Ok(memory.free()?))?;
        }
        Ok(())
    })
}

#[test]
fn a_failed_export_names_the_call_and_leaves_nothing() -> Result {
    let place = Place::plain(OpenFlags::empty())?;
    let Some(kind) = imported_kind(&place.gpu) else {
        return support::skip("only Vulkan exports memory by a call");
    };
    let memory = Memory::allocate(&place.gpu, LEN, kind)?;
    let sweep = Sweep { what: "export_fd", named: &["vkGetMemoryFdKHR"], ..Sweep::default() };
    sweep.run(|| Ok(()), |()| memory.export_fd(), |_| Ok(()))
}
