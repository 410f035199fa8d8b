//! Processes under limits of the system: too few descriptors, too little address space, files too short.
#![expect(unsafe_code, reason = "closes a descriptor")]

use std::os::fd::AsRawFd;

use support::resources::{Resource, limit};
use support::state::State;
use support::{Result, child, device_read, host_read, host_write, pattern, supported};
use vkgdr::vulkan::Semaphore;
use vkgdr::{CopyPolicy, Error, Memory, MemoryKind, Pool, PoolOptions, Vkgdr};

use crate::{MAPPED, NONE, SIZE};

/// Allocates until an allocation fails, which must be for lack of descriptors and must name the limit.
fn allocate_until_refused(gpu: &Vkgdr, kind: MemoryKind) -> Result<Vec<Memory>> {
    let mut memories = Vec::new();
    loop {
        match Memory::allocate(gpu, 4096, kind) {
            Ok(memory) => memories.push(memory),
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("ulimit -n"), "{text}");
                assert!(!text.contains('\n'), "{text}");
                return Ok(memories);
            }
        }
        if memories.len() > 200 {
            return Err("200 allocations and no end".into());
        }
    }
}

/// Timeline semaphores, which two calls share by a descriptor: each is refused in turn, and both name the limit.
fn check_semaphores(gpu: &Vkgdr) -> Result {
    if !gpu.supports_semaphores() {
        return Ok(());
    }
    let mut taken: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    let mut refused = 0;
    while let Err(error) = Semaphore::new(gpu, 0) {
        assert!(error.to_string().contains("ulimit -n"), "{error}");
        refused += 1;
        taken.pop().ok_or("no semaphore, although no file is open")?;
    }
    assert!(refused > 1, "a semaphore needs more than one descriptor");
    Ok(())
}

#[test]
fn with_64_descriptors_errors_name_the_limit_and_leave_nothing() -> Result {
    if support::simcuda().is_none() {
        return support::skip("the descriptors that a real driver opens for itself are not known");
    }
    child::afresh(|| {
        let (_context, gpu) = support::open(NONE)?;
        limit(Resource::Nofile, 64);
        let warm_up = Memory::allocate(&gpu, 4096, MAPPED)?;
        warm_up.write_with(CopyPolicy::Dma, 0, &[1_u8; 64])?;
        drop(warm_up);
        let before = State::take();
        for kind in supported(&gpu, &MemoryKind::ALL) {
            let mut memories = allocate_until_refused(&gpu, kind)?;
            let memory = memories.pop().ok_or("no allocation succeeded")?;
            // Existing memory keeps working without free descriptors.
            let taken: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
            assert!(matches!(memory.export_fd(), Err(error) if error.to_string().contains("ulimit -n")));
            if kind.has_host_view() {
                host_write(&memory, 0, &pattern(4096, 2))?;
                assert!(host_read(&memory, 0, 4096)? == pattern(4096, 2));
            }
            memory.write_with(CopyPolicy::Dma, 0, &pattern(4096, 3))?;
            assert!(device_read(memory.device_ptr(), 4096) == pattern(4096, 3));
            let pool = Pool::new(&gpu, PoolOptions::new(kind))?;
            let refused = pool.allocate(64);
            assert!(matches!(&refused, Err(error) if error.to_string().contains("ulimit -n")), "{refused:?}");
            drop((pool, taken));
            // Allocations succeed again after a free, and under a higher limit.
            memory.free()?;
            Memory::allocate(&gpu, 4096, kind)?.free()?;
            limit(Resource::Nofile, 256);
            memories.extend([Memory::allocate(&gpu, 4096, kind)?, Memory::allocate(&gpu, 4096, kind)?]);
            memories.last().ok_or("none")?.export_fd()?;
            drop(memories);
            limit(Resource::Nofile, 64);
            check_semaphores(&gpu)?;
            State::assert_unchanged(&before, &kind.to_string());
        }
        Ok(())
    })
}

