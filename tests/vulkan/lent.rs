//! The Vulkan device that programs are lent.

use support::{Result, pattern};
use vkgdr::ash::vk;
use vkgdr::{Memory, MemoryKind, OpenFlags, Vkgdr};

use crate::{open, words};

#[test]
fn a_buffer_of_the_programs_own_is_bound_to_memory_of_this_crate() -> Result {
    const WORDS: usize = 1000;
    let Some(gpu) = open()? else { return Ok(()) };
    let handles = gpu.vulkan_handles()?;
    let memory = Memory::allocate(&gpu, 8 * WORDS, MemoryKind::Mapped)?;
    let part = memory.slice(4 * WORDS..)?;
    let place = part.vulkan_memory().ok_or("not Vulkan's")?;
    let mut external =
        vk::ExternalMemoryBufferCreateInfo::default().handle_types(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
    let usage = vk::BufferUsageFlags::STORAGE_BUFFER;
    let info = vk::BufferCreateInfo::default().size(4 * WORDS as u64).usage(usage).push_next(&mut external);
    // SAFETY: a valid description.
    let buffer = unsafe { handles.device.create_buffer(&info, None) }?;
    // SAFETY: a live buffer.
    let required = unsafe { handles.device.get_buffer_memory_requirements(buffer) };
    let result = if place.offset % required.alignment == 0 && support::is_imported(&gpu, MemoryKind::Mapped) {
        // SAFETY: the buffer has no memory, and this suits it.
        unsafe { handles.device.bind_buffer_memory(buffer, place.memory, place.offset) }?;
        support::host_write(&memory, 0, &pattern(8 * WORDS, 5))?;
        let compute = crate::compute::Compute::new(&handles)?;
        compute.step(buffer, u32::try_from(WORDS)?, 11)?;
        let before = words(&pattern(8 * WORDS, 5));
        let found = words(&support::host_read(&memory, 0, 8 * WORDS)?);
        assert!(found[..WORDS] == before[..WORDS]);
        let stepped = |word: &u32| word.wrapping_mul(3).wrapping_add(11);
        assert!(found[WORDS..].iter().copied().eq(before[WORDS..].iter().map(stepped)));
        Ok(())
    } else {
        support::skip("the buffer cannot be bound there")
    };
    // SAFETY: nothing uses it.
    unsafe { handles.device.destroy_buffer(buffer, None) };
    result
}

#[test]
fn threads_take_turns_with_the_queue() -> Result {
    let Some(gpu) = open()? else { return Ok(()) };
    let inside = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let alone = gpu.with_vulkan_queue(|queue| {
                        use std::sync::atomic::Ordering::SeqCst;
                        let before = inside.fetch_add(1, SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, SeqCst);
                        before == 0 && queue != vk::Queue::null()
                    });
                    assert!(alone.is_ok_and(|alone| alone));
                }
            });
        }
    });
    Ok(())
}

#[test]
fn work_with_the_queue_may_log() -> Result {
    let Some(gpu) = open()? else { return Ok(()) };
    support::logs::capture();
    let owner = Vkgdr::open(0, OpenFlags::empty())?;
    let _context = support::cuda::PrimaryContext::retain_and_push(0);
    let memory = Memory::allocate(&owner, 4096, MemoryKind::Mapped)?;
    support::cuda::reset_primary();
    gpu.with_vulkan_queue(|_queue| drop(memory))?;
    let logged = support::logs::captured();
    assert!(logged.iter().any(|line| line.contains("was destroyed before the memory")), "{logged:?}");
    Ok(())
}
