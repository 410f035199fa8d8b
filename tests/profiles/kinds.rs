//! Discrete GPUs with and without Resizable BAR, coherent ones, and those that lack a requirement: supported kinds and their sizes.
#![expect(unsafe_code, reason = "imports a descriptor, which is refused")]

use support::resources::{Resource, limit};
use support::{Result, assert_says, device_read, host_write, pattern, refused};
use vkgdr::{
    AllocateOptions, CopyRoutine, Error, Memory, MemoryInfoSource, MemoryKind, MemoryTypeInfo, OpenFlags, Pool,
    PoolOptions, Vkgdr,
};

use crate::under;

const NONE: OpenFlags = OpenFlags::empty();
const MAPPED: MemoryKind = MemoryKind::Mapped;
const MIB: usize = 1 << 20;
/// The budget of `bar256`, 216.25 MiB, without the 29.75 MiB that it reports as used.
const ROOM: u64 = 373 << 19;

/// GPUs by profile: the number of their memory types, those of mapped and device memory, the size of the heap of mapped memory in
/// MiB, and whether the CPU caches that.
const GPUS: [(&str, usize, [u32; 2], u64, bool); 6] = [
    ("rebar", 5, [4, 1], 8 << 10, false),
    ("bar256", 5, [4, 1], 246, false),
    ("types-5", 5, [4, 1], 214, false),
    ("types-11", 11, [10, 6], 214, false),
    ("gb10", 2, [1, 0], 119 << 10, true),
    ("gh200", 5, [4, 1], 96 << 10, true),
];

