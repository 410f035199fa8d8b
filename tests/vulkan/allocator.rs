//! What gpu-allocator's users see: locations, dedicated allocations, block sizes, names and reports, shortages.

use support::{Result, assert_says, device_read, host_read, host_write, pattern, refused, skip};
use vkgdr::ash::vk;
use vkgdr::vulkan::{AllocationCreateDesc, AllocationScheme, Buffer, MemoryLocation};
use vkgdr::{Error, Memory, MemoryKind, MemoryTypeInfo};

use crate::compute::Compute;
use crate::{BLOCK, OwnBuffer, VISIBLE, allocator, buffer, open, room};

const LEN: usize = 10_001;

#[test]
fn a_location_has_the_memory_that_gpu_allocator_promises() -> Result {
    use vk::MemoryPropertyFlags as Property;
    let Some(gpu) = open()? else { return Ok(()) };
    let allocator = allocator(&gpu)?;
    let has = |location| -> vkgdr::Result<Property> { Ok(buffer(&allocator, LEN, location)?.memory_type().flags) };
    assert!(has(MemoryLocation::GpuOnly)?.contains(Property::DEVICE_LOCAL));
    assert!(has(MemoryLocation::CpuToGpu)?.contains(Property::HOST_VISIBLE));
    assert!(has(MemoryLocation::GpuToCpu)?.contains(Property::HOST_VISIBLE));
    let preferred = Property::HOST_VISIBLE | Property::HOST_COHERENT | Property::HOST_CACHED;
    let is_preferred = |found: &MemoryTypeInfo| found.flags.contains(preferred);
    if gpu.memory_types().iter().any(is_preferred) {
        assert!(has(MemoryLocation::GpuToCpu)?.contains(Property::HOST_CACHED));
    }
    // The host's view is there if and only if the type has one.
    for location in [MemoryLocation::GpuOnly, MemoryLocation::CpuToGpu, MemoryLocation::GpuToCpu] {
        let found = buffer(&allocator, LEN, location)?;
        assert_eq!(found.host_ptr().is_some(), found.memory_type().flags.contains(Property::HOST_VISIBLE));
        assert_eq!(found.kind().has_host_view(), found.host_ptr().is_some());
    }
    Ok(())
}

#[test]
fn a_buffer_for_the_gpu_only_carries_bytes_from_cuda_to_the_queue_and_back() -> Result {
    let (Some(gpu), _context) = (open()?, support::cuda::PrimaryContext::retain_and_push(0)) else { return Ok(()) };
    let allocator = allocator(&gpu)?;
    let compute = Compute::new(&gpu.vulkan_handles()?)?;
    let inner = buffer(&allocator, LEN, MemoryLocation::GpuOnly)?;
    let [up, down] = [MemoryLocation::CpuToGpu, MemoryLocation::GpuToCpu].map(|at| buffer(&allocator, LEN, at));
    let (up, down) = (up?, down?);
    let copy = |from: &Buffer, to: &Buffer| {
        let (from, to, whole) = (from.handle(), to.handle(), [vk::BufferCopy::default().size(LEN as u64)]);
        // SAFETY: whole live buffers.
        compute.submit(|device, commands| unsafe { device.cmd_copy_buffer(commands, from, to, &whole) })
    };
    support::cuda::memcpy_htod(inner.device_ptr(), &pattern(LEN, 1));
    support::cuda::synchronize();
    copy(&inner, &down)?;
    assert!(host_read(&down, 0, LEN)? == pattern(LEN, 1), "the queue reads CUDA's bytes");
    host_write(&up, 0, &pattern(LEN, 2))?;
    copy(&up, &inner)?;
    assert!(device_read(inner.device_ptr(), LEN) == pattern(LEN, 2), "CUDA reads the queue's bytes");
    Ok(())
}

#[test]
fn freed_bytes_of_a_block_are_not_found_as_memory_of_another_block() -> Result {
    let Some(gpu) = open()? else { return Ok(()) };
    let (allocator, len) = (allocator(&gpu)?, usize::try_from(BLOCK / 2)?);
    let half = |_| buffer(&allocator, len, MemoryLocation::CpuToGpu);
    let mut halves = (0..4).map(half).collect::<vkgdr::Result<Vec<_>>>()?;
    halves.sort_by_key(|half| half.device_ptr());
    // Of the lower block the first half stays, of the other one the second.
    let freed =
        halves.drain(1..3).flat_map(|half| [half.device_ptr(), half.host_ptr().map_or(0, |at| at.addr().get() as u64)]);
    for address in freed.collect::<Vec<_>>() {
        for offset in [0, 5, len as u64 - 1] {
            // SAFETY: the alias is not used.
            assert!(unsafe { vkgdr::memory_of(address + offset) }.is_none(), "{offset} of freed memory");
        }
    }
    Ok(())
}

