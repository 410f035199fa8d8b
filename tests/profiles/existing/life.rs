//! From a mapping's making to its end: shared pages, freed memory, ended contexts, threads, descriptors, forks.

use std::os::fd::AsRawFd;

use support::cuda::{CudaMemory, PrimaryContext, memset_d8, reset_primary, synchronize};
use support::ledger::Calls;
use support::resources::{Resource, Snapshot, limit};
use support::{Result, assert_says, device_read, fork, host_read, host_write, pattern, refused};
use vkgdr::{CopyPolicy, Error, MappingFlags, Memory, NoMapping, Vkgdr};

use super::{NONE, PAGE, of, open};
use crate::under;

#[test]
fn mappings_of_one_allocation_share_its_pages_and_leave_nothing() -> Result {
    under("dma-buf", || {
        let (_context, gpu) = open()?;
        let exports = Calls::of("cuMemGetHandleForAddressRange");
        let memory = CudaMemory::device(8 * PAGE);
        let whole = of(&gpu, &memory)?;
        let before = Snapshot::take();
        let parts: Vec<_> = (0..100_u64)
            .map(|part| support::map_existing(&gpu, memory.address() + part * 1000, 5000, MappingFlags::empty()))
            .collect::<vkgdr::Result<_>>()?;
        Snapshot::assert_unchanged(&before);
        exports.assert(1, "one export serves all mappings");
        let at =
            |mapping: &Memory| mapping.host_ptr().map(|at| (at.addr().get() as u64).wrapping_sub(mapping.device_ptr()));
        assert!(parts.iter().all(|part| at(part) == at(&whole)));
        // The pages stay until the last mapping goes.
        let last = parts[99].slice(..)?;
        drop((parts, whole));
        host_write(&last, 0, &[7; 5000])?;
        assert!(device_read(last.device_ptr(), 5000) == [7; 5000]);
        drop(last);
        let again = of(&gpu, &memory)?;
        exports.assert(2, "nothing was left to share");
        again.free()?;
        // Of a large allocation, only the pages of the range are mapped.
        let large = CudaMemory::device(40 << 20);
        let part = support::map_existing(&gpu, large.address() + 3 * PAGE as u64 + 5, PAGE, MappingFlags::empty())?;
        let inside = support::map_existing(&gpu, large.address() + 4 * PAGE as u64, 5, MappingFlags::empty())?;
        exports.assert(3, "the pages of the first range contain the second");
        host_write(&inside, 0, &[1, 2, 3, 4, 5])?;
        assert_eq!(host_read(&part, PAGE - 5, 5)?, [1, 2, 3, 4, 5]);
        Ok(())
    })
}

#[test]
fn a_mapping_knows_that_its_memory_was_freed_and_its_address_reused() -> Result {
    under("dma-buf", || {
        let (_context, gpu) = open()?;
        let len = 2 * PAGE;
        let memory = CudaMemory::device(len);
        memset_d8(memory.address(), 1, len);
        synchronize();
        let view = of(&gpu, &memory)?;
        assert!(view.is_current()?);
        let address = memory.address();
        drop(memory);
        assert!(!view.is_current()?);
        assert_eq!(host_read(&view, 0, 2)?, [1, 1], "the CPU still sees the old pages");
        // Until the address is reused.
        let others: Vec<_> = (0..64).map(|_| CudaMemory::device(len)).collect();
        assert!(others.iter().any(|other| other.address() == address), "the address was not reused");
        assert!(!view.is_current()?);
        assert!(matches!(refused(view.dma_buf()), Error::NoMapping { reason: NoMapping::Freed, .. }));
        memset_d8(address, 2, len);
        synchronize();
        assert_eq!(host_read(&view, 0, 2)?, [1, 1]);
        let next = support::map_existing(&gpu, address, len, MappingFlags::empty())?;
        assert_eq!(host_read(&next, 0, 2)?, [2, 2], "a new mapping has pages of its own");
        host_write(&view, 0, &[9])?;
        assert_eq!(host_read(&next, 0, 2)?, [2, 2]);
        // The mapping outlives its handle, its memory and the context.
        drop((gpu, next, others));
        Ok(())
    })
}

