//! Queries of handles, memory and the driver.
#![expect(unsafe_code, reason = "uses the default stream")]

use support::{Result, child, driver, free, refused};
use vkgdr::ash::vk::MemoryPropertyFlags as Property;
use vkgdr::{Error, Memory, MemoryKind, OpenFlags, RawMemory, Vkgdr};

const NONE: OpenFlags = OpenFlags::empty();
const MAPPED: MemoryKind = MemoryKind::Mapped;

#[test]
fn every_kind_is_served_by_a_listed_type_that_has_what_it_needs() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let types = gpu.memory_types();
    let numbers: Vec<_> = types.iter().map(|t| t.index).collect();
    assert!(!types.is_empty() && (0..).zip(&numbers).all(|(place, index)| place == *index), "{numbers:?}");
    for kind in support::imported(&gpu, &MemoryKind::ALL) {
        let memory_type = gpu.memory_type_of(kind)?;
        assert_eq!(types.get(memory_type.index as usize), Some(&memory_type));
        assert_eq!(memory_type.heap_size, gpu.memory_info(kind)?.total);
        let needed = match kind {
            MemoryKind::Mapped => Property::DEVICE_LOCAL | Property::HOST_VISIBLE,
            MemoryKind::Host => Property::HOST_VISIBLE | Property::HOST_CACHED,
            _ => Property::DEVICE_LOCAL,
        };
        assert!(memory_type.flags.contains(needed), "{kind}: {memory_type:?}");
        let memory = Memory::allocate(&gpu, 1, kind)?;
        assert_eq!(memory.memory_type(), memory_type);
        assert_eq!(memory.slice(..)?.memory_type(), memory_type);
    }
    Ok(())
}

#[test]
fn a_pci_bus_id_is_domain_bus_device_and_function() -> Result {
    let gpu = Vkgdr::open(0, NONE)?;
    let id = gpu.pci_bus_id()?;
    let lens: Vec<_> = id.split([':', '.']).map(str::len).collect();
    assert!(lens == [4, 2, 2, 1] || lens == [8, 2, 2, 1], "{id}");
    assert!(id.chars().all(|c| c.is_ascii_hexdigit() || ":.".contains(c)), "{id}");
    Ok(())
}

#[test]
fn devices_are_counted_without_anything_open() -> Result {
    child::afresh(|| {
        let count = vkgdr::device_count()?;
        assert!(count > 0 && count == driver::device_count(), "{count}");
        assert!(Vkgdr::open(count - 1, NONE).is_ok() || count > 1, "the only device must have Vulkan");
        let error = refused(Vkgdr::open(count, NONE));
        assert!(error.to_string().contains("CUDA_ERROR_INVALID_DEVICE"), "{error}");
        Ok(())
    })
}

#[test]
fn the_drivers_version_is_that_of_a_cuda_that_this_crate_works_with() -> Result {
    // It may be asked for before anything else.
    child::afresh(|| {
        let version = vkgdr::driver_version()?;
        assert!((11_040..100_000).contains(&version) && version == driver::version(), "{version}");
        Ok(())
    })
}

#[test]
fn live_allocations_are_counted_over_all_handles() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let other = Vkgdr::open_primary_context(0, NONE)?;
    let before = gpu.live_allocations();
    let memory = Memory::allocate(&gpu, 1, MAPPED)?;
    let region = memory.slice(..)?;
    let mut raw = RawMemory::allocate(&other, 1, MAPPED)?;
    assert_eq!((gpu.live_allocations(), other.live_allocations()), (before + 2, before + 2));
    drop(memory);
    assert_eq!(gpu.live_allocations(), before + 2, "the region keeps it");
    drop(region);
    free(&mut raw)?;
    assert_eq!(gpu.live_allocations(), before);
    assert!(matches!(Memory::allocate(&gpu, 0, MAPPED), Err(Error::ZeroSize { .. })));
    assert_eq!(gpu.live_allocations(), before);
    Ok(())
}

#[test]
fn an_address_of_a_device_names_it_and_one_of_the_host_names_none() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let memory = Memory::allocate(&gpu, 4096, MAPPED)?;
    assert_eq!(vkgdr::pointer_device(memory.device_ptr())?, Some(gpu.device()));
    assert_eq!(vkgdr::pointer_device(memory.device_ptr() + 4095)?, Some(gpu.device()));
    // SAFETY: the default stream is always there.
    let stream = unsafe { memory.stream(std::ptr::null_mut()) }?;
    let asked = support::cuda::no_context(|| stream.pointer_device(memory.device_ptr()));
    assert_eq!(asked?, Some(gpu.device()));
    let local = 0_u64;
    assert_eq!(vkgdr::pointer_device((&raw const local).addr() as u64)?, None);
    let gone = memory.device_ptr();
    memory.free()?;
    assert_eq!(vkgdr::pointer_device(gone)?, None);
    Ok(())
}
