//! `cuMemGetHandleForAddressRange`: which ranges are exported under which profile, and what a mapping of the descriptor
//! shows.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use support::codes::{INVALID_CONTEXT, INVALID_VALUE, NOT_SUPPORTED};
use support::cuda::{PrimaryContext, no_context};
use support::{Result, child, simulated};

use crate::{PUT, allocate, call, fill, free, given, good, launch, load, read, word};

const PAGE: usize = 64 << 10;
const ROUNDS: u32 = 2000;
const MAP_FAILED: isize = -1;
const OPERATING_SYSTEM: i32 = 304;

fn attribute(number: u32) -> std::result::Result<i32, i32> {
    let mut value = -1;
    match call!(cuDeviceGetAttribute(&raw mut value => *mut i32, number => u32, 0 => i32)) {
        0 => Ok(value),
        code => Err(code),
    }
}

fn export_with(address: u64, len: usize, kind: u32, flags: u64) -> std::result::Result<File, i32> {
    let mut fd: RawFd = -1;
    match call!(cuMemGetHandleForAddressRange(
        &raw mut fd => *mut RawFd, address => u64, len => usize, kind => u32, flags => u64
    )) {
        // SAFETY: a new descriptor, without another owner.
        0 => Ok(unsafe { File::from_raw_fd(fd) }),
        code => Err(code),
    }
}

fn export(address: u64, len: usize) -> std::result::Result<File, i32> {
    export_with(address, len, 1, 0)
}

/// A mapping of a whole descriptor.
struct Mapping(*mut u8, usize);

impl Mapping {
    fn new(file: &File, len: usize) -> Option<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the system chooses.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        (at.addr().cast_signed() != MAP_FAILED).then_some(Self(at.cast(), len))
    }

    fn get(&self, offset: usize) -> u8 {
        assert!(offset < self.1);
        // SAFETY: within the mapping.
        unsafe { self.0.wrapping_add(offset).read_volatile() }
    }

    fn set(&self, offset: usize, value: u8) {
        assert!(offset < self.1);
        // SAFETY: within the mapping.
        unsafe { self.0.wrapping_add(offset).write_volatile(value) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped once, by `new`.
        unsafe { libc::munmap(self.0.cast(), self.1) };
    }
}

/// The value, which must be there.
#[track_caller]
fn must<T>(value: Option<T>, what: &str) -> T {
    value.unwrap_or_else(|| panic!("there is not {what}"))
}

/// Runs `check` in a child under a profile of the driver alone.
pub(crate) fn under(profile: &str, check: fn()) -> Result {
    simulated!("a real driver has one profile");
    match child::role() {
        Some(role) if role == profile => {
            let _context = PrimaryContext::retain_and_push(0);
            check();
            child::say("done");
        }
        Some(_) => {}
        None => {
            let mut command = child::command(profile)?;
            command.env("VKLAYER_PROFILE", profile);
            assert_eq!(child::run(command)?, ["done"]);
        }
    }
    Ok(())
}

fn check_bytes() {
    assert_eq!((attribute(124), attribute(152), attribute(100)), (Ok(1), Ok(1), Ok(0)));
    let len = 4 * PAGE;
    let memory = allocate(len);
    assert!(memory.is_multiple_of(PAGE as u64));
    fill(memory, 1, len);
    let file = must(export(memory, len).ok(), "a descriptor");
    let mapping = must(Mapping::new(&file, len), "a mapping");
    assert_eq!((mapping.get(0), mapping.get(len - 1)), (1, 1), "written before the export");
    fill(memory + 5, 2, 7);
    assert_eq!([4, 5, 11, 12].map(|at| mapping.get(at)), [1, 2, 2, 1]);
    mapping.set(len - 1, 3);
    assert_eq!(read(memory + len as u64 - 1, 1), [3]);
    // A part from the start, and one with another start.
    let part = must(export_with(memory, PAGE, 1, 1).ok(), "a descriptor");
    assert_eq!(must(Mapping::new(&part, PAGE), "a mapping").get(5), 2);
    assert_eq!(export(memory + PAGE as u64, PAGE).err(), Some(NOT_SUPPORTED));
    drop((file, part));
    free(memory);
    let next = allocate(len);
    fill(next, 9, len);
    assert_eq!((mapping.get(5), mapping.get(len - 1)), (2, 3), "the pages stay after the memory was freed");
    free(next);
}

fn check_failed_export() {
    let len = 2 * PAGE;
    let memory = allocate(len);
    let file = must(export(memory, PAGE).ok(), "a descriptor");
    let mapping = must(Mapping::new(&file, PAGE), "a mapping");
    // SAFETY: the descriptor is open. The file cannot become longer.
    let sealed = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_GROW) };
    assert_eq!((sealed, export(memory, len).err()), (0, Some(OPERATING_SYSTEM)));
    let again = must(export(memory, PAGE).ok(), "a descriptor");
    fill(memory, 5, len);
    assert_eq!(mapping.get(1), 5);
    assert_eq!(must(Mapping::new(&again, PAGE), "a mapping").get(1), 5);
    free(memory);
}

