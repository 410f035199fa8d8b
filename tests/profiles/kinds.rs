//! Discrete GPUs with and without Resizable BAR: supported kinds and their sizes.

use support::{Result, assert_says, device_read, host_write, pattern, refused};
use vkgdr::ash::vk::MemoryPropertyFlags as Property;
use vkgdr::{CopyRoutine, Memory, MemoryInfoSource, MemoryKind, OpenFlags, Pool, PoolOptions, Vkgdr};

use crate::under;

const NONE: OpenFlags = OpenFlags::empty();
const MIB: usize = 1 << 20;
const ROOM: u64 = 246 << 20;

fn types(gpu: &Vkgdr) -> Vec<(Property, u32)> {
    gpu.memory_types().iter().map(|found| (found.flags, found.heap)).collect()
}

#[test]
fn with_resizable_bar_all_of_the_video_memory_can_be_mapped() -> Result {
    under("rebar", "kinds::with_resizable_bar_all_of_the_video_memory_can_be_mapped", || {
        let (_context, gpu) = support::open(OpenFlags::REQUIRE_COHERENT)?;
        let local = Property::DEVICE_LOCAL;
        let seen = Property::HOST_VISIBLE | Property::HOST_COHERENT;
        let cached = seen | Property::HOST_CACHED;
        assert_eq!(types(&gpu), [(Property::empty(), 1), (local, 0), (seen, 1), (cached, 1), (local | seen, 0)]);
        let served = MemoryKind::ALL.map(|kind| gpu.memory_type_of(kind).map(|found| found.index));
        assert!(matches!(served, [Ok(4), Ok(3), Ok(1)]), "{served:?}");
        let info = MemoryKind::ALL.map(|kind| gpu.memory_info(kind));
        assert!(matches!(&info, [Ok(mapped), Ok(_), Ok(device)] if mapped == device), "{info:?}");
        Ok(())
    })
}

#[test]
fn mapped_memory_of_a_discrete_gpu_is_not_copied_through_the_cache() -> Result {
    under("rebar", "kinds::mapped_memory_of_a_discrete_gpu_is_not_copied_through_the_cache", || {
        let (_context, gpu) = support::open(NONE)?;
        for (kind, cached) in [(MemoryKind::Mapped, false), (MemoryKind::Host, true)] {
            let memory = Memory::allocate(&gpu, 5000, kind)?;
            assert_eq!(memory.copy_routine() == CopyRoutine::Ordinary, cached, "{kind}");
            host_write(&memory, 3, &pattern(4000, 1))?;
            assert!(device_read(memory.device_ptr() + 3, 4000) == pattern(4000, 1), "{kind}");
        }
        Ok(())
    })
}

#[test]
fn without_resizable_bar_mapped_memory_ends_with_its_budget() -> Result {
    under("bar256", "kinds::without_resizable_bar_mapped_memory_ends_with_its_budget", || {
        let (_context, gpu) = support::open(NONE)?;
        let mapped = MemoryKind::Mapped;
        assert_eq!(gpu.memory_type_of(mapped)?.heap, 2);
        let room = || gpu.memory_info(mapped).map(|info| (info.total, info.available, info.source));
        assert_eq!(room()?, (256 << 20, ROOM, MemoryInfoSource::Budget));
        let most = Memory::allocate(&gpu, 200 * MIB, mapped)?;
        assert_eq!(room()?.1, ROOM - (200 << 20));
        let beyond = refused(Memory::allocate(&gpu, 50 * MIB, mapped));
        assert_says(
            &beyond,
            &[
                "VK_ERROR_OUT_OF_DEVICE_MEMORY",
                "requested 50 MiB of mapped memory",
                "the heap has 256 MiB",
                "enable Resizable BAR",
            ],
        );
        for kind in [MemoryKind::Host, MemoryKind::Device] {
            Memory::allocate(&gpu, 300 * MIB, kind)?;
        }
        let rest = Memory::allocate(&gpu, 46 * MIB, mapped)?;
        assert_eq!(room()?.1, 0);
        refused(Memory::allocate(&gpu, 1, mapped));
        drop(most);
        assert_eq!(room()?.1, 200 << 20);
        Memory::allocate(&gpu, 50 * MIB, mapped)?;
        drop(rest);
        assert_eq!(room()?.1, ROOM);
        Ok(())
    })
}

#[test]
fn a_pool_fills_the_bar_and_gives_it_back() -> Result {
    under("bar256", "kinds::a_pool_fills_the_bar_and_gives_it_back", || {
        let (_context, gpu) = support::open(NONE)?;
        let pool = Pool::new(&gpu, PoolOptions::new(MemoryKind::Mapped))?;
        let mut chunks = Vec::new();
        let error = loop {
            match pool.allocate(MIB) {
                Ok(chunk) => chunks.push(chunk),
                Err(error) => break error,
            }
            assert!(chunks.len() <= 246, "more than the budget");
        };
        assert_says(&error, &["VK_ERROR_OUT_OF_DEVICE_MEMORY", "the heap has 256 MiB"]);
        assert!(chunks.len() > 100, "{}: much of the BAR is not used", chunks.len());
        chunks.clear();
        pool.allocate(MIB)?;
        drop(pool);
        assert_eq!(gpu.memory_info(MemoryKind::Mapped)?.available, ROOM);
        Ok(())
    })
}

#[test]
fn imported_memory_is_not_counted_twice() -> Result {
    under("bar256", "kinds::imported_memory_is_not_counted_twice", || {
        let (_context, gpu) = support::open(NONE)?;
        let memory = Memory::allocate(&gpu, 200 * MIB, MemoryKind::Mapped)?;
        let fd = memory.export_fd()?;
        // SAFETY: exported above from memory of this kind and length.
        let imported = unsafe { Memory::import_fd(&gpu, fd, memory.len(), memory.kind()) }?;
        host_write(&imported, 0, &[7; 100])?;
        assert_eq!(device_read(memory.device_ptr(), 100), [7; 100]);
        Ok(())
    })
}

#[test]
fn without_mappable_video_memory_the_other_kinds_work_and_the_error_says_what_to_do() -> Result {
    let name = "kinds::without_mappable_video_memory_the_other_kinds_work_and_the_error_says_what_to_do";
    under("no-bar", name, || {
        let (_context, gpu) = support::open(NONE)?;
        assert_eq!(MemoryKind::ALL.map(|kind| gpu.supports(kind)), [false, true, true]);
        let errors = [
            refused(Memory::allocate(&gpu, 1, MemoryKind::Mapped)),
            refused(Vkgdr::open(0, OpenFlags::REQUIRE_COHERENT)),
        ];
        for error in errors {
            assert_says(
                &error,
                &["no mapped memory (DEVICE_LOCAL | HOST_VISIBLE): enable Resizable BAR", "use host memory"],
            );
        }
        let host = Memory::allocate(&gpu, 5000, MemoryKind::Host)?;
        host_write(&host, 0, &pattern(5000, 2))?;
        assert!(device_read(host.device_ptr(), 5000) == pattern(5000, 2));
        Memory::allocate(&gpu, 5000, MemoryKind::Device)?;
        Ok(())
    })
}
