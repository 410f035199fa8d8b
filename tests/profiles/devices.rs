//! Matching Vulkan's devices to CUDA's, and devices that lack a requirement.

use support::cuda::{self, Context, PrimaryContext};
use support::{Result, assert_says, device_read, host_write, pattern, refused};
use vkgdr::{CopyPolicy, Error, Memory, MemoryKind, OpenFlags, RawMemory, Vkgdr};

use crate::under;

const NONE: OpenFlags = OpenFlags::empty();
const MAPPED: MemoryKind = MemoryKind::Mapped;
const MIB: u64 = 1 << 20;

fn both_gpus() -> Result<[Vkgdr; 2]> {
    assert_eq!(vkgdr::device_count()?, 2);
    Ok([Vkgdr::open(0, NONE)?, Vkgdr::open(1, NONE)?])
}

/// Runs a check with two GPUs, listed by Vulkan in CUDA's order.
fn with_two(check: fn() -> Result) -> Result {
    under("two-gpus", check)
}

fn each_gpu_is_its_own() -> Result {
    let gpus = both_gpus()?;
    assert_ne!(gpus[0].uuid(), gpus[1].uuid());
    assert_ne!(gpus[0].pci_bus_id()?, gpus[1].pci_bus_id()?);
    let available = |gpu: usize| gpus[gpu].memory_info(MAPPED).map(|info| info.available);
    let before = (available(0)?, available(1)?);
    for (device, gpu) in (0..).zip(&gpus) {
        let _context = PrimaryContext::retain_and_push(device);
        let memory = Memory::allocate(gpu, 5 << 20, MAPPED)?;
        let taken = |here| if device == here { 5 * MIB } else { 0 };
        assert_eq!((available(0)?, available(1)?), (before.0 - taken(0), before.1 - taken(1)), "on {device}");
        assert_eq!(vkgdr::pointer_device(memory.device_ptr())?, Some(device));
        let bytes = pattern(5000, 1 + u64::try_from(device)?);
        host_write(&memory, 7, &bytes)?;
        assert!(device_read(memory.device_ptr() + 7, 5000) == bytes);
        memory.write_with(CopyPolicy::Dma, 9, &bytes)?;
        assert!(device_read(memory.device_ptr() + 9, 5000) == bytes);
    }
    Ok(())
}

#[test]
fn the_second_gpus_memory_is_the_second_gpus() -> Result {
    with_two(each_gpu_is_its_own)
}

#[test]
fn vulkans_order_of_two_gpus_does_not_matter() -> Result {
    under("two-gpus-swapped", each_gpu_is_its_own)
}

#[test]
fn a_context_of_the_other_gpu_is_refused_and_both_are_named() -> Result {
    with_two(|| {
        let [_, second] = both_gpus()?;
        let _context = Context::create(0);
        for error in [refused(Memory::allocate(&second, 1, MAPPED)), refused(RawMemory::allocate(&second, 1, MAPPED))] {
            assert!(matches!(error, Error::WrongDevice { current: 0, expected: 1 }), "{error}");
            assert_says(&error, &["on device 0", "on device 1"]);
        }
        let current = Vkgdr::open_current_context(NONE)?;
        assert_eq!(current.device(), 0);
        Ok(())
    })
}

#[test]
fn memory_is_freed_in_its_own_gpus_context_whichever_is_current() -> Result {
    with_two(|| {
        let gpus = [Vkgdr::open_primary_context(0, NONE)?, Vkgdr::open_primary_context(1, NONE)?];
        let memories = [Memory::allocate(&gpus[0], 1000, MAPPED)?, Memory::allocate(&gpus[1], 1000, MAPPED)?];
        assert_ne!(memories[0].context(), memories[1].context());
        let other = Context::create(0);
        for memory in memories {
            memory.write_with(CopyPolicy::Dma, 0, &[1_u8; 100])?;
            memory.free()?;
            assert_eq!(cuda::current(), other.raw());
        }
        assert_eq!(gpus.map(|gpu| gpu.live_allocations()), [0, 0]);
        Ok(())
    })
}

/// The errors of mapped memory, and of opening where that is required. The handles have memory of the other kinds.
fn no_mapped_memory() -> Result<[Error; 4]> {
    let primary = Vkgdr::open_primary_context(0, NONE)?;
    let _context = Context::create(0);
    let plain = Vkgdr::open(0, NONE)?;
    for gpu in [&plain, &primary] {
        assert_eq!(MemoryKind::ALL.map(|kind| gpu.supports(kind)), [false, true, true]);
        let host = Memory::allocate(gpu, 5000, MemoryKind::Host)?;
        support::host_write(&host, 0, &support::pattern(5000, 2))?;
        assert!(support::device_read(host.device_ptr(), 5000) == support::pattern(5000, 2));
        Memory::allocate(gpu, 5000, MemoryKind::Device)?.free()?;
    }
    let allocate = |gpu| refused(Memory::allocate(gpu, 1, MemoryKind::Mapped));
    let required = [
        refused(Vkgdr::open(0, OpenFlags::REQUIRE_COHERENT)),
        refused(Vkgdr::open_primary_context(0, OpenFlags::REQUIRE_COHERENT)),
    ];
    let [first, second] = required;
    Ok([allocate(&plain), allocate(&primary), first, second])
}

#[test]
fn a_gpu_that_vulkan_does_not_know_has_no_mapped_memory_and_lists_what_vulkan_knows() -> Result {
    under("foreign-uuid", || {
        for error in no_mapped_memory()? {
            assert!(matches!(error, Error::NoVulkan { .. }), "{error}");
            let parts = ["no Vulkan device matching the CUDA device", "CUDA device 0 has UUID", "Vulkan has llvmpipe"];
            assert_says(&error, &parts);
        }
        Ok(())
    })
}

#[test]
fn without_the_extension_there_is_no_mapped_memory_and_the_error_names_it() -> Result {
    under("no-external-memory", || {
        for error in no_mapped_memory()? {
            assert!(matches!(error, Error::Extension { .. }), "{error}");
            assert_says(&error, &["has no VK_KHR_external_memory_fd", "install a newer NVIDIA driver"]);
        }
        Ok(())
    })
}
