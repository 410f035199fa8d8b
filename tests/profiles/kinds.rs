//! Discrete GPUs with and without Resizable BAR: supported kinds and their sizes.

use support::resources::{Limit, limit};
use support::{Result, assert_says, device_read, host_write, pattern, refused};
use vkgdr::ash::vk::MemoryPropertyFlags as Property;
use vkgdr::{
    AllocateOptions, CopyRoutine, Error, Memory, MemoryInfoSource, MemoryKind, MemoryTypeInfo, OpenFlags, Pool,
    PoolOptions, Vkgdr,
};

use crate::under;

const NONE: OpenFlags = OpenFlags::empty();
const MIB: usize = 1 << 20;
/// The budget of `bar256`, 216.25 MiB, without the 29.75 MiB that it reports as used.
const ROOM: u64 = 373 << 19;

fn types(gpu: &Vkgdr) -> Vec<(Property, u32)> {
    gpu.memory_types().iter().map(|found| (found.flags, found.heap)).collect()
}

#[test]
fn with_resizable_bar_all_of_the_video_memory_can_be_mapped() -> Result {
    under("rebar", || {
        let (_context, gpu) = support::open(OpenFlags::REQUIRE_COHERENT)?;
        let local = Property::DEVICE_LOCAL;
        let seen = Property::HOST_VISIBLE | Property::HOST_COHERENT;
        let cached = seen | Property::HOST_CACHED;
        assert_eq!(types(&gpu), [(Property::empty(), 1), (local, 0), (seen, 1), (cached, 1), (local | seen, 0)]);
        let served = MemoryKind::ALL.map(|kind| gpu.memory_type_of(kind).map(|found| found.index));
        assert!(matches!(served, [Ok(4), Ok(MemoryTypeInfo::OUTSIDE_VULKAN), Ok(1)]), "{served:?}");
        let info = MemoryKind::ALL.map(|kind| gpu.memory_info(kind));
        assert!(matches!(&info, [Ok(mapped), Ok(_), Ok(device)] if mapped == device), "{info:?}");
        Ok(())
    })
}

