//! A forked child can map the exported descriptor as plain shared memory, without Vulkan and CUDA.
//!
//! This tests the stages: `Memory::export_fd` and `import_fd`, which go through the drivers, are tested in
//! tests/memory/export.rs.
#![expect(unsafe_code, reason = "forks, and maps the descriptor by hand")]

use std::error::Error;
use std::os::fd::AsRawFd;
use std::ptr;

use ash::vk;

use super::vulkan::{Dedication, DeviceMemory, Request};
use crate::{MemoryKind, OpenFlags, Vkgdr};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const LEN: usize = 8192;
/// lavapipe keeps a header page before the memory itself in the file that it exports.
const PAYLOAD: libc::off_t = 4096;

/// Runs in the child: maps the descriptor and writes. Returns the exit code.
fn write_through_descriptor(fd: i32, value: u8) -> i32 {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of a live descriptor, at an address that the kernel chooses.
    let mapped = unsafe { libc::mmap(ptr::null_mut(), LEN, access, libc::MAP_SHARED, fd, PAYLOAD) };
    if mapped == libc::MAP_FAILED {
        return 1;
    }
    for index in 0..LEN {
        // SAFETY: the mapping has `LEN` bytes.
        let byte = unsafe { mapped.cast::<u8>().add(index) };
        // SAFETY: mapped and writable.
        unsafe { byte.write_volatile(value) };
    }
    0
}

/// Runs `child` in a forked process, which exits with its result, and waits for it. `child` may call only
/// async-signal-safe functions.
fn in_forked_child(child: impl FnOnce() -> i32) -> Result<i32> {
    // SAFETY: the child calls nothing that another thread may have locked.
    let pid = match unsafe { libc::fork() } {
        -1 => return Err(std::io::Error::last_os_error().into()),
        // SAFETY: async-signal-safe; runs no destructor of the parent's.
        0 => unsafe { libc::_exit(child()) },
        pid => pid,
    };
    let mut status = -1;
    // SAFETY: `status` is a valid output.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid, "{}", std::io::Error::last_os_error());
    Ok(status)
}

#[test]
fn a_forked_child_shares_memory_through_the_descriptor_alone() -> Result {
    let gpu = Vkgdr::open(0, OpenFlags::empty())?;
    let vulkan = gpu.vulkan()?;
    let vulkan_name = &vulkan.device().physical.name;
    if !vulkan_name.contains("llvmpipe") {
        eprintln!("skipped: the memory's offset in the exported file is known only for lavapipe, not {vulkan_name}");
        return Ok(());
    }
    let memory_type = gpu.memory_type(MemoryKind::Mapped)?;
    let counted = gpu.gpu().count_allocation(u32::MAX).ok_or("too many allocations")?;
    let (dedication, flags) = (Dedication::None, vk::MemoryAllocateFlags::empty());
    let request = Request { gpu: vulkan, memory_type: &memory_type, size: LEN as u64, dedication, flags };
    let mut memory = DeviceMemory::allocate(counted, request)?;
    memory.map()?;
    let host_ptr = memory.host_ptr().ok_or("the memory is not mapped")?;
    let fd = memory.export()?;
    for value in [0x5a, 0xc3] {
        let status = in_forked_child(|| write_through_descriptor(fd.as_raw_fd(), value))?;
        assert_eq!(status, 0, "the child's end");
        memory.invalidate((0, LEN as u64))?;
        for index in [0, 1, 4095, 4096, LEN - 1] {
            // SAFETY: the mapping has `LEN` bytes.
            let byte = unsafe { host_ptr.add(index) };
            // SAFETY: mapped while `memory` lives.
            assert_eq!(unsafe { byte.read_volatile() }, value, "byte {index}");
        }
    }
    Ok(())
}
