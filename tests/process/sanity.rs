//! The cases of gdrcopy's sanity suite (tests/sanity.cpp in gdrcopy, up to 2.5), under the same names: they check for
//! allocated and imported memory what gdrcopy checks for pinned and mapped memory.
//!
//! gdrcopy runs most of them twice, for memory of `cuMemAlloc` (`…_cumemalloc`) and of `cuMemCreate` (`…_vmmalloc`).
//! Here they run for each kind with a host view. Not included:
//!
//! * `basic_with_tokens`, `invalidation_fork_child_gdr_pin_parent_with_tokens`: the tokens belong to GPUDirect RDMA and a
//!   pinning kernel module. Here nothing is pinned, and there are no tokens.
//! * The half of `invalidation_access_after_free` that accesses a pointer after the free: safe Rust rejects it at compile
//!   time (the example of [`vkgdr::Memory::free`]), Python raises (ffi/python/tests/memory/test_use_after_free.py), and
//!   the C header documents the lifetime of an address.
#![expect(unsafe_code, reason = "forks, imports what was exported, and uses pointers as gdrcopy's cases do")]

use std::fs::{File, read_to_string};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;

use support::fork::{assert_forked, in_child};
use support::ledger::Live;
use support::socket::{receive_descriptor, send_descriptor};
use support::{HOST_VIEWS, Result, child, cuda, device_read, host_read, host_write, pattern, simcuda, supported};
use vkgdr::{MapMode, Memory, MemoryKind, OpenFlags, Pool, PoolOptions, Vkgdr};

const NONE: OpenFlags = OpenFlags::empty();
/// The size used by gdrcopy: four of its pages and 16 bytes.
const SIZE: usize = 256 * 1024 + 16;

/// Opens the GPU and runs a check for each kind with a host view. At the end no object is left.
fn each_kind(check: impl Fn(&Vkgdr, MemoryKind) -> Result) -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let before = Live::now();
    for kind in supported(&gpu, &HOST_VIEWS) {
        check(&gpu, kind)?;
    }
    assert_eq!(Live::now(), before);
    Ok(())
}

/// Memory that shares the bytes of another, like a second mapping in gdrcopy.
fn second(gpu: &Vkgdr, memory: &Memory) -> Result<Memory> {
    Ok(support::import(gpu, memory.export_fd()?, memory)?)
}

/// gdrcopy pins and unpins a buffer; here memory is allocated and freed.
#[test]
fn basic() -> Result {
    each_kind(|gpu, kind| {
        let memory = Memory::allocate(gpu, SIZE, kind)?;
        assert_ne!(memory.device_ptr(), 0);
        assert!(memory.host_ptr().is_some());
        Ok(memory.free()?)
    })
}

/// gdrcopy refuses a mapping that does not begin at a GPU page, and a page shared by two buffers outlives the first
/// that is freed. Here a region may begin at any byte, and chunks of a block outlive each other.
#[test]
fn basic_unaligned_mapping() -> Result {
    each_kind(|gpu, kind| {
        let pool = Pool::new(gpu, PoolOptions::new(kind).block_len(64 << 10).largest_chunk(64 << 10))?;
        let (first, second) = (pool.allocate(4)?, pool.allocate(4100)?);
        let unaligned = second.slice(3..4099)?;
        for round in 0..2 {
            host_write(&unaligned, 0, &pattern(4096, round))?;
            assert!(device_read(unaligned.device_ptr(), 4096) == pattern(4096, round));
        }
        first.free()?;
        host_write(&unaligned, 0, &[9])?;
        assert_eq!(device_read(unaligned.device_ptr(), 1), [9]);
        Ok(())
    })
}

