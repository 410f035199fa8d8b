//! The same bytes at the host's and the device's address, and in a forked process.
#![expect(unsafe_code, reason = "forks, and reads and writes through raw pointers")]

use std::ptr::NonNull;

use support::Result;
use support::cuda::{self, Context};
use support::driver::{self, DriverKind};
use vkgdr::{Memory, MemoryKind, OpenFlags, RawMemory, Vkgdr};

const LEN: usize = 4096 + 17;
/// The messages of forked processes through the shared memory; 0 until then.
const CHILD_WROTE: u8 = 1;
const DEVICE_WROTE: u8 = 2;
/// Seconds after which a hanging child is killed.
const PATIENCE: u32 = 60;

/// The bytes that one side writes in a round; they differ from those of other rounds and from their neighbours.
fn pattern(round: u8, len: usize) -> Vec<u8> {
    (0..=250).cycle().map(|byte: u8| byte ^ round).take(len).collect()
}

/// Writes through a host pointer byte by byte, without this crate's accessors.
fn write_through(pointer: NonNull<u8>, bytes: &[u8]) {
    for (index, &byte) in bytes.iter().enumerate() {
        // SAFETY: within the caller's memory.
        let target = unsafe { pointer.add(index) };
        // SAFETY: the memory is mapped; a volatile write may race with the device.
        unsafe { target.write_volatile(byte) };
    }
}

fn read_through(pointer: NonNull<u8>, len: usize) -> Vec<u8> {
    let read = |index| {
        // SAFETY: within the caller's memory.
        let source = unsafe { pointer.add(index) };
        // SAFETY: the memory is mapped; a volatile read may race with the device.
        unsafe { source.read_volatile() }
    };
    (0..len).map(read).collect()
}

fn read_by_device(memory: &Memory, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    cuda::memcpy_dtoh(&mut bytes, memory.device_ptr());
    bytes
}

fn host_ptr(memory: &Memory) -> Result<NonNull<u8>> {
    Ok(memory.host_ptr().ok_or("memory with a host view has no host pointer")?)
}

/// Runs a check on memory of every kind with a host view.
fn each_kind(flags: OpenFlags, check: impl Fn(&Memory) -> Result) -> Result {
    let _context = Context::create(0);
    let gpu = Vkgdr::open_current_context(flags)?;
    for kind in MemoryKind::ALL.into_iter().filter(|&kind| kind.has_host_view() && support::is_imported(&gpu, kind)) {
        check(&Memory::allocate(&gpu, LEN, kind)?)?;
    }
    Ok(())
}

#[test]
fn host_writes_are_seen_by_the_device_at_another_address() -> Result {
    each_kind(OpenFlags::empty(), |memory| {
        let host = host_ptr(memory)?;
        assert_ne!(host.addr().get() as u64, memory.device_ptr(), "both addresses are equal: the test proves nothing");
        for round in 0..3 {
            let bytes = pattern(round, LEN);
            write_through(host, &bytes);
            memory.flush(..)?;
            assert_eq!(read_by_device(memory, LEN), bytes, "{} memory, round {round}", memory.kind());
        }
        Ok(())
    })
}

#[test]
fn device_writes_are_seen_by_the_host_at_another_address() -> Result {
    each_kind(OpenFlags::empty(), |memory| {
        let host = host_ptr(memory)?;
        assert_ne!(host.addr().get() as u64, memory.device_ptr(), "both addresses are equal: the test proves nothing");
        for round in 1..4 {
            let bytes = pattern(round, LEN);
            cuda::memcpy_htod(memory.device_ptr(), &bytes);
            cuda::memset_d8(memory.device_ptr() + 100, round, 50);
            cuda::synchronize();
            memory.invalidate(..)?;
            let expected = [&bytes[..100], &[round; 50], &bytes[150..]].concat();
            assert_eq!(read_through(host, LEN), expected, "{} memory, round {round}", memory.kind());
        }
        Ok(())
    })
}

#[test]
fn both_sides_take_turns_with_memory_that_is_treated_as_non_coherent() -> Result {
    each_kind(OpenFlags::FORCE_NON_COHERENT, |memory| {
        let host = host_ptr(memory)?;
        for round in 1..4 {
            let bytes = pattern(round, LEN);
            write_through(host, &bytes);
            memory.flush(..)?;
            assert_eq!(read_by_device(memory, LEN), bytes);
            cuda::memset_d8(memory.device_ptr(), round, LEN);
            cuda::synchronize();
            memory.invalidate(..)?;
            assert_eq!(read_through(host, LEN), [round; LEN]);
        }
        Ok(())
    })
}

