//! When buffers are freed: drop policies, contexts, and what is left behind.

use std::time::{Duration, Instant};

use support::blocking::{waits, while_shut};
use support::cuda::{Context, PrimaryContext, Stream, no_context, reset_primary};
use support::ledger::{Calls, Live};
use support::state::State;
use support::{Result, assert_says, host_read, host_write, pattern, refused, skip};
use vkgdr::ash::vk;
use vkgdr::vulkan::{Allocator, Buffer, MemoryLocation};
use vkgdr::{MemoryKind, OpenFlags, Vkgdr};

use crate::{allocator, buffer, open, room};

const LEN: usize = 4097;

/// A buffer that is freed once `stream` has finished.
fn dropped(allocator: &Allocator, len: usize, stream: &Stream) -> Result {
    let bound = buffer(allocator, len, MemoryLocation::CpuToGpu)?;
    support::bind(&bound, stream)?;
    let _ = bound.device_ptr();
    Ok(())
}

#[test]
fn a_bound_buffer_is_freed_once_its_stream_has_finished() -> Result {
    let (Some(gpu), _context) = (open()?, PrimaryContext::retain_and_push(0)) else { return Ok(()) };
    let allocator = allocator(&gpu)?;
    for len in [LEN, 5 << 20] {
        let stream = Stream::create();
        drop(buffer(&allocator, len, MemoryLocation::CpuToGpu)?);
        let gate = stream.hold();
        dropped(&allocator, len, &stream)?;
        assert!(allocator.report().total_allocated_bytes >= len as u64, "freed before its stream has finished");
        assert_eq!(gpu.collect(), 0);
        gate.open();
        stream.synchronize();
        assert_eq!(gpu.collect(), 1);
        assert_eq!(allocator.report().total_allocated_bytes, 0);
    }
    Ok(())
}

/// An allocation polls the deferred frees, a few at a time, and one of them makes the room that it needs.
#[test]
fn room_that_a_deferred_free_makes_during_an_allocation_is_used_without_a_wait() -> Result {
    let (Some(gpu), _context) = (open()?, PrimaryContext::retain_and_push(0)) else { return Ok(()) };
    let (stream, busy) = (Stream::create(), Stream::create());
    for others in [0, 16, 20] {
        let allocator = allocator(&gpu)?;
        let gate = stream.hold();
        // SAFETY: both streams are live, and of the current context.
        let busy_gate = unsafe { Stream::hold_raw_behind(busy.raw(), stream.raw()) };
        (0..others).try_for_each(|_| dropped(&allocator, LEN, &busy))?;
        dropped(&allocator, 3 << 20, &stream)?;
        gate.open();
        stream.synchronize();
        let (blocks, waits) = (gpu.live_allocations(), Calls::of("cuCtxSynchronize"));
        let again = while_shut(busy_gate, || Ok(buffer(&allocator, 3 << 20, MemoryLocation::CpuToGpu)?))?;
        waits.assert(0, "the release of a block that nothing used waited for the context");
        assert!(others > 0 || gpu.live_allocations() == blocks, "a block more than is needed");
        drop(again);
        busy.synchronize();
        gpu.collect();
    }
    Ok(())
}

/// The BAR is full, and a block in system memory has room: what is freed later in that is not worth a wait.
#[test]
fn room_in_a_block_of_another_memory_type_is_taken_without_a_wait() -> Result {
    let (Some(gpu), _context) = (open()?, PrimaryContext::retain_and_push(0)) else { return Ok(()) };
    let is_in_the_bar = |buffer: &Buffer| buffer.memory_type().flags.contains(vk::MemoryPropertyFlags::DEVICE_LOCAL);
    let (allocator, stream, mut full) = (allocator(&gpu)?, Stream::create(), Vec::new());
    if gpu.memory_info(MemoryKind::Mapped)?.total > 1 << 30 {
        return skip("the BAR is too large to be filled");
    }
    while full.last().is_none_or(is_in_the_bar) {
        full.push(buffer(&allocator, 8 << 20, MemoryLocation::CpuToGpu)?);
    }
    gpu.set_shortage_timeout(Duration::from_secs(60));
    dropped(&allocator, LEN, &stream)?;
    let gate = stream.hold();
    dropped(&allocator, LEN, &stream)?;
    let begin = Instant::now();
    assert!(!is_in_the_bar(&buffer(&allocator, LEN, MemoryLocation::CpuToGpu)?));
    assert!(begin.elapsed() < Duration::from_secs(10), "waited for {:?}", begin.elapsed());
    gate.open();
    stream.synchronize();
    Ok(())
}