#[test]
fn a_failed_export_leaves_the_one_before() -> Result {
    under("dma-buf", check_failed_export)
}

#[test]
fn a_mapping_shows_the_bytes_of_the_device() -> Result {
    under("dma-buf", check_bytes)
}

fn check_ranges() {
    let (memory, small) = (allocate(3 * PAGE), [allocate(100), allocate(1000)]);
    let page = |address: u64| address - address % PAGE as u64;
    assert_eq!(page(small[0]), page(small[1]), "small blocks share pages");
    fill(small[1], 7, 1000);
    let file = must(export(page(small[0]), PAGE).ok(), "the page of a small block");
    let mapping = must(Mapping::new(&file, PAGE), "a mapping");
    let offset = must(usize::try_from(small[1] - page(small[1])).ok(), "an offset");
    assert_eq!([offset, offset + 999].map(|at| mapping.get(at)), [7, 7]);
    assert_eq!(export(memory + 4096, PAGE).err(), Some(INVALID_VALUE), "not whole pages");
    assert_eq!(export(memory, PAGE + 4096).err(), Some(INVALID_VALUE), "not whole pages");
    assert_eq!(export(memory, 0).err(), Some(INVALID_VALUE), "nothing");
    assert_eq!(export(memory, 4 * PAGE).err(), Some(INVALID_VALUE), "beyond the end");
    assert_eq!(export(PAGE as u64, PAGE).err(), Some(INVALID_VALUE), "no memory");
    assert_eq!(export_with(memory, PAGE, 2, 0).err(), Some(INVALID_VALUE), "another handle");
    assert_eq!(export_with(memory, PAGE, 1, 2).err(), Some(INVALID_VALUE), "another flag");
    assert_eq!(no_context(|| export(memory, PAGE)).err(), Some(INVALID_CONTEXT));
    let managed: u64 = given(|out| call!(cuMemAllocManaged(out => *mut u64, 3 * PAGE => usize, 1 => u32)));
    let host: u64 = given(|out| call!(cuMemAllocHost_v2(out => *mut u64, 3 * PAGE => usize)));
    let up = |address: u64| address.next_multiple_of(PAGE as u64);
    assert_eq!(export(up(managed), PAGE).err(), Some(INVALID_VALUE), "managed memory");
    assert_eq!(export(up(host), PAGE).err(), Some(INVALID_VALUE), "host memory");
    let (other, length) = (stream(), 2 * PAGE);
    let pooled = allocate_in_order(length, other);
    assert_eq!(export(up(pooled), PAGE).err(), Some(INVALID_VALUE), "memory of a pool");
    free_in_order(pooled, other);
    end(other);
    free(memory);
    assert_eq!(export(memory, PAGE).err(), Some(INVALID_VALUE), "freed memory");
    small.into_iter().for_each(free);
    free(managed);
    good(call!(cuMemFreeHost(host => u64)));
}

#[test]
fn only_whole_pages_of_device_memory_are_exported() -> Result {
    under("dma-buf", check_ranges)
}

fn check_without_mmap() {
    assert_eq!((attribute(124), attribute(152)), (Ok(1), Ok(0)));
    let memory = allocate(PAGE);
    let file = must(export(memory, PAGE).ok(), "a descriptor");
    assert!(Mapping::new(&file, PAGE).is_none());
    fill(memory, 1, PAGE);
    assert_eq!(read(memory, 1), [1]);
    free(memory);
}

fn check_old() {
    assert_eq!((attribute(124), attribute(152)), (Ok(0), Err(INVALID_VALUE)));
    let memory = allocate(PAGE);
    assert_eq!(export(memory, PAGE).err(), Some(NOT_SUPPORTED));
    free(memory);
}

fn check_gb10() {
    assert_eq!((attribute(124), attribute(152)), (Ok(0), Err(INVALID_VALUE)));
    let memory = allocate(PAGE);
    assert_eq!(export(memory, PAGE).err(), Some(INVALID_VALUE));
    free(memory);
}

#[test]
fn a_profile_says_what_is_exported_and_mapped() -> Result {
    under("dma-buf-no-mmap", check_without_mmap)?;
    under("rebar", check_old)?;
    under("gb10", check_gb10)?;
    under("dma-buf-cached", || assert_eq!((attribute(100), attribute(152)), (Ok(1), Ok(1))))
}