#[test]
fn buffers_share_a_block_and_large_and_dedicated_ones_have_their_own() -> Result {
    let Some(gpu) = open()? else { return Ok(()) };
    let allocator = allocator(&gpu)?;
    let location = MemoryLocation::CpuToGpu;
    let shared = [buffer(&allocator, LEN, location)?, buffer(&allocator, LEN, location)?];
    if shared[0].vulkan_memory().map(|place| place.memory) != shared[1].vulkan_memory().map(|place| place.memory) {
        return skip("the driver prefers dedicated allocations");
    }
    for (seed, buffer) in [(1, &shared[0]), (2, &shared[1])] {
        host_write(buffer, 0, &pattern(LEN, seed))?;
    }
    assert!(host_read(&shared[0], 0, LEN)? == pattern(LEN, 1), "a neighbour changed");
    assert_eq!((allocator.report().blocks.len(), allocator.report().total_capacity_bytes), (1, BLOCK));
    let large = buffer(&allocator, 5 << 20, location)?;
    assert_eq!(allocator.report().blocks.len(), 2);
    assert_eq!(large.vulkan_memory().map(|place| place.offset), Some(0));
    let mine = room(&allocator, vk::MemoryRequirements { size: 300, alignment: 4, memory_type_bits: !0 })?;
    assert_eq!((mine.len(), mine.device_ptr() % 64), (300, 0));
    // It may have a block of another memory type: an H100 has no buffers in the mapped one.
    let blocks = allocator.report().blocks.len();
    drop(large);
    let _context = support::cuda::PrimaryContext::retain_and_push(0);
    support::cuda::synchronize();
    gpu.collect();
    assert_eq!(allocator.report().blocks.len(), blocks - 1, "the large one's block is kept");
    Ok(())
}

#[test]
fn a_dedicated_allocation_is_for_the_callers_own_buffer() -> Result {
    let Some(gpu) = open()? else { return Ok(()) };
    let allocator = allocator(&gpu)?;
    let own = OwnBuffer::new(&gpu, LEN)?;
    let desc = AllocationCreateDesc {
        name: "dedicated",
        requirements: own.requirements,
        location: MemoryLocation::CpuToGpu,
        linear: true,
        allocation_scheme: AllocationScheme::DedicatedBuffer(own.buffer),
    };
    // SAFETY: the scheme's buffer is live, requires this, and was created for export.
    let memory = unsafe { allocator.allocate(&desc) }?;
    let place = memory.vulkan_memory().ok_or("not Vulkan's")?;
    assert_eq!(place.offset, 0);
    // SAFETY: a buffer without memory, and memory that is dedicated to it.
    unsafe { own.device.bind_buffer_memory(own.buffer, place.memory, place.offset) }?;
    host_write(&memory, 0, &pattern(memory.len(), 4))?;
    // The last atom may end with the memory.
    memory.flush(memory.len() - 1..)?;
    memory.invalidate(memory.len() - 1..)?;
    assert_eq!(allocator.report().allocations[0].name, "dedicated");
    memory.free()?;
    assert_eq!(allocator.report().total_capacity_bytes, 0);
    Ok(())
}

#[test]
fn reports_list_names_and_sizes_and_what_outlives_the_allocator_is_logged() -> Result {
    support::logs::capture();
    let Some(gpu) = open()? else { return Ok(()) };
    let allocator = allocator(&gpu)?;
    let [vertices, other] = [1000, 2000].map(|len| buffer(&allocator, len, MemoryLocation::CpuToGpu));
    let (vertices, other) = (vertices?, other?);
    vertices.rename("vertices")?;
    let report = allocator.report();
    let mut names: Vec<_> = report.allocations.iter().map(|found| found.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["buffer", "vertices"]);
    assert!(report.total_allocated_bytes >= 3000, "{report:?}");
    assert!(format!("{report:?}").contains("vertices"));
    let again = allocator.clone();
    drop(allocator);
    drop(other);
    assert!(!support::logs::captured().iter().any(|line| line.contains("outlive")));
    drop(again);
    let lines = support::logs::captured();
    let line = lines.iter().find(|line| line.contains("outlive")).ok_or("not logged")?;
    assert!(line.contains("1 allocations") && line.contains("vertices") && !line.contains("\"buffer\""), "{line}");
    host_write(&vertices, 0, &pattern(1000, 1))?;
    let live = gpu.live_allocations();
    drop(vertices);
    assert_eq!(gpu.live_allocations(), live - 1, "the block stays");
    Ok(())
}