/// Buffers smaller than a GPU page, each mapped separately.
#[test]
fn basic_small_buffers_mapping() -> Result {
    each_kind(|gpu, kind| {
        let sizes = [1, 4, 15, 64, 4095];
        let memories: Vec<_> =
            sizes.iter().map(|&len| Memory::allocate(gpu, len, kind)).collect::<vkgdr::Result<_>>()?;
        for (seed, memory) in (0..).zip(&memories) {
            host_write(memory, 0, &pattern(memory.len(), seed))?;
        }
        for (seed, memory) in (0..).zip(&memories) {
            assert!(device_read(memory.device_ptr(), memory.len()) == pattern(memory.len(), seed), "{memory:?}");
            assert!(memory.slice(..=memory.len()).is_err());
        }
        Ok(())
    })
}

/// A walking bit is written in every way, at word-aligned, byte-aligned and unaligned offsets, and read back in every
/// way.
#[test]
fn data_validation() -> Result {
    let walking: Vec<u32> = (0..32).map(|bit| 1 << bit).cycle().take(SIZE / 4).collect();
    let bytes: Vec<u8> = walking.iter().flat_map(|word| word.to_ne_bytes()).collect();
    each_kind(|gpu, kind| {
        let memory = Memory::allocate(gpu, SIZE, kind)?;
        let clear = || -> Result {
            cuda::memset_d8(memory.device_ptr(), 0xa5, SIZE);
            cuda::synchronize();
            Ok(memory.invalidate(..)?)
        };
        clear()?;
        let mut whole = memory.slice(..)?;
        // SAFETY: within the memory, and no device work is pending on it.
        unsafe { whole.as_mut_slice::<u32>() }?.copy_from_slice(&walking);
        memory.flush(..)?;
        assert!(device_read(memory.device_ptr(), SIZE) == bytes, "stored through the pointer, read by the driver");
        for offset in [0, 5 * 4, 11] {
            clear()?;
            let part = &bytes[..SIZE - offset];
            host_write(&memory, offset, part)?;
            assert!(device_read(memory.device_ptr() + offset as u64, part.len()) == part, "written at {offset}");
            assert!(host_read(&memory, offset, part.len())? == part, "written and read at {offset}");
            assert!(device_read(memory.device_ptr(), offset) == vec![0xa5; offset], "before {offset}");
        }
        Ok(())
    })
}

/// In gdrcopy closing the handle unmaps, and an access faults. Here memory keeps its handle alive: closing early is
/// harmless.
#[test]
fn invalidation_access_after_gdr_close() -> Result {
    each_kind(|_, kind| {
        let gpu = Vkgdr::open(0, NONE)?;
        let memory = Memory::allocate(&gpu, 64, kind)?;
        drop(gpu);
        host_write(&memory, 0, &[7; 64])?;
        assert_eq!(device_read(memory.device_ptr(), 64), [7; 64]);
        Ok(())
    })
}

/// After the free the address is unmapped: an access faults instead of reading bytes of other memory.
#[test]
fn invalidation_access_after_free() -> Result {
    if support::simcuda().is_none() {
        return support::skip("a real driver may unmap freed memory later");
    }
    each_kind(|gpu, kind| {
        let memory = Memory::allocate(gpu, SIZE, kind)?;
        let address = memory.host_ptr().ok_or("no host view")?.addr().get();
        assert!(is_mapped(address)?);
        memory.free()?;
        assert!(!is_mapped(address)?, "{address:#x} is still mapped");
        Ok(())
    })
}

fn is_mapped(address: usize) -> Result<bool> {
    let contains = |line: &str| -> Option<bool> {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        let parse = |text| usize::from_str_radix(text, 16).ok();
        Some((parse(start)?..parse(end)?).contains(&address))
    };
    Ok(read_to_string("/proc/self/maps")?.lines().any(|line| contains(line) == Some(true)))
}

/// Two mappings of the same bytes: both see what either writes, and one outlives the other.
#[test]
fn invalidation_two_mappings() -> Result {
    each_kind(|gpu, kind| {
        let first = Memory::allocate(gpu, SIZE, kind)?;
        let other = second(gpu, &first)?;
        assert_ne!((first.host_ptr(), first.device_ptr()), (other.host_ptr(), other.device_ptr()));
        host_write(&first, 0, &pattern(SIZE, 1))?;
        assert!(host_read(&other, 0, SIZE)? == pattern(SIZE, 1));
        first.free()?;
        assert!(host_read(&other, 0, SIZE)? == pattern(SIZE, 1));
        host_write(&other, 0, &pattern(SIZE, 2))?;
        assert!(device_read(other.device_ptr(), SIZE) == pattern(SIZE, 2));
        Ok(())
    })
}

