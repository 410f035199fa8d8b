//! A forked child calls no driver: operations that need one are refused, and inherited objects are left to the parent.
#![expect(unsafe_code, reason = "refused calls take streams and descriptors")]

use std::cell::RefCell;
use std::ptr::null_mut;

use support::cuda::Stream;
use support::fork::{assert_forked, in_child, in_quiet_child};
use support::ledger::Live;
use support::{
    HOST_VIEWS, Result, assert_says, child, device_read, free, host_read, host_write, pattern, refused, simcuda,
    supported,
};
use vkgdr::cudarc::driver::{CudaContext, sys};
use vkgdr::{
    CopyPolicy, CopyPtr, DropPolicy, Error, FillPattern, MapMode, Memory, MemoryKind, Pool, PoolOptions, RawMemory,
    StreamRef, Vkgdr,
};

use crate::{FORCED, MAPPED, NONE, SIZE};

#[test]
fn a_forked_child_is_refused_every_operation_of_a_driver() -> Result {
    let (_context, gpu) = support::open(FORCED)?;
    let primary = Vkgdr::open_primary_context(0, NONE)?;
    let cudarc_stream = CudaContext::new(0)?.new_stream()?;
    let stream = Stream::create();
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    let coherent = Memory::allocate(&primary, SIZE, MAPPED)?;
    let raw = RawMemory::allocate(&gpu, SIZE, MAPPED)?;
    // SAFETY: the stream outlives its uses.
    let stream_ref = unsafe { memory.stream(stream.raw()) }?;
    let event = stream_ref.record()?;
    let fd = memory.export_fd()?;
    let raw = RefCell::new(raw);
    let pool = Pool::new(&gpu, PoolOptions::new(MAPPED))?;
    drop(pool.allocate(4096)?);
    assert!(!vkgdr::is_forked());
    assert_says(&Error::Forked, &["forked after the GPU was opened", "only after exec", "multiprocessing's \"spawn\""]);
    in_quiet_child(|| {
        assert!(vkgdr::is_forked());
        assert_forked(Vkgdr::open(0, NONE), "open");
        assert_forked(Vkgdr::open_current_context(NONE), "open_current_context");
        assert_forked(Vkgdr::open_primary_context(0, NONE), "open_primary_context");
        assert_forked(vkgdr::device_count(), "device_count");
        assert_forked(vkgdr::driver_version(), "driver_version");
        assert_forked(vkgdr::pointer_device(memory.device_ptr()), "pointer_device");
        assert_forked(gpu.pci_bus_id(), "pci_bus_id");
        assert_forked(gpu.memory_info(MAPPED), "memory_info");
        assert_forked(gpu.prepare_copies(), "prepare_copies");
        for kind in [MAPPED, MemoryKind::Host, MemoryKind::Device] {
            assert!(!gpu.supports(kind), "{kind} memory in a child");
        }

        assert_forked(Memory::allocate(&gpu, SIZE, MAPPED), "Memory::allocate");
        assert_forked(Memory::allocate(&primary, SIZE, MAPPED), "Memory::allocate in the primary context");
        assert_forked(RawMemory::allocate(&gpu, SIZE, MAPPED), "RawMemory::allocate");
        assert_forked(memory.export_fd(), "export_fd");
        // SAFETY: refused.
        assert_forked(unsafe { Memory::import_fd(&gpu, fd, SIZE, MAPPED) }, "import_fd");

        assert_forked(memory.flush(..), "flush");
        assert_forked(memory.invalidate(..), "invalidate");
        assert_forked(raw.borrow().flush(0, SIZE), "RawMemory::flush");
        assert_forked(raw.borrow().invalidate(0, SIZE), "RawMemory::invalidate");
        for memory in [&memory, &coherent] {
            assert_forked(memory.map(MapMode::Discard, ..), "map");
            for len in [0, 1] {
                assert_forked(memory.write_with(CopyPolicy::Dma, 0, &vec![1_u8; len]), "write_with");
                assert_forked(memory.read_with(CopyPolicy::Dma, 0, &mut vec![1_u8; len]), "read_with");
            }
            assert_forked(memory.wait_for_stream(), "wait_for_stream");
            assert_forked(memory.unbind_stream(), "unbind_stream");
            assert_forked(memory.bind_stream(&cudarc_stream), "bind_stream");
            // SAFETY: refused.
            assert_forked(unsafe { memory.bind_raw_stream(null_mut()) }, "bind_raw_stream");
            // SAFETY: refused.
            assert_forked(unsafe { memory.stream(null_mut()) }, "Memory::stream");
        }
        // SAFETY: refused.
        assert_forked(unsafe { StreamRef::in_current_context(null_mut()) }, "in_current_context");
        assert_forked(stream_ref.synchronize(), "synchronize");
        assert_forked(stream_ref.pointer_device(memory.device_ptr()), "StreamRef::pointer_device");
        assert_forked(stream_ref.record(), "record");
        assert_forked(stream_ref.wait(&event), "wait");
        let side = support::linear(CopyPtr::Device(memory.device_ptr()));
        for len in [0, 1] {
            // SAFETY: refused.
            assert_forked(unsafe { stream_ref.copy(side, side, support::row(len)) }, "copy");
            for value in [FillPattern::One(0), FillPattern::Two(0), FillPattern::Four(0)] {
                // SAFETY: refused.
                assert_forked(unsafe { stream_ref.fill(memory.device_ptr(), value, len) }, "fill");
            }
            let (to, from) = (memory.device_ptr(), coherent.device_ptr());
            // SAFETY: refused.
            let copied = unsafe { stream_ref.copy_between_contexts(to, from, coherent.context(), len) };
            assert_forked(copied, "copy_between_contexts");
        }
        for len in [4096, 100_000, 8 << 20] {
            assert_forked(pool.allocate(len), "Pool::allocate");
            assert_forked(pool.allocate_on(len, &cudarc_stream), "Pool::allocate_on");
            // SAFETY: refused.
            assert_forked(unsafe { pool.allocate_on_raw(len, cudarc_stream.cu_stream()) }, "Pool::allocate_on_raw");
        }
        assert_forked(Pool::new(&gpu, PoolOptions::default()), "Pool::new");
        pool.release_unused();
        pool.disable_caching();
        assert_eq!((pool.trim(0), pool.free_chunks(), pool.active_bytes()), (0, 0, 0));
        assert_forked(event.is_complete(), "is_complete");
        assert_forked(event.synchronize(), "Event::synchronize");
        in_child(|| {
            assert_forked(Vkgdr::open(0, NONE), "open, in a child of the child");
            Ok(())
        })
    })?;
    Ok(free(&mut raw.into_inner())?)
}