#[test]
fn an_impossible_request_says_what_is_wrong() -> Result {
    let Some(gpu) = open()? else { return Ok(()) };
    let allocator = allocator(&gpu)?;
    assert!(matches!(refused(buffer(&allocator, 0, MemoryLocation::CpuToGpu)), Error::ZeroSize { .. }));
    let allocate = |size, alignment, memory_type_bits| {
        room(&allocator, vk::MemoryRequirements { size, alignment, memory_type_bits })
    };
    assert_says(&refused(allocate(64, 3, !0)), &["gpu-allocator", "Invalid"]);
    assert_says(&refused(allocate(1 << 62, 64, !0)), &["VK_ERROR_OUT_OF_DEVICE_MEMORY"]);
    assert_says(&refused(allocate(u64::MAX, 64, !0)), &["VK_ERROR_OUT_OF_DEVICE_MEMORY"]);
    assert_says(
        &refused(allocate(64, 64, 0)),
        &["suitable memory type", "CpuToGpu", "the resource allows", "another location"],
    );
    // A type that no GPU has.
    assert_says(&refused(allocate(64, 64, 1 << 31)), &["among the types 0b10000000000000000000000000000000 that"]);
    let mapped = gpu.memory_type_of(MemoryKind::Mapped)?.index;
    assert_says(&refused(allocate(1 << 62, 64, 1 << mapped)), &["of mapped memory"]);
    assert!(allocator.report().blocks.is_empty());
    Ok(())
}

#[test]
fn memory_has_its_place_in_vulkan_and_that_of_a_buffer_is_found_and_not_exported() -> Result {
    let Some(gpu) = open()? else { return Ok(()) };
    for kind in support::imported(&gpu, &MemoryKind::ALL) {
        let memory = Memory::allocate(&gpu, LEN, kind)?;
        let place = memory.vulkan_memory().ok_or("not Vulkan's")?;
        assert!(place.memory != vk::DeviceMemory::null() && place.offset == 0);
        assert_eq!(memory.slice(64..)?.vulkan_memory().map(|part| part.offset), Some(64));
    }
    let allocator = allocator(&gpu)?;
    let shared = buffer(&allocator, LEN, MemoryLocation::CpuToGpu)?;
    let (found, offset) = support::memory_of(shared.device_ptr() + 100).ok_or("not found")?;
    assert_eq!((found.len(), offset), (LEN, 100));
    assert_says(&refused(shared.export_fd()), &["cannot be exported", "by itself"]);
    let part: Memory = shared.slice(100..200)?;
    let whole = shared.vulkan_memory().ok_or("not Vulkan's")?;
    assert_eq!(part.vulkan_memory().map(|place| place.offset), Some(whole.offset + 100));
    Ok(())
}

#[test]
fn threads_allocate_and_free_at_the_same_time() -> Result {
    let Some(gpu) = open()? else { return Ok(()) };
    let allocator = allocator(&gpu)?;
    let churn = |seed| -> Result {
        let mut random = support::Random::new(seed);
        let mut kept: Vec<(Buffer, Vec<u8>)> = Vec::new();
        for _ in 0..60 {
            let len = 1 + random.below(400_000);
            let bytes = random.bytes(len);
            let made = buffer(&allocator, len, VISIBLE[random.below(2)])?;
            host_write(&made, 0, &bytes)?;
            kept.push((made, bytes));
            if kept.len() > 6 {
                let (oldest, bytes) = kept.remove(random.below(6));
                assert!(host_read(&oldest, 0, bytes.len())? == bytes, "bytes changed");
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        for seed in 0..8 {
            let churn = &churn;
            scope.spawn(move || churn(seed).unwrap_or_else(|error| panic!("{error}")));
        }
    });
    assert_eq!(allocator.report().total_allocated_bytes, 0);
    drop(allocator);
    assert_eq!(gpu.live_allocations(), 0);
    Ok(())
}