#[test]
fn without_a_descriptor_the_first_open_is_an_error_and_the_next_one_works() -> Result {
    child::afresh(|| {
        let lowest = std::fs::File::open("/dev/null")?.as_raw_fd();
        limit(Resource::Nofile, u64::try_from(lowest)?);
        let refused = Vkgdr::open(0, NONE);
        limit(Resource::Nofile, 256);
        match refused {
            // The error may name any library or call that ran out of descriptors first.
            Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
            Ok(_) => eprintln!("the drivers opened all that they need before"),
        }
        match Vkgdr::open_primary_context(0, NONE) {
            Ok(gpu) => Memory::allocate(&gpu, 4096, MAPPED)?.free()?,
            // cudarc and the loaders may cache the failure to load a library; then the error must be the same.
            Err(error) => assert!(matches!(error, Error::Library { .. }), "{error}"),
        }
        Ok(())
    })
}

/// What the program prints would be written to the memory.
#[test]
fn host_memory_takes_no_number_of_a_closed_standard_stream() -> Result {
    child::afresh(|| {
        let gpu = Vkgdr::open_primary_context(0, NONE)?;
        // SAFETY: nothing reads the standard input.
        assert_eq!(unsafe { libc::close(0) }, 0);
        let memory = Memory::allocate(&gpu, SIZE, MemoryKind::Host)?;
        assert!(std::fs::read_link("/proc/self/fd/0").is_err(), "the memory's file is the standard input");
        host_write(&memory, 0, &pattern(SIZE, 1))
    })
}

#[test]
fn a_search_for_vulkan_without_descriptors_is_not_remembered() -> Result {
    if support::simcuda().is_none() {
        return support::skip("there may be no Vulkan driver");
    }
    child::afresh(|| {
        // Loads CUDA.
        vkgdr::device_count()?;
        let lowest = std::fs::File::open("/dev/null")?.as_raw_fd();
        let before = limit(Resource::Nofile, u64::try_from(lowest)?);
        let refused = Vkgdr::open_primary_context(0, NONE);
        limit(Resource::Nofile, before);
        assert!(matches!(&refused, Err(error) if error.to_string().contains("ulimit -n")), "{refused:?}");
        let gpu = Vkgdr::open_primary_context(0, NONE)?;
        assert!(!gpu.memory_types().is_empty(), "a handle without Vulkan");
        Ok(())
    })
}

/// Bytes of address space in use.
fn address_space() -> Result<u64> {
    const PAGE: u64 = 4096;
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    Ok(pages.split(' ').next().ok_or("no size")?.parse::<u64>()? * PAGE)
}

#[test]
fn registered_pages_that_the_system_refuses_name_the_call_and_leave_nothing() -> Result {
    child::afresh(refuse_registered_pages)
}

fn refuse_registered_pages() -> Result {
    const LEN: usize = 64 << 20;
    let (_context, gpu) = support::open(NONE)?;
    let allocate = || Memory::allocate(&gpu, LEN, MemoryKind::Host);
    allocate()?.free()?;
    let before = State::take();
    let descriptor = u64::try_from(std::fs::File::open("/dev/null")?.as_raw_fd())?;
    let cases = [
        // First, since its limit is computed from what is mapped now: later the driver's threads have mapped more.
        (Resource::As, address_space()? + (LEN / 2) as u64, "mmap", libc::ENOMEM, "ulimit -v"),
        (Resource::Nofile, descriptor, "memfd_create", libc::EMFILE, "ulimit -n"),
        (Resource::Fsize, (LEN / 2).try_into()?, "ftruncate", libc::EFBIG, "File too large"),
    ];
    for (which, most, call, errno, remedy) in cases {
        let unlimited = limit(which, most);
        let refused = allocate();
        limit(which, unlimited);
        let as_expected =
            |error: &Error| matches!(error, Error::System { operation, code } if *operation == call && *code == errno);
        assert!(refused.as_ref().is_err_and(as_expected), "{call}: {refused:?}");
        assert!(refused.is_err_and(|error| error.to_string().contains(remedy)), "{call}");
        State::assert_unchanged(&before, call);
        allocate()?.free()?;
    }
    Ok(())
}