/// What other memory is freed later does not help.
#[test]
fn memory_that_exceeds_the_heap_is_refused_without_a_wait_for_frees() -> Result {
    let (Some(gpu), _context) = (open()?, PrimaryContext::retain_and_push(0)) else { return Ok(()) };
    let (allocator, stream) = (allocator(&gpu)?, Stream::create());
    let gate = stream.hold();
    dropped(&allocator, LEN, &stream)?;
    let requirements = vk::MemoryRequirements { size: 1 << 60, alignment: 64, memory_type_bits: !0 };
    let (waited, refusal) = waits(gate, "cuEventSynchronize", || Ok(room(&allocator, requirements)))?;
    assert_says(&refused(refusal), &["requested 1 EiB", "VK_ERROR_OUT_OF_DEVICE_MEMORY"]);
    assert!(!waited, "waited for a stream");
    stream.synchronize();
    assert_eq!(gpu.collect(), 1);
    Ok(())
}

#[test]
fn buffers_and_their_blocks_leave_nothing_behind() -> Result {
    let (Some(gpu), _context) = (open()?, PrimaryContext::retain_and_push(0)) else { return Ok(()) };
    let cycle = || -> Result {
        let allocator = allocator(&gpu)?;
        let kept = buffer(&allocator, LEN, MemoryLocation::CpuToGpu)?;
        for len in [1, LEN, 1 << 20, 6 << 20] {
            let made = buffer(&allocator, len, MemoryLocation::GpuToCpu)?;
            let _ = made.device_ptr();
            made.free()?;
        }
        // The block lives as long as any part of what is in it.
        host_write(&kept, 0, &pattern(LEN, 1))?;
        let part = kept.slice(1..100)?;
        kept.free()?;
        drop(allocator);
        assert!(host_read(&part, 0, 99)? == pattern(LEN, 1)[1..100]);
        Ok(())
    };
    cycle()?;
    let before = State::take();
    for _ in 0..3 {
        cycle()?;
    }
    State::assert_unchanged(&before, "allocators");
    Ok(())
}

#[test]
fn blocks_are_of_the_allocators_context_whichever_is_current() -> Result {
    let Some(_) = open()? else { return Ok(()) };
    let context = Context::create(0);
    let gpu = Vkgdr::open(0, OpenFlags::empty())?;
    let allocator = allocator(&gpu)?;
    let made = no_context(|| buffer(&allocator, LEN, MemoryLocation::CpuToGpu))?;
    assert_eq!(made.context(), context.raw());
    let other = Context::create(0);
    let address = made.device_ptr();
    other.with_current(|| made.free())?;
    assert_ne!(address, 0);
    drop(other);
    Ok(())
}

#[test]
fn buffers_of_a_destroyed_context_are_freed_without_cuda() -> Result {
    let Some(_) = open()? else { return Ok(()) };
    let before = Live::now();
    let _context = PrimaryContext::retain_and_push(0);
    let gpu = Vkgdr::open(0, OpenFlags::empty())?;
    let of_buffers = allocator(&gpu)?;
    let made = buffer(&of_buffers, LEN, MemoryLocation::CpuToGpu)?;
    let _ = made.device_ptr();
    reset_primary();
    drop(made);
    drop(of_buffers);
    assert_eq!(Live::now(), before);
    Ok(())
}

#[test]
fn a_forked_child_gets_errors_and_leaves_its_parents_buffers_alone() -> Result {
    let Some(gpu) = open()? else { return Ok(()) };
    let allocator = allocator(&gpu)?;
    let mut mine = Some((buffer(&allocator, LEN, MemoryLocation::CpuToGpu)?, allocator));
    let before = Live::now();
    support::fork::in_quiet_child(|| {
        let (made, allocator) = mine.take().ok_or("nothing")?;
        support::fork::assert_forked(buffer(&allocator, LEN, MemoryLocation::CpuToGpu), "a buffer");
        support::fork::assert_forked(Allocator::new(&gpu), "an allocator");
        support::fork::assert_forked(gpu.vulkan_handles(), "the handles");
        support::fork::assert_forked(gpu.with_vulkan_queue(|_| ()), "the queue");
        support::fork::assert_forked(made.rename("child"), "a name");
        assert!(allocator.report().blocks.is_empty());
        drop((made, allocator));
        Ok(())
    })?;
    assert_eq!(Live::now(), before);
    Ok(())
}
