//! Two GPUs: matching Vulkan's devices to CUDA's.

use support::cuda::{self, Context, PrimaryContext};
use support::{Result, assert_says, device_read, host_write, pattern, refused};
use vkgdr::{CopyPolicy, Error, Memory, MemoryKind, OpenFlags, Pool, PoolOptions, RawMemory, Vkgdr};

use crate::under;

const NONE: OpenFlags = OpenFlags::empty();
const MAPPED: MemoryKind = MemoryKind::Mapped;
const MIB: u64 = 1 << 20;

fn both_gpus() -> Result<[Vkgdr; 2]> {
    assert_eq!(vkgdr::device_count()?, 2);
    Ok([Vkgdr::open(0, NONE)?, Vkgdr::open(1, NONE)?])
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
fn each_gpus_memory_is_its_own_in_either_order_of_vulkans() -> Result {
    under("two-gpus", each_gpu_is_its_own)?;
    under("two-gpus-swapped", each_gpu_is_its_own)
}

#[test]
fn a_context_of_the_other_gpu_is_refused_and_both_are_named() -> Result {
    under("two-gpus", || {
        let [_, second] = both_gpus()?;
        let _context = Context::create(0);
        for error in [
            refused(Memory::allocate(&second, 1, MAPPED)),
            refused(RawMemory::allocate(&second, 1, MAPPED)),
            refused(Pool::new(&second, PoolOptions::default())),
        ] {
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
    under("two-gpus", || {
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
