//! Failures of allocation, import and export, of every kind in both places.
#![expect(unsafe_code, reason = "descriptors are imported")]

use vkgdr::{Memory, MemoryKind, RawMemory};

use crate::place::{Place, SomeMemory, imported_kind, only_imports_mapped};
use crate::sweep::Sweep;
use crate::{LEN, NONE, Result};

#[test]
fn a_failed_allocation_or_import_names_the_call_and_leaves_nothing() -> Result {
    Place::each(NONE, |place| {
        for SomeMemory { kind, stages, .. } in SomeMemory::each(&place.gpu) {
            let maps: &[_] = if kind == MemoryKind::Mapped { &["vkMapMemory"] } else { &[] };
            let named = [stages, maps, place.entering()].concat();
            let sweep = |what| Sweep::of(format!("{what} of {kind} memory, {}", place.name));
            let exported = Memory::allocate(&place.gpu, LEN, kind)?;
            // CUDA gets a duplicate of the descriptor.
            let importing: Vec<_> = named.iter().copied().filter(|call| *call != "vkGetMemoryFdKHR").collect();
            sweep("Memory::import_fd").named(&importing).run(
                || Ok(exported.export_fd()?),
                // SAFETY: exported from memory of this kind and length.
                |fd| unsafe { Memory::import_fd(&place.unused()?, fd, LEN, kind) },
                |memory| Ok(memory.free()?),
            )?;
            // Where CUDA allocates mapped memory that Vulkan refuses, it is made in two ways.
            if kind == MemoryKind::Mapped && !only_imports_mapped(&place.gpu)? {
                continue;
            }
            sweep("Memory::allocate").named(&named).run(
                || Ok(()),
                |()| Memory::allocate(&place.unused()?, LEN, kind),
                |memory| Ok(memory.free()?),
            )?;
            sweep("RawMemory::allocate").named(&named).run(
                || Ok(()),
                |()| RawMemory::allocate(&place.unused()?, LEN, kind),
                |mut memory| Ok(support::free(&mut memory)?),
            )?;
        }
        Ok(())
    })
}

#[test]
fn a_failed_export_names_the_call_and_leaves_nothing() -> Result {
    let place = Place::plain(NONE)?;
    let Some(kind) = imported_kind(&place.gpu) else {
        return support::skip("only Vulkan exports memory by a call");
    };
    let memory = Memory::allocate(&place.gpu, LEN, kind)?;
    Sweep::of("export_fd").named(&["vkGetMemoryFdKHR"]).call(|| memory.export_fd())
}

#[test]
fn pages_at_an_address_that_is_still_registered_are_replaced_by_others() -> Result {
    let Some(sim) = support::simcuda() else { return support::skip("fault injection needs the simulated driver") };
    let (_context, gpu) = support::open(NONE)?;
    let already = support::codes::HOST_MEMORY_ALREADY_REGISTERED;
    (1..=5).for_each(|nth| sim.fail("cuMemHostRegister", nth, already));
    let error = support::refused(Memory::allocate(&gpu, LEN, MemoryKind::Host));
    support::assert_says(&error, &["cuMemHostRegister failed (CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)"]);
    sim.fail("cuMemHostRegister", 1, already);
    let tries = support::ledger::Calls::of("cuMemHostRegister");
    let memory = Memory::allocate(&gpu, LEN, MemoryKind::Host)?;
    tries.assert(2, "other pages the second time");
    memory.free()?;
    Ok(())
}