#[test]
fn a_mapping_outlives_the_context_and_the_handle() -> Result {
    under("dma-buf", || {
        support::logs::capture();
        let _context = PrimaryContext::retain_and_push(0);
        let gpu = Vkgdr::open(0, NONE)?;
        let view = of(&gpu, &std::mem::ManuallyDrop::new(CudaMemory::device(PAGE)))?;
        host_write(&view, 0, &[5; 100])?;
        let region = view.slice(10..20)?;
        drop(gpu);
        reset_primary();
        assert_eq!(host_read(&view, 0, 100)?, [5; 100]);
        assert!(!view.is_current()?);
        drop(view);
        assert_eq!(host_read(&region, 0, 10)?, [5; 10]);
        drop(region);
        assert_eq!(support::logs::captured(), [""; 0]);
        Ok(())
    })
}

#[test]
fn mappings_come_and_go_on_many_threads() -> Result {
    under("dma-buf", || {
        const THREADS: usize = 8;
        let gpu = Vkgdr::open_primary_context(0, NONE)?;
        let _context = PrimaryContext::retain_and_push(0);
        let memory = CudaMemory::device(THREADS * PAGE);
        let (gpu, address) = (&gpu, memory.address());
        std::thread::scope(|scope| {
            let work = |thread: usize| {
                move || -> vkgdr::Result<()> {
                    for round in 0..50_u64 {
                        let own =
                            support::map_existing(gpu, address + (thread * PAGE) as u64, PAGE, MappingFlags::empty())?;
                        let bytes = pattern(PAGE, round * 8 + thread as u64);
                        own.write(0, &bytes)?;
                        let all = support::map_existing(gpu, address, THREADS * PAGE, MappingFlags::empty())?;
                        drop(own);
                        let mut read = vec![0; PAGE];
                        all.read(thread * PAGE, &mut read)?;
                        assert!(read == bytes, "thread {thread}, round {round}");
                    }
                    Ok(())
                }
            };
            let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(work(thread))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Err(Error::Freed)))
        })?;
        Ok(())
    })
}

#[test]
fn a_process_without_descriptors_gets_an_error_and_can_try_again() -> Result {
    under("dma-buf", || {
        let (_context, gpu) = open()?;
        let memory = CudaMemory::device(PAGE);
        let full: Vec<_> = {
            let next = std::fs::File::open("/dev/null")?.as_raw_fd();
            limit(Resource::Nofile, u64::try_from(next)? + 8);
            std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect()
        };
        let error = refused(of(&gpu, &memory));
        assert_says(&error, &["cuMemGetHandleForAddressRange", "CUDA_ERROR_OPERATING_SYSTEM", "ulimit -n"]);
        drop(full);
        of(&gpu, &memory)?.free()?;
        Ok(())
    })
}

#[test]
fn a_forked_child_leaves_mappings_to_its_parent() -> Result {
    under("dma-buf", || {
        let (_context, gpu) = open()?;
        let memory = CudaMemory::device(PAGE);
        let view = of(&gpu, &memory)?;
        host_write(&view, 0, &[3; 10])?;
        fork::in_child(|| {
            fork::assert_forked(of(&gpu, &memory), "of");
            fork::assert_forked(view.is_current(), "is_current");
            fork::assert_forked(view.dma_buf(), "dma_buf");
            fork::assert_forked(gpu.supports_existing(), "supports_existing");
            // Shared pages, as those of Vulkan's memory.
            assert_eq!(host_read(&view, 0, 10)?, [3; 10]);
            view.write_with(CopyPolicy::Cpu, 0, &[4_u8; 10])?;
            Ok(())
        })?;
        assert_eq!(device_read(memory.address(), 10), [4; 10]);
        let region = view.slice(..)?;
        fork::in_child(move || {
            drop(region);
            Ok(())
        })?;
        assert_eq!(host_read(&view, 0, 10)?, [4; 10]);
        Ok(())
    })
}