/// The parent frees memory that the child has inherited: every operation of the child is refused, and it cannot access
/// the memory that the parent allocates next.
#[test]
fn invalidation_fork_access_after_free() -> Result {
    each_kind(|gpu, kind| {
        let memory = Memory::allocate(gpu, SIZE, kind)?;
        let inherited = memory.slice(..)?;
        drop(memory);
        let next = Memory::allocate(gpu, SIZE, kind)?;
        host_write(&next, 0, &pattern(SIZE, 3))?;
        in_child(|| {
            assert_forked(inherited.map(MapMode::ReadWrite, ..), "map");
            if inherited.is_coherent() {
                inherited.flush(..)?;
            } else {
                assert_forked(inherited.flush(..), "flush");
            }
            // NVIDIA's driver does not support its memory in a forked child.
            if simcuda().is_some() {
                inherited.write(0, &[0xff_u8; SIZE])?;
            }
            Ok(())
        })?;
        assert!(host_read(&next, 0, SIZE)? == pattern(SIZE, 3));
        Ok(())
    })
}

/// A fork after mapping: the library refuses the child the mapping, and the parent's stays usable.
#[test]
fn invalidation_fork_after_gdr_map() -> Result {
    each_kind(|gpu, kind| {
        let memory = Memory::allocate(gpu, SIZE, kind)?;
        let mut guard = memory.map(MapMode::ReadWrite, ..)?;
        guard.write(0, &[1_u8; SIZE])?;
        in_child(|| {
            assert_forked(memory.map(MapMode::Read, ..), "map");
            Ok(())
        })?;
        guard.write(0, &[2_u8; 8])?;
        guard.finish()?;
        assert_eq!(device_read(memory.device_ptr(), 9), [2, 2, 2, 2, 2, 2, 2, 2, 1]);
        Ok(())
    })
}

/// The child tries to map the parent's memory: refused, through a descriptor too.
#[test]
fn invalidation_fork_child_gdr_map_parent() -> Result {
    each_kind(|gpu, kind| {
        let memory = Memory::allocate(gpu, SIZE, kind)?;
        let descriptor = memory.export_fd()?;
        in_child(|| {
            assert_forked(memory.export_fd(), "export_fd");
            // SAFETY: exported from memory of this kind and length.
            assert_forked(unsafe { Memory::import_fd(gpu, descriptor, SIZE, kind) }, "import_fd");
            assert_forked(Vkgdr::open(0, NONE), "open");
            Ok(())
        })
    })
}

/// Both map and free: a free in the child does not affect the parent.
#[test]
fn invalidation_fork_map_and_free() -> Result {
    each_kind(|gpu, kind| {
        let memory = std::cell::RefCell::new(Some(Memory::allocate(gpu, SIZE, kind)?));
        in_child(|| Ok(memory.take().ok_or("taken")?.free()?))?;
        let memory = memory.take().ok_or("the child took the parent's memory")?;
        host_write(&memory, 0, &pattern(SIZE, 5))?;
        assert!(device_read(memory.device_ptr(), SIZE) == pattern(SIZE, 5));
        Ok(memory.free()?)
    })
}

/// The other process of the next tests: receives a descriptor on standard input and answers through the memory.
fn answer(kind: &str) -> Result {
    let socket: OwnedFd = std::io::stdin().as_fd().try_clone_to_owned()?;
    let gpu = Vkgdr::open_primary_context(0, NONE)?;
    let kind = MemoryKind::ALL.into_iter().find(|known| known.to_string() == kind).ok_or("no such kind")?;
    // SAFETY: the parent exported it from memory of this kind and length, on the same GPU.
    let memory = unsafe { Memory::import_fd(&gpu, receive_descriptor(socket.as_fd())?, SIZE, kind) }?;
    assert!(host_read(&memory, 0, SIZE)? == pattern(SIZE, 6));
    host_write(&memory, 0, &pattern(SIZE, 7))?;
    memory.free()?;
    child::say("answered");
    Ok(())
}