#[test]
fn a_forked_child_still_knows_what_it_was_told() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    let known = (gpu.name().to_owned(), gpu.uuid(), gpu.memory_types(), gpu.live_allocations());
    let device_ptr = memory.device_ptr();
    in_quiet_child(|| {
        assert_eq!((gpu.name().to_owned(), gpu.uuid(), gpu.memory_types(), gpu.live_allocations()), known);
        assert_eq!(memory.device_ptr(), device_ptr);
        assert_eq!(memory.drop_policy(), DropPolicy::WaitForContext);
        if memory.is_coherent() {
            memory.flush(..)?;
        } else {
            assert_forked(memory.flush(..), "flush");
        }
        Ok(())
    })
}

/// NVIDIA's driver does not support its memory in a forked child; host memory is registered pages.
#[test]
fn a_forked_child_shares_the_bytes_with_the_parent_and_its_device() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    for kind in supported(&gpu, &HOST_VIEWS) {
        let memory = Memory::allocate(&gpu, SIZE, kind)?;
        if !memory.is_coherent() || (kind == MAPPED && simcuda().is_none()) {
            continue;
        }
        host_write(&memory, 0, &pattern(SIZE, 2))?;
        in_quiet_child(|| {
            let mut seen = vec![0; SIZE];
            memory.read(0, &mut seen)?;
            memory.read_with(CopyPolicy::Auto, 0, &mut seen)?;
            assert!(seen == pattern(SIZE, 2), "{kind}");
            memory.write(0, &pattern(SIZE, 3))?;
            Ok(())
        })?;
        assert!(device_read(memory.device_ptr(), SIZE) == pattern(SIZE, 3), "{kind}: written by the child");
        host_write(&memory, 0, &pattern(SIZE, 4))?;
        assert!(device_read(memory.device_ptr(), SIZE) == pattern(SIZE, 4), "{kind}");
    }
    Ok(())
}

#[test]
fn a_forked_child_leaves_the_deferred_frees_alone() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let stream = Stream::create();
    let before = Live::now();
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    support::bind(&memory, &stream)?;
    let gate = stream.hold();
    gate.wait_until_reached();
    drop(memory);
    assert_eq!(gpu.deferred_frees(), 1);
    gate.open();
    stream.synchronize();
    in_quiet_child(|| {
        assert_eq!((gpu.collect(), gpu.deferred_frees()), (0, 1));
        Ok(())
    })?;
    assert_eq!((gpu.collect(), gpu.deferred_frees()), (1, 0));
    assert_eq!(Live::now(), before);
    Ok(())
}

#[test]
fn the_child_of_a_process_that_has_opened_nothing_may() -> Result {
    child::afresh(|| {
        let use_it = || -> Result {
            let gpu = Vkgdr::open_primary_context(0, NONE)?;
            let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
            host_write(&memory, 0, &pattern(SIZE, 3))?;
            assert!(host_read(&memory, 0, SIZE)? == pattern(SIZE, 3));
            Ok(memory.free()?)
        };
        in_child(use_it)?;
        // The parent is not marked as a child.
        use_it()
    })
}

/// Another library may have initialized the driver in the parent, which this crate cannot know.
#[test]
fn a_child_whose_parent_only_used_cuda_directly_is_told_to_exec() -> Result {
    child::afresh(|| {
        // SAFETY: no requirements beyond the argument.
        let code = unsafe { sys::cuInit(0) };
        assert_eq!(code as i32, 0);
        in_child(|| {
            assert!(!vkgdr::is_forked());
            let error = refused(Vkgdr::open(0, NONE));
            assert_says(&error, &["cuInit", "CUDA_ERROR_NOT_INITIALIZED", "exec", "spawn"]);
            Ok(())
        })
    })
}
