//! Allocations of virtual memory behind descriptors: for other processes, and as dma-bufs.

use std::fs::File;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

use support::codes::{INVALID_VALUE, NOT_SUPPORTED};
use support::cuda::PrimaryContext;
use support::{Result, child, driver, simulated};

use super::{
    GRAIN, PLAIN, POSIX_FD, READ_WRITE, byte, create, discard, fill, map, mapped, release, reserve, set, try_create,
};
use crate::{call, given, good};

const DESCRIPTOR: &str = "SIMCUDA_TEST_DESCRIPTOR";

fn export_with(handle: usize, kind: u32, flags: u64) -> std::result::Result<OwnedFd, i32> {
    let mut fd: RawFd = -1;
    match call!(cuMemExportToShareableHandle(
        &raw mut fd => *mut RawFd, handle => usize, kind => u32, flags => u64
    )) {
        // SAFETY: a new descriptor, without another owner.
        0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        code => Err(code),
    }
}

fn import_with(fd: RawFd, kind: u32) -> std::result::Result<usize, i32> {
    let (mut handle, fd) = (0, usize::try_from(fd).unwrap_or(usize::MAX));
    match call!(cuMemImportFromShareableHandle(&raw mut handle => *mut usize, fd => usize, kind => u32)) {
        0 => Ok(handle),
        code => Err(code),
    }
}

#[test]
fn processes_share_allocations_by_descriptors() -> Result {
    let _context = PrimaryContext::retain_and_push(0);
    if child::role().is_some() {
        let fd = std::env::var(DESCRIPTOR)?.parse()?;
        let handle = import_with(fd, POSIX_FD).map_err(|code| format!("{code}"))?;
        let address = reserve(GRAIN);
        good(map(address, GRAIN, handle));
        good(set(address, GRAIN, READ_WRITE));
        assert_eq!(byte(address), 5);
        good(fill(address, 6, 1));
        discard(address, GRAIN);
        good(release(handle));
        return Ok(());
    }
    simulated!("the simulator's own codes");
    let (address, handle) = mapped(GRAIN);
    good(fill(address, 5, GRAIN));
    let fd = export_with(handle, POSIX_FD, 0).map_err(|code| format!("{code}"))?;
    // In this process: another handle of the same memory.
    let own = import_with(fd.as_raw_fd(), POSIX_FD).map_err(|code| format!("{code}"))?;
    good(release(own));
    let mut command = child::command("import")?;
    // SAFETY: any number may be asked about.
    let inherited = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD, 0) };
    let output = command.env(DESCRIPTOR, inherited.to_string()).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // SAFETY: a new descriptor, without another owner.
    drop(unsafe { OwnedFd::from_raw_fd(inherited) });
    assert_eq!((byte(address), byte(address + 1)), (6, 5));

    assert_eq!(export_with(handle, 0, 0).err(), Some(INVALID_VALUE));
    assert_eq!(export_with(handle, 8, 0).err(), Some(NOT_SUPPORTED), "fabric");
    assert_eq!(export_with(handle, POSIX_FD, 1).err(), Some(INVALID_VALUE), "flags");
    assert_eq!(export_with(77, POSIX_FD, 0).err(), Some(INVALID_VALUE));
    let private = try_create(GRAIN, PLAIN).unwrap_or_default();
    assert_eq!(export_with(private, POSIX_FD, 0).err(), Some(INVALID_VALUE), "not created for it");
    good(release(private));
    let file = File::open("/proc/self/exe")?;
    assert_eq!(import_with(file.as_raw_fd(), POSIX_FD), Err(INVALID_VALUE), "another file");
    assert_eq!(import_with(-1, POSIX_FD), Err(INVALID_VALUE));
    assert_eq!(import_with(fd.as_raw_fd(), 2), Err(NOT_SUPPORTED));
    drop(fd);
    discard(address, GRAIN);
    good(release(handle));
    Ok(())
}

/// Says which device the memory behind the parent's descriptor is on, or the error.
fn say_device() -> Result {
    let handle = match import_with(std::env::var(DESCRIPTOR)?.parse()?, POSIX_FD) {
        Ok(handle) => handle,
        Err(code) => {
            child::say(driver::error_name(code));
            return Ok(());
        }
    };
    let properties: [u64; 4] =
        given(|out| call!(cuMemGetAllocationPropertiesFromHandle(out => *mut [u64; 4], handle => usize)));
    // CU_MEM_LOCATION_TYPE_DEVICE, and the device in the upper half.
    assert_eq!(properties[1] & 0xffff_ffff, 1);
    child::say(properties[1] >> 32);
    good(release(handle));
    Ok(())
}

/// The exporter sees the second of two devices only, which is device 0 there.
#[test]
fn an_allocation_is_on_the_same_device_in_every_process() -> Result {
    simulated!("the number of a machine's GPUs is its own");
    match child::role().as_deref() {
        None => {
            let mut command = child::command("export")?;
            command.env("SIMCUDA_DEVICES", "2").env("CUDA_VISIBLE_DEVICES", "1");
            assert_eq!(child::run(command)?, ["0", "1", "0", "CUDA_ERROR_NOT_SUPPORTED"]);
        }
        Some("export") => {
            driver::initialise();
            let handle = create(GRAIN);
            let fd = export_with(handle, POSIX_FD, 0).map_err(|code| format!("{code}"))?;
            // SAFETY: the descriptor is open; the copy is inherited.
            let inherited = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD, 0) };
            for visible in ["1", "0,1", "1,0", "0"] {
                let mut command = child::command("import")?;
                command.env(DESCRIPTOR, inherited.to_string()).env("CUDA_VISIBLE_DEVICES", visible);
                child::run(command)?.iter().for_each(child::say);
            }
            good(release(handle));
        }
        Some(_) => {
            driver::initialise();
            say_device()?;
        }
    }
    Ok(())
}

fn check_dma_buf() {
    let size = 2 * GRAIN;
    let (address, handle) = mapped(size);
    let export = |address: u64, len: usize| -> std::result::Result<File, i32> {
        let mut fd: RawFd = -1;
        match call!(cuMemGetHandleForAddressRange(
            &raw mut fd => *mut RawFd, address => u64, len => usize, 1 => u32, 0 => u64
        )) {
            // SAFETY: a new descriptor, without another owner.
            0 => Ok(unsafe { File::from_raw_fd(fd) }),
            code => Err(code),
        }
    };
    good(fill(address, 8, size));
    let file = export(address, size).unwrap_or_else(|code| panic!("{code}"));
    let mut bytes = [0; 2];
    let read = std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, (size - 2) as u64);
    assert!(read.is_ok() && bytes == [8; 2]);
    assert!(export(address, 64 << 10).is_ok(), "a part from the start");
    assert_eq!(export(address + (64 << 10), 64 << 10).err(), Some(NOT_SUPPORTED), "a file begins with its range");
    assert_eq!(export(address, size + (64 << 10)).err(), Some(INVALID_VALUE), "beyond the end");
    discard(address, size);
    good(release(handle));
}

#[test]
fn mapped_memory_is_exported_as_a_dma_buf() -> Result {
    crate::dma_buf::under("dma-buf", check_dma_buf)
}
