//! Failures while existing memory is mapped, used and asked about.

use support::cuda::CudaMemory;
use support::profile::under;
use vkgdr::{AllocateOptions, MappingFlags, Memory, MemoryKind, OpenFlags};

use crate::Result;
use crate::place::Place;
use crate::sweep::Sweep;

const EXPORT: &str = "cuMemGetHandleForAddressRange";
const PAGE: usize = Memory::EXISTING_PAGE;
/// The calls that describe a device.
const DEVICE: [&str; 3] = ["cuDriverGetVersion", "cuDeviceGetAttribute", "cuDeviceTotalMem"];

fn sweep(place: &Place, len: usize, named: &[&str], survived: &[&str]) -> Result {
    let memory = CudaMemory::device(4 * PAGE);
    let of = |len| support::map_existing(&place.gpu, memory.address(), len, MappingFlags::empty());
    let named = [&["cuPointerGetAttributes"], &DEVICE[..], named].concat();
    Sweep { what: "mapping existing memory", named: &named, survived, ..Sweep::default() }.run(
        || Ok(()),
        |()| of(len),
        |mapping| {
            mapping.write(0, &[1_u8; 100])?;
            Ok(mapping.free()?)
        },
    )?;
    Sweep { what: "a descriptor of existing memory", named: &["cuPointerGetAttributes", EXPORT], ..Sweep::default() }
        .run(|| Ok(of(len)?), |mapping| mapping.dma_buf(), |_| Ok(()))?;
    Sweep { what: "asking about existing memory", named: &["cuPointerGetAttributes"], ..Sweep::default() }.run(
        || Ok(of(len)?),
        |mapping| mapping.is_current(),
        |_| Ok(()),
    )?;
    let (what, named) = ("asking for support", &DEVICE[..2]);
    Sweep { what, named, ..Sweep::default() }.run(|| Ok(()), |()| place.gpu.supports_existing(), |_| Ok(()))
}

#[test]
fn a_mapping_that_fails_leaves_nothing_behind() -> Result {
    under("dma-buf", || {
        let place = Place::plain(OpenFlags::empty())?;
        sweep(&place, 4 * PAGE, &[EXPORT], &[])?;
        // Where all of the allocation cannot be mapped, the pages of the range may be.
        sweep(&place, PAGE, &[], &[EXPORT])
    })
}

#[test]
fn memory_for_cards_that_fails_leaves_nothing_behind() -> Result {
    under("dma-buf", || {
        let place = Place::plain(OpenFlags::empty())?;
        let options = AllocateOptions::new(MemoryKind::Mapped).with_dma_buf();
        let named = [&["cuMemAlloc", "cuPointerGetAttributes", EXPORT], &DEVICE[..]].concat();
        Sweep { what: "allocating memory for cards", named: &named, ..Sweep::default() }.run(
            || Ok(()),
            |()| Memory::allocate_with(&place.gpu, PAGE, options),
            |memory| Ok(memory.free()?),
        )
    })
}
