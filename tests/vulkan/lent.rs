//! The Vulkan device that programs are lent.

use support::{Result, pattern};
use vkgdr::{Memory, MemoryKind, OpenFlags, Vkgdr};

use crate::{OwnBuffer, open, words};

#[test]
fn a_buffer_of_the_programs_own_is_bound_to_memory_of_this_crate() -> Result {
    const WORDS: usize = 1000;
    let Some(gpu) = open()? else { return Ok(()) };
    let memory = Memory::allocate(&gpu, 8 * WORDS, MemoryKind::Mapped)?;
    let part = memory.slice(4 * WORDS..)?;
    let (place, own) = (part.vulkan_memory().ok_or("not Vulkan's")?, OwnBuffer::new(&gpu, 4 * WORDS)?);
    if place.offset % own.requirements.alignment != 0 || !support::is_imported(&gpu, MemoryKind::Mapped) {
        return support::skip("the buffer cannot be bound there");
    }
    // SAFETY: the buffer has no memory, and this suits it.
    unsafe { own.device.bind_buffer_memory(own.buffer, place.memory, place.offset) }?;
    support::host_write(&memory, 0, &pattern(8 * WORDS, 5))?;
    let compute = crate::compute::Compute::new(&gpu.vulkan_handles()?)?;
    compute.step(own.buffer, u32::try_from(WORDS)?, 11)?;
    let before = words(&pattern(8 * WORDS, 5));
    let found = words(&support::host_read(&memory, 0, 8 * WORDS)?);
    assert!(found[..WORDS] == before[..WORDS]);
    let stepped = |word: &u32| word.wrapping_mul(3).wrapping_add(11);
    assert!(found[WORDS..].iter().copied().eq(before[WORDS..].iter().map(stepped)));
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