#[test]
fn mapped_memory_of_a_discrete_gpu_is_not_copied_through_the_cache() -> Result {
    under("rebar", || {
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
fn without_resizable_bar_mapped_memory_ends_although_the_budget_shows_room() -> Result {
    under("bar256", || {
        let (_context, gpu) = support::open(NONE)?;
        let mapped = MemoryKind::Mapped;
        assert_eq!(gpu.memory_type_of(mapped)?.heap, 2);
        let room = || gpu.memory_info(mapped).map(|info| (info.total, info.available, info.source));
        assert_eq!(room()?, (246 << 20, ROOM, MemoryInfoSource::Budget));
        // A desktop's memory lies in the middle: the holes have 112 and 104.25 MiB.
        let too_long = refused(Memory::allocate(&gpu, 113 * MIB, mapped));
        assert_says(
            &too_long,
            &[
                "VK_ERROR_OUT_OF_DEVICE_MEMORY",
                "requested 113 MiB of mapped memory",
                "the BAR is full or fragmented: 186.5 MiB of 246 MiB free by the budget",
                "host and device memory would work",
                "enable Resizable BAR",
            ],
        );
        assert!(matches!(&too_long, Error::Allocation { free: Some(ROOM), others, .. } if others.len() == 2));
        // More than the budget shows: that is all there is to say.
        let beyond = refused(Memory::allocate(&gpu, 220 * MIB, mapped)).to_string();
        assert!(beyond.contains("enable Resizable BAR") && !beyond.contains("fragmented"), "{beyond}");
        let or_host = AllocateOptions::new(mapped).fallback([MemoryKind::Host]);
        assert_eq!(Memory::allocate_with(&gpu, 113 * MIB, or_host)?.kind(), MemoryKind::Host);
        assert_eq!(Memory::allocate_with(&gpu, 300 * MIB, or_host)?.kind(), MemoryKind::Host);
        assert_eq!(Memory::allocate_with(&gpu, 5000, or_host)?.kind(), mapped);
        let most = Memory::allocate(&gpu, 112 * MIB, mapped)?;
        assert_eq!(room()?.1, ROOM - (112 << 20));
        refused(Memory::allocate(&gpu, 105 * MIB, mapped));
        for kind in [MemoryKind::Host, MemoryKind::Device] {
            Memory::allocate(&gpu, 300 * MIB, kind)?;
        }
        // The desktop's share is in the reported usage, so that nothing seems to be left before all is taken.
        let rest = Memory::allocate(&gpu, 104 * MIB, mapped)?;
        assert_eq!(room()?.1, 0);
        let little = Memory::allocate(&gpu, MIB / 4, mapped)?;
        refused(Memory::allocate(&gpu, 1, mapped));
        drop(most);
        assert_eq!(room()?.1, ROOM - (104 << 20) - (1 << 18));
        refused(Memory::allocate(&gpu, 113 * MIB, mapped));
        Memory::allocate(&gpu, 112 * MIB, mapped)?;
        drop([rest, little]);
        assert_eq!(room()?.1, ROOM);
        Ok(())
    })
}

/// The memory types that serve mapped and device memory.
fn served(gpu: &Vkgdr) -> [Option<u32>; 2] {
    [MemoryKind::Mapped, MemoryKind::Device].map(|kind| gpu.memory_type_of(kind).ok().map(|found| found.index))
}

#[test]
fn the_memory_types_of_newer_and_older_drivers_serve_all_kinds() -> Result {
    for (profile, count, expected) in [("types-5", 5, [4, 1]), ("types-11", 11, [10, 6])] {
        under(profile, || {
            let (_context, gpu) = support::open(OpenFlags::REQUIRE_COHERENT)?;
            assert_eq!((gpu.memory_types().len(), served(&gpu)), (count, expected.map(Some)));
            assert_eq!(gpu.memory_info(MemoryKind::Mapped)?.total, 214 << 20);
            let memory = Memory::allocate(&gpu, 5000, MemoryKind::Mapped)?;
            assert_eq!(memory.non_coherent_atom_size(), 1);
            host_write(&memory, 3, &pattern(4000, 1))?;
            assert!(device_read(memory.device_ptr() + 3, 4000) == pattern(4000, 1));
            let all = Memory::allocate(&gpu, 213 * MIB, MemoryKind::Mapped)?;
            refused(Memory::allocate(&gpu, MIB, MemoryKind::Mapped));
            drop(all);
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn coherent_gpus_have_cached_mapped_memory_that_is_copied_as_any_other() -> Result {
    for (profile, expected, heaps) in [("gb10", [1, 0], 1), ("gh200", [4, 1], 2)] {
        under(profile, || {
            let (_context, gpu) = support::open(OpenFlags::REQUIRE_COHERENT)?;
            assert_eq!(served(&gpu), expected.map(Some));
            let last = gpu.memory_types().iter().map(|found| found.heap).max();
            assert_eq!(last, Some(heaps - 1));
            for kind in support::HOST_VIEWS {
                let memory = Memory::allocate(&gpu, 5000, kind)?;
                assert_eq!(memory.copy_routine(), CopyRoutine::Ordinary, "{kind}");
                host_write(&memory, 3, &pattern(4000, 1))?;
                assert!(device_read(memory.device_ptr() + 3, 4000) == pattern(4000, 1), "{kind}");
            }
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn a_pool_fills_the_bar_and_gives_it_back() -> Result {
    under("bar256", || {
        let (_context, gpu) = support::open(NONE)?;
        let pool = Pool::new(&gpu, PoolOptions::new(MemoryKind::Mapped))?;
        let mut chunks = Vec::new();
        let error = loop {
            match pool.allocate(MIB) {
                Ok(chunk) => chunks.push(chunk),
                Err(error) => break error,
            }
            assert!(chunks.len() <= 216, "more than the budget");
        };
        assert_says(&error, &["VK_ERROR_OUT_OF_DEVICE_MEMORY", "the heap has 246 MiB"]);
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
    under("bar256", || {
        let (_context, gpu) = support::open(NONE)?;
        let memory = Memory::allocate(&gpu, 110 * MIB, MemoryKind::Mapped)?;
        let imported = support::import(&gpu, memory.export_fd()?, &memory)?;
        host_write(&imported, 0, &[7; 100])?;
        assert_eq!(device_read(memory.device_ptr(), 100), [7; 100]);
        Ok(())
    })
}

#[test]
fn without_mappable_video_memory_the_other_kinds_work_and_the_error_says_what_to_do() -> Result {
    under("no-bar", || {
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

#[test]
fn a_shortage_of_descriptors_is_not_taken_for_a_full_bar() -> Result {
    under("bar256", || {
        let (_context, gpu) = support::open(NONE)?;
        let Some(layer) = support::vklayer() else { return support::skip("needs the fault layer") };
        // What a driver that keeps memory in files returns without descriptors.
        let fail = || {
            layer.fail("vkAllocateMemory", 1, support::codes::vulkan::OUT_OF_DEVICE_MEMORY);
            let error = refused(Memory::allocate(&gpu, MIB, MemoryKind::Mapped)).to_string();
            layer.clear_faults();
            error
        };
        limit(Limit::Descriptors, 200);
        let mut taken = Vec::new();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            taken.push(file);
        }
        let without = fail();
        drop(taken);
        assert!(without.contains("OUT_OF_DEVICE_MEMORY") && !without.contains("fragmented"), "{without}");
        let with = fail();
        assert!(with.contains("the BAR is full or fragmented"), "{with}");
        Ok(())
    })
}
