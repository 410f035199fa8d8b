//! Out of memory: an allocation waits for the deferred frees and tries once more.

use std::thread;
use std::time::{Duration, Instant};

use support::blocking::waits;
use support::codes;
use support::cuda::{PrimaryContext, Stream};
use support::ledger::Calls;
use support::state::State;
use support::{Controls, Shortage, assert_says, refused};
use vkgdr::{Memory, MemoryKind, Pool, PoolOptions, Vkgdr};

use crate::place::{Place, imports_mapped, only_imports_mapped};
use crate::{NONE, Result};

const LEN: usize = 1 << 20;

fn allocate(gpu: &Vkgdr) -> vkgdr::Result<Memory> {
    Memory::allocate(gpu, LEN, MemoryKind::Mapped)
}

/// Drops memory that a blocked stream uses, makes the next call of `function` fail, and allocates: the allocation must
/// succeed, and the dropped memory must be freed.
fn survives(controls: &'static Controls, function: &'static str, code: i32) -> Result {
    let place = Place::plain(NONE)?;
    if !imports_mapped(&place.gpu) {
        return Ok(());
    }
    let stream = Stream::create();
    allocate(&place.gpu)?.free()?;
    let before = State::take();

    let memory = allocate(&place.gpu)?;
    support::bind(&memory, &stream)?;
    let gate = stream.hold();
    drop(memory);
    assert_eq!(place.gpu.collect(), 0, "the memory was freed while the stream was blocked");

    controls.fail(function, 1, code);
    // The gate opens only after the call has failed: until then the free must stay deferred.
    let (_, allocated) = waits(gate, function, || Ok(allocate(&place.gpu)))?;
    let fired = controls.last_fault();
    controls.clear_faults();
    assert_eq!(fired.as_deref(), Some(function));
    allocated?.free()?;
    assert_eq!(place.gpu.collect(), 0, "a free was still deferred");
    State::assert_unchanged(&before, "the retry");
    Ok(())
}

#[test]
fn vulkan_running_out_drains_the_deferred_frees_and_tries_again() -> Result {
    let Some(layer) = support::vklayer() else {
        return support::skip("needs the fault layer (VKGDR_TEST_LAYERS=faults or validation)");
    };
    survives(layer, "vkAllocateMemory", codes::vulkan::OUT_OF_DEVICE_MEMORY)?;
    survives(layer, "vkAllocateMemory", codes::vulkan::OUT_OF_HOST_MEMORY)?;
    survives(layer, "vkMapMemory", codes::vulkan::MEMORY_MAP_FAILED)?;
    survives(layer, "vkGetMemoryFdKHR", codes::vulkan::TOO_MANY_OBJECTS)?;
    survives(layer, "vkGetMemoryFdKHR", codes::vulkan::INVALID_EXTERNAL_HANDLE)
}

#[test]
fn cuda_running_out_drains_the_deferred_frees_and_tries_again() -> Result {
    let Some(sim) = support::simcuda() else {
        return support::skip("needs the simulated CUDA driver");
    };
    survives(sim, "cuImportExternalMemory", codes::OUT_OF_MEMORY)?;
    survives(sim, "cuImportExternalMemory", codes::OPERATING_SYSTEM)?;
    survives(sim, "cuExternalMemoryGetMappedBuffer", codes::OUT_OF_MEMORY)
}

#[test]
fn an_allocation_does_not_wait_longer_than_the_program_says_for_work_that_does_not_end() -> Result {
    let place = Place::plain(NONE)?;
    if !only_imports_mapped(&place.gpu)? {
        return Ok(());
    }
    let stream = Stream::create();
    allocate(&place.gpu)?.free()?;
    let before = State::take();
    let gate = stream.hold();
    let memory = allocate(&place.gpu)?;
    support::bind(&memory, &stream)?;
    drop(memory);
    // Each attempt before and after the wait.
    let Some(shortage) = Shortage::of(&place.gpu, 4, codes::vulkan::OUT_OF_DEVICE_MEMORY)? else {
        gate.open();
        support::cuda::synchronize();
        place.gpu.collect();
        return Ok(());
    };
    for timeout in [Duration::from_millis(30), Duration::ZERO] {
        place.gpu.set_shortage_timeout(timeout);
        let begun = Instant::now();
        let error = refused(allocate(&place.gpu));
        assert!(begun.elapsed() >= timeout, "{error} after {:?}", begun.elapsed());
        assert!(error.to_string().contains("; the device may still use 1 freed allocation"), "{error}");
    }
    drop(shortage);
    gate.open();
    support::cuda::synchronize();
    place.gpu.collect();
    State::assert_unchanged(&before, "what was still in use");
    Ok(())
}