/// gdrcopy's descriptor covers everything a process has pinned, so that another process must not pin or map with it.
/// Ours covers one allocation, and passing it is how memory is shared: the receiver sees these bytes only.
#[test]
fn invalidation_unix_sock_shared_fd_gdr_map() -> Result {
    if let Some(kind) = child::role() {
        return answer(&kind);
    }
    each_kind(|gpu, kind| {
        let memory = Memory::allocate(gpu, SIZE, kind)?;
        let other = Memory::allocate(gpu, SIZE, kind)?;
        host_write(&memory, 0, &pattern(SIZE, 6))?;
        host_write(&other, 0, &pattern(SIZE, 8))?;
        let (ours, theirs) = UnixStream::pair()?;
        send_descriptor(ours.as_fd(), memory.export_fd()?.as_fd())?;
        let mut command = child::command(&kind.to_string())?;
        command.stdin(OwnedFd::from(theirs));
        assert_eq!(child::run(command)?, ["answered"]);
        assert!(host_read(&memory, 0, SIZE)? == pattern(SIZE, 7));
        assert!(device_read(memory.device_ptr(), SIZE) == pattern(SIZE, 7));
        assert!(host_read(&other, 0, SIZE)? == pattern(SIZE, 8));
        Ok(())
    })
}

/// Importing a descriptor that is not memory is refused and leaves nothing behind.
#[test]
fn invalidation_unix_sock_shared_fd_gdr_pin_buffer() -> Result {
    if simcuda().is_none() {
        return support::skip("the response of a real driver to a foreign descriptor is unspecified");
    }
    each_kind(|gpu, kind| {
        let (ours, theirs) = UnixStream::pair()?;
        send_descriptor(ours.as_fd(), File::open("/dev/null")?.as_fd())?;
        let foreign = receive_descriptor(theirs.as_fd())?;
        // SAFETY: not met on purpose; the simulated driver refuses descriptors that it cannot map.
        let refused = unsafe { Memory::import_fd(gpu, foreign, SIZE, kind) };
        assert!(refused.is_err(), "{refused:?}");
        Ok(())
    })
}

/// Threads: one allocates; one sets up and another tears down; two share a buffer at the same time; one cleans up.
#[test]
fn basic_child_thread_pins_buffer() -> Result {
    fn use_it(memory: &Memory, seed: u64) {
        let done = host_write(memory, 0, &pattern(memory.len(), seed));
        done.unwrap_or_else(|error| panic!("{error}"));
    }
    let (_context, gpu) = support::open(NONE)?;
    let primary = Vkgdr::open_primary_context(0, NONE)?;
    let before = Live::now();
    for kind in supported(&gpu, &HOST_VIEWS) {
        let allocate = || Memory::allocate(&primary, 16 << 16, kind);
        let joined = |result: thread::Result<vkgdr::Result<Memory>>| result.map_err(|_| "a thread panicked");
        // No context is current there.
        let memory = joined(thread::scope(|scope| scope.spawn(allocate).join()))??;
        use_it(&memory, 1);
        assert!(device_read(memory.device_ptr(), memory.len()) == pattern(memory.len(), 1));
        let (first, other) = (second(&gpu, &memory)?, second(&gpu, &memory)?);
        thread::scope(|scope| {
            scope.spawn(|| use_it(&first, 2));
            scope.spawn(|| drop(other));
        });
        assert!(host_read(&memory, 0, memory.len())? == pattern(memory.len(), 2));
        let freed = thread::scope(|scope| scope.spawn(|| (memory.free(), first.free())).join());
        let (one, two) = freed.map_err(|_| "a thread panicked")?;
        one.and(two)?;
    }
    assert_eq!(Live::now(), before);
    Ok(())
}