#[test]
fn each_kind_is_of_the_type_that_serves_it_and_copied_as_the_cpu_sees_it() -> Result {
    for (profile, count, [mapped, device], total, cached) in GPUS {
        under(profile, || {
            let (_context, gpu) = support::open(OpenFlags::REQUIRE_COHERENT)?;
            assert_eq!(gpu.memory_types().len(), count);
            let served = MemoryKind::ALL.map(|kind| gpu.memory_type_of(kind).map_or(99, |found| found.index));
            assert_eq!(served, [mapped, MemoryTypeInfo::OUTSIDE_VULKAN, device]);
            assert_eq!(gpu.memory_info(MAPPED)?.total >> 20, total);
            for (kind, cached) in [(MAPPED, cached), (MemoryKind::Host, true)] {
                let memory = Memory::allocate(&gpu, 5000, kind)?;
                assert_eq!(memory.copy_routine() == CopyRoutine::Ordinary, cached, "{kind}");
                assert_eq!((memory.is_coherent(), memory.non_coherent_atom_size()), (true, 1), "{kind}");
                host_write(&memory, 3, &pattern(4000, 1))?;
                assert!(device_read(memory.device_ptr() + 3, 4000) == pattern(4000, 1), "{kind}");
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// GPUs without mapped memory, by profile, with the errors that say so.
type Lacking = (&'static str, fn(&Error) -> bool, &'static [&'static str]);
const LACKING: [Lacking; 4] = [
    (
        "foreign-uuid",
        |error| matches!(error, Error::NoVulkan { .. }),
        &["no Vulkan device matching the CUDA device", "CUDA device 0 has UUID", "Vulkan has llvmpipe"],
    ),
    (
        "no-external-memory",
        |error| matches!(error, Error::Extension { .. }),
        &["has no VK_KHR_external_memory_fd", "install a newer NVIDIA driver"],
    ),
    (
        "no-bar",
        |error| matches!(error, Error::NoSuitableMemoryType { .. }),
        &["no mapped memory (DEVICE_LOCAL | HOST_VISIBLE): enable Resizable BAR", "use host memory"],
    ),
    (
        "no-vulkan",
        |error| matches!(error, Error::NoVulkan { .. }),
        &["vkCreateInstance failed (VK_ERROR_INCOMPATIBLE_DRIVER)"],
    ),
];

/// The errors of mapped memory. The handle has memory of the other kinds, to which an allocation can fall back.
fn without_mapped(gpu: &Vkgdr) -> Result<[Error; 3]> {
    assert_eq!(MemoryKind::ALL.map(|kind| gpu.supports(kind)), [false, true, true]);
    let options = AllocateOptions::new(MAPPED).fallback([MemoryKind::Host, MemoryKind::Device]);
    let host = Memory::allocate_with(gpu, 5000, options)?;
    assert_eq!(host.kind(), MemoryKind::Host);
    host_write(&host, 0, &pattern(5000, 2))?;
    assert!(device_read(host.device_ptr(), 5000) == pattern(5000, 2));
    let device = Memory::allocate(gpu, 5000, MemoryKind::Device)?;
    let chunk = Pool::new(gpu, PoolOptions::new(MemoryKind::Device))?.allocate(100)?;
    for memory in [&device, &chunk] {
        support::cuda::memcpy_htod(memory.device_ptr(), &pattern(100, 3));
        assert!(device_read(memory.device_ptr(), 100) == pattern(100, 3));
        assert_eq!(vkgdr::pointer_device(memory.device_ptr())?, Some(0));
    }
    if gpu.memory_types().is_empty() {
        assert!(matches!(refused(device.export_fd()), Error::NoExport { kind: MemoryKind::Device }));
    }
    // SAFETY: refused.
    let imported = refused(unsafe { Memory::import_fd(gpu, host.export_fd()?, 5000, MAPPED) });
    Ok([refused(Memory::allocate(gpu, 1, MAPPED)), refused(gpu.memory_info(MAPPED)), imported])
}

#[test]
fn without_mapped_memory_the_other_kinds_work_and_every_error_says_what_to_do() -> Result {
    for (profile, is_right, says) in LACKING {
        under(profile, || {
            let primary = Vkgdr::open_primary_context(0, NONE)?;
            let (_context, plain) = support::open(NONE)?;
            let required = [
                refused(Vkgdr::open(0, OpenFlags::REQUIRE_COHERENT)),
                refused(Vkgdr::open_primary_context(0, OpenFlags::REQUIRE_COHERENT)),
            ];
            for error in without_mapped(&plain)?.into_iter().chain(without_mapped(&primary)?).chain(required) {
                assert!(is_right(&error), "{error:?}");
                assert_says(&error, says);
            }
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn without_resizable_bar_mapped_memory_ends_although_the_budget_shows_room() -> Result {
    under("bar256", || {
        let (_context, gpu) = support::open(NONE)?;
        assert_eq!(gpu.memory_type_of(MAPPED)?.heap, 2);
        let room = || gpu.memory_info(MAPPED).map(|info| (info.total, info.available, info.source));
        assert_eq!(room()?, (246 << 20, ROOM, MemoryInfoSource::Budget));
        // A desktop's memory lies in the middle: the holes have 112 and 104.25 MiB.
        let too_long = refused(Memory::allocate(&gpu, 113 * MIB, MAPPED));
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
        let beyond = refused(Memory::allocate(&gpu, 220 * MIB, MAPPED));
        assert_says(
            &beyond,
            &["; 186.5 MiB of 246 MiB free by the budget; host and device memory would work", "enable Resizable BAR"],
        );
        assert!(!beyond.to_string().contains("fragmented"), "{beyond}");
        let or_host = AllocateOptions::new(MAPPED).fallback([MemoryKind::Host]);
        assert_eq!(Memory::allocate_with(&gpu, 113 * MIB, or_host)?.kind(), MemoryKind::Host);
        assert_eq!(Memory::allocate_with(&gpu, 300 * MIB, or_host)?.kind(), MemoryKind::Host);
        assert_eq!(Memory::allocate_with(&gpu, 5000, or_host)?.kind(), MAPPED);
        let most = Memory::allocate(&gpu, 112 * MIB, MAPPED)?;
        assert_eq!(room()?.1, ROOM - (112 << 20));
        refused(Memory::allocate(&gpu, 105 * MIB, MAPPED));
        drop(most);
        assert_eq!(room()?.1, ROOM);
        Ok(())
    })
}

#[test]
fn a_pool_fills_the_bar_and_gives_it_back() -> Result {
    under("bar256", || {
        let (_context, gpu) = support::open(NONE)?;
        let pool = Pool::new(&gpu, PoolOptions::new(MAPPED))?;
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
        assert_eq!(gpu.memory_info(MAPPED)?.available, ROOM);
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
            let error = refused(Memory::allocate(&gpu, MIB, MAPPED)).to_string();
            layer.clear_faults();
            error
        };
        limit(Resource::Nofile, 200);
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