#[test]
fn a_pool_does_not_wait_longer_than_the_program_says_for_work_that_does_not_end() -> Result {
    let (_context, place) = (PrimaryContext::retain_and_push(0), Place::primary(NONE)?);
    if !only_imports_mapped(&place.gpu)? {
        return Ok(());
    }
    let pool = Pool::new(&place.gpu, PoolOptions::default().block_len(64 << 10).largest_chunk(64 << 10))?;
    let stream = Stream::create();
    let gate = stream.hold();
    // The device may have used the only piece of the only block.
    let _ = pool.allocate(64 << 10)?.device_ptr();
    place.gpu.set_shortage_timeout(Duration::from_millis(30));
    // A block for the same length, before and after the wait.
    let Some(shortage) = Shortage::of(&place.gpu, 2, codes::vulkan::OUT_OF_DEVICE_MEMORY)? else {
        gate.open();
        return Ok(());
    };
    let error = refused(pool.allocate(64 << 10));
    drop(shortage);
    assert!(error.to_string().contains("; the device may still use 1 freed allocation"), "{error}");
    gate.open();
    pool.allocate(64 << 10)?;
    Ok(())
}

/// The second block's allocation waits for memory that a blocked stream uses.
#[test]
fn a_pool_can_be_used_while_it_allocates_a_smaller_block_than_it_was_asked_for() -> Result {
    let (_context, place) = (PrimaryContext::retain_and_push(0), Place::primary(NONE)?);
    if !only_imports_mapped(&place.gpu)? {
        return Ok(());
    }
    // No heap has so much: the block is as small as the chunk needs.
    let pool = Pool::new(&place.gpu, PoolOptions::default().block_len(128 << 30))?;
    let (stream, memory) = (Stream::create(), Memory::allocate(&place.gpu, LEN, MemoryKind::Mapped)?);
    support::bind(&memory, &stream)?;
    let gate = stream.hold();
    drop(memory);
    place.gpu.set_shortage_timeout(Duration::from_secs(60));
    let Some(shortage) = Shortage::of(&place.gpu, 1, codes::vulkan::OUT_OF_DEVICE_MEMORY)? else {
        gate.open();
        return Ok(());
    };
    let refused = Calls::of("vkAllocateMemory");
    thread::scope(|scope| {
        let allocated = scope.spawn(|| pool.allocate(48 << 10).map(drop));
        while refused.count() == Some(0) && !allocated.is_finished() {
            thread::yield_now();
        }
        // Under a lock that the allocation holds, this would wait for the gate.
        assert_eq!(pool.managed_bytes(), 0);
        gate.open();
        assert!(allocated.join().is_ok_and(|result| result.is_ok()), "the smaller block");
    });
    drop(shortage);
    Ok(())
}

#[test]
fn running_out_with_nothing_to_release_is_an_error_with_the_sizes_and_otherwise_tried_twice() -> Result {
    let Some(layer) = support::vklayer() else {
        return support::skip("needs the fault layer (VKGDR_TEST_LAYERS=faults or validation)");
    };
    let place = Place::plain(NONE)?;
    if !only_imports_mapped(&place.gpu)? {
        return Ok(());
    }
    for (function, code, token) in [
        ("vkAllocateMemory", codes::vulkan::OUT_OF_DEVICE_MEMORY, "VK_ERROR_OUT_OF_DEVICE_MEMORY"),
        ("vkAllocateMemory", codes::vulkan::OUT_OF_HOST_MEMORY, "VK_ERROR_OUT_OF_HOST_MEMORY"),
        ("vkMapMemory", codes::vulkan::MEMORY_MAP_FAILED, "VK_ERROR_MEMORY_MAP_FAILED"),
    ] {
        let calls = layer.calls(Some(function));
        layer.fail(function, 1, code);
        let error = refused(allocate(&place.gpu)).to_string();
        layer.clear_faults();
        assert!(
            error.starts_with(&format!("{function} failed ({token}): requested 1 MiB of mapped memory; ")),
            "{error}"
        );
        assert!(error.contains("the heap has "), "{error}");
        assert_eq!(layer.calls(Some(function)), calls + 1, "tried again although nothing was released");
    }
    let stream = Stream::create();
    let memory = allocate(&place.gpu)?;
    support::bind(&memory, &stream)?;
    let gate = stream.hold();
    drop(memory);
    let calls = layer.calls(Some("vkAllocateMemory"));
    (1..=2).for_each(|nth| layer.fail("vkAllocateMemory", nth, codes::vulkan::OUT_OF_DEVICE_MEMORY));
    let (_, allocated) = waits(gate, "vkAllocateMemory", || Ok(allocate(&place.gpu)))?;
    layer.clear_faults();
    assert_says(&refused(allocated), &["VK_ERROR_OUT_OF_DEVICE_MEMORY"]);
    assert_eq!(layer.calls(Some("vkAllocateMemory")), calls + 2);
    Ok(())
}
