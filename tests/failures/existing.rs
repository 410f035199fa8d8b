//! Failures while existing memory is mapped, used and asked about.

use support::cuda::CudaMemory;
use support::profile::under;
use vkgdr::{AllocateOptions, MappingFlags, Memory, MemoryKind};

use crate::place::Place;
use crate::sweep::Sweep;
use crate::{NONE, Result};

const EXPORT: &str = "cuMemGetHandleForAddressRange";
const PAGE: usize = Memory::EXISTING_PAGE;
/// The calls that describe a device.
const DEVICE: [&str; 3] = ["cuDriverGetVersion", "cuDeviceGetAttribute", "cuDeviceTotalMem"];

fn sweep(place: &Place, len: usize, named: &[&'static str], survived: &[&'static str]) -> Result {
    const FIND: &[&str] = &["cuPointerGetAttributes"];
    let memory = CudaMemory::device(4 * PAGE);
    let map = || support::map_existing(&place.gpu, memory.address(), len, MappingFlags::empty());
    Sweep::of("mapping existing memory").named(FIND).named(&DEVICE).named(named).survived(survived).run(
        || Ok(()),
        |()| map(),
        |mapping| {
            mapping.write(0, &[1_u8; 100])?;
            Ok(mapping.free()?)
        },
    )?;
    let mapping = map()?;
    Sweep::of("a descriptor of existing memory").named(FIND).named(&[EXPORT]).call(|| mapping.dma_buf())?;
    Sweep::of("asking about existing memory").named(FIND).call(|| mapping.is_current())?;
    Sweep::of("asking for support").named(&DEVICE[..2]).call(|| place.gpu.supports_existing())
}

#[test]
fn a_mapping_that_fails_leaves_nothing_behind() -> Result {
    under("dma-buf", || {
        let place = Place::plain(NONE)?;
        sweep(&place, 4 * PAGE, &[EXPORT], &[])?;
        // Where all of the allocation cannot be mapped, the pages of the range may be.
        sweep(&place, PAGE, &[], &[EXPORT])
    })
}

#[test]
fn memory_for_cards_that_fails_leaves_nothing_behind() -> Result {
    under("dma-buf", || {
        let place = Place::plain(NONE)?;
        let options = AllocateOptions::new(MemoryKind::Mapped).with_dma_buf();
        let sweep = Sweep::of("allocating memory for cards").named(&["cuMemAlloc", "cuPointerGetAttributes", EXPORT]);
        let allocate = |()| Memory::allocate_with(&place.gpu, PAGE, options);
        sweep.named(&DEVICE).run(|| Ok(()), allocate, |memory| Ok(memory.free()?))
    })
}