/// Runs `work` on a thread of its own, in the context that is current on this one.
fn beside<'a>(scope: &'a std::thread::Scope<'a, '_>, work: fn()) {
    let context: usize = given(|out| call!(cuCtxGetCurrent(out => *mut usize)));
    scope.spawn(move || {
        good(call!(cuCtxSetCurrent(context => usize)));
        work();
    });
}

fn launch_and_free() {
    let [module, put] = load(PUT, c"put");
    for value in 0..ROUNDS {
        let memory = allocate(PAGE);
        good(launch(put, 0, 0, &[(&raw const memory).cast(), (&raw const value).cast()]));
        // Not waited for: the memory is freed while the kernel looks for it.
        free(memory);
    }
    good(call!(cuModuleUnload(module => usize)));
}

fn export_often() {
    for _ in 0..ROUNDS {
        let memory = allocate(PAGE);
        drop(must(export(memory, PAGE).ok(), "a descriptor"));
        free(memory);
    }
}

#[test]
fn kernels_frees_and_exports_do_not_wait_for_each_other_for_ever() -> Result {
    under("dma-buf", || {
        std::thread::scope(|scope| {
            beside(scope, launch_and_free);
            beside(scope, launch_and_free);
            beside(scope, export_often);
        });
    })
}

/// The kernel `spin`, which accesses no memory for a number of steps.
const SPIN: &CStr = c"
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u32 steps)
{
    .reg .b32 %r;
    .reg .pred %p;
    ld.param.u32 %r, [steps];
NEXT:
    sub.u32 %r, %r, 1;
    setp.ne.u32 %p, %r, 0;
    @%p bra NEXT;
    ret;
}
";

fn stream() -> usize {
    given(|out| call!(cuStreamCreate(out => *mut usize, 1 => u32)))
}

fn allocate_in_order(len: usize, stream: usize) -> u64 {
    given(|out| call!(cuMemAllocAsync(out => *mut u64, len => usize, stream => usize)))
}

fn free_in_order(address: u64, stream: usize) {
    good(call!(cuMemFreeAsync(address => u64, stream => usize)));
}

fn end(stream: usize) {
    good(call!(cuStreamSynchronize(stream => usize)));
    good(call!(cuStreamDestroy_v2(stream => usize)));
}

/// Allocations that fill a part of a page with zeros, as the pool keeps none.
fn allocate_from_a_pool() {
    let pool: usize = given(|out| call!(cuDeviceGetDefaultMemPool(out => *mut usize, 0 => i32)));
    let stream = stream();
    for round in 0..10 * ROUNDS as usize {
        free_in_order(allocate_in_order(512 * (1 + round % 20), stream), stream);
        good(call!(cuMemPoolTrimTo(pool => usize, 0 => usize)));
    }
    end(stream);
}

fn free_under_a_kernel() {
    let [module, spin] = load(SPIN, c"spin");
    let (busy, other) = (stream(), stream());
    for round in 0..ROUNDS {
        let memory = allocate_in_order(700, other);
        let steps = 2000 + round * 977 % 60000;
        good(launch(spin, 0, busy, &[(&raw const steps).cast()]));
        // The kernel keeps it, and returns it to the pool when it ends.
        free_in_order(memory, other);
        good(call!(cuStreamSynchronize(busy => usize)));
    }
    end(busy);
    end(other);
    good(call!(cuModuleUnload(module => usize)));
}

fn export_much() {
    let len = 256 * PAGE;
    for _ in 0..ROUNDS / 4 {
        let memory = allocate(len);
        drop(must(export(memory, len).ok(), "a descriptor"));
        free(memory);
    }
}

#[test]
fn kernels_that_end_pools_and_exports_do_not_wait_for_each_other_for_ever() -> Result {
    under("dma-buf", || {
        std::thread::scope(|scope| {
            beside(scope, allocate_from_a_pool);
            beside(scope, free_under_a_kernel);
            beside(scope, export_much);
        });
    })
}

fn write_values_during_exports() {
    let (len, stream) = (512 * PAGE, stream());
    for _ in 0..20 {
        let memory = allocate(len);
        fill(memory, 1, len);
        let exported = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _context = PrimaryContext::retain_and_push(0);
                drop(must(export(memory, len).ok(), "a descriptor"));
                exported.store(true, Ordering::Release);
            });
            let mut value = 0_u32;
            while !exported.load(Ordering::Acquire) {
                value += 1;
                good(call!(cuStreamWriteValue32_v2(stream => usize, memory => u64, value => u32, 0 => u32)));
                good(call!(cuStreamSynchronize(stream => usize)));
                assert_eq!(word(memory), value);
            }
        });
        free(memory);
    }
    end(stream);
}

#[test]
fn a_value_that_a_stream_writes_is_not_lost_in_an_export() -> Result {
    under("dma-buf", write_values_during_exports)
}