#[test]
fn raw_memory_is_the_same_bytes_on_both_sides() -> Result {
    let _context = Context::create(0);
    let gpu = Vkgdr::open_current_context(OpenFlags::empty())?;
    let mut memory = RawMemory::allocate(&gpu, LEN, MemoryKind::Mapped)?;
    let bytes = pattern(7, LEN);
    write_through(memory.host_ptr().ok_or("no host pointer")?, &bytes);
    memory.flush(0, LEN)?;
    let mut seen = vec![0; LEN];
    cuda::memcpy_dtoh(&mut seen, memory.device_ptr());
    assert_eq!(seen, bytes);
    // SAFETY: nothing uses the memory any more.
    unsafe { memory.free() }?;
    Ok(())
}

#[test]
fn two_memories_share_no_bytes() -> Result {
    each_kind(OpenFlags::empty(), |memory| {
        let other = Memory::allocate(memory.owner(), LEN, memory.kind())?;
        memory.fill(.., 0x11_u8)?;
        other.fill(.., 0x22_u8)?;
        memory.flush(..)?;
        other.flush(..)?;
        assert_eq!(read_by_device(memory, LEN), [0x11; LEN]);
        assert_eq!(read_by_device(&other, LEN), [0x22; LEN]);
        Ok(())
    })
}

/// Whether a forked process sees the same bytes at once, with a message if not. On a GPU it may not: NVIDIA's driver
/// does not support its memory in a forked child (CUDA C++ Programming Guide, "Initialization"), and the child would
/// have to flush non-coherent memory.
fn a_fork_shares(memory: &Memory) -> bool {
    let shared = driver::kind() == Some(DriverKind::Sim) && memory.is_coherent();
    if !shared {
        eprintln!("left out: {} memory is not known to be shared with a forked child", memory.kind());
    }
    shared
}

/// Forks. `child` runs in the child, which exits with its result; it may call async-signal-safe functions only.
///
/// Returns the child's process id.
fn fork(child: impl FnOnce() -> i32) -> Result<libc::pid_t> {
    // SAFETY: the child runs only `child`, which takes no lock that another thread may hold.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error().into()),
        0 => {
            // SAFETY: async-signal-safe; kills a hanging child.
            unsafe { libc::alarm(PATIENCE) };
            let code = child();
            // SAFETY: async-signal-safe; runs no destructor of the parent's.
            unsafe { libc::_exit(code) }
        }
        pid => Ok(pid),
    }
}

/// Waits for a child, which must end by `_exit(0)`.
#[track_caller]
fn join(pid: libc::pid_t) {
    let mut status = 0;
    // SAFETY: `status` is a valid output.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid, "{}", std::io::Error::last_os_error());
    assert!(libc::WIFEXITED(status), "the child was ended by signal {}", libc::WTERMSIG(status));
    assert_eq!(libc::WEXITSTATUS(status), 0, "the child's exit code");
}

#[test]
fn a_forked_childs_writes_are_seen_by_the_parent_and_its_device() -> Result {
    each_kind(OpenFlags::empty(), |memory| {
        if !a_fork_shares(memory) {
            return Ok(());
        }
        let host = host_ptr(memory)?;
        let bytes = pattern(9, LEN);
        memory.fill(.., 0_u8)?;
        let child = fork(|| {
            write_through(host, &bytes);
            0
        })?;
        join(child);
        assert_eq!(read_through(host, LEN), bytes, "the host's view of {} memory", memory.kind());
        assert_eq!(read_by_device(memory, LEN), bytes, "the device's view of {} memory", memory.kind());
        Ok(())
    })
}

#[test]
fn a_forked_child_sees_what_the_device_writes_later() -> Result {
    each_kind(OpenFlags::empty(), |memory| {
        if !a_fork_shares(memory) {
            return Ok(());
        }
        let host = host_ptr(memory)?;
        memory.fill(.., 0_u8)?;
        let child = fork(|| {
            write_through(host, &[CHILD_WROTE]);
            // SAFETY: mapped in the child as in the parent.
            while unsafe { host.read_volatile() } != DEVICE_WROTE {
                std::hint::spin_loop();
            }
            0
        })?;
        // SAFETY: mapped for as long as the memory lives.
        while unsafe { host.read_volatile() } != CHILD_WROTE {
            std::thread::yield_now();
        }
        cuda::memset_d8(memory.device_ptr(), DEVICE_WROTE, 1);
        cuda::synchronize();
        join(child);
        Ok(())
    })
}

#[test]
fn memory_outlives_a_child_that_was_forked_off_and_ended() -> Result {
    if driver::kind() != Some(DriverKind::Sim) {
        eprintln!("skipped: NVIDIA's driver does not support a fork");
        return Ok(());
    }
    each_kind(OpenFlags::empty(), |memory| {
        let bytes = pattern(5, LEN);
        memory.write(0, &bytes)?;
        memory.flush(..)?;
        join(fork(|| 0)?);
        assert_eq!(read_by_device(memory, LEN), bytes);
        Ok(())
    })
}
