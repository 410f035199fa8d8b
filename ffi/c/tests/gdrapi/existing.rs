//! CUDA's own memory, on simulated GPUs that map it.
#![expect(unsafe_code, reason = "calls C functions")]

use std::ffi::c_void;
use std::process::Command;
use std::ptr::null_mut;

use support::cuda::{CudaMemory, PrimaryContext, reset_primary};
use support::{Result, child, device_read, pattern};
use vkgdr_c::{gdr_info_v2_t, gdr_mh_t, gdr_t};

use crate::EINVAL;
use crate::api::{call, close, open, unpin};
use crate::fixture::{NO_HANDLE, PAGE};

type Check = fn(gdr_t) -> Result;

/// Each in a child that has two simulated GPUs whose memory the CPU can map.
const CHECKS: [(&str, Check); 7] = [
    ("all of a pinned page is copied", pages_are_copied),
    ("a page is pinned with all memory in it", neighbours_are_copied),
    ("pinning retains the context of the memory's GPU alone", the_other_gpu_is_left_alone),
    ("an address that is not of CUDA retains no context", no_gpu_is_retained_for_a_host_address),
    ("a GPU that cannot be used is passed over", a_gpu_that_fails_is_passed_over),
    ("memory is pinned after the device was reset", memory_is_pinned_after_a_reset),
    ("an address within a page is not mapped", an_address_within_a_page_is_pinned_and_not_mapped),
];

#[test]
fn memory_of_cuda_is_pinned_on_gpus_that_map_it() -> Result {
    if let Some(role) = child::role() {
        let g = open();
        let (_, check) = CHECKS.iter().find(|(name, _)| *name == role).ok_or("an unknown role")?;
        check(g)?;
        assert_eq!(close(g), 0);
        child::say("done");
        return Ok(());
    }
    let Some(simulator) = support::profile::simulator()? else { return Ok(()) };
    for (name, _) in CHECKS {
        let child = child::command(name)?;
        let mut command = Command::new(&simulator);
        // The profile sets the number itself.
        command.args(["--profile", "dma-buf-no-vulkan", "--", "env", "SIMCUDA_DEVICES=2"]);
        command.arg(child.get_program()).args(child.get_args());
        command.envs(child.get_envs().filter_map(|(name, value)| Some((name, value?))));
        assert_eq!(child::run(command)?, ["done"], "{name}");
    }
    Ok(())
}

/// Pins and maps from the start of the page, as programs do: the handle, that device address, and the host's.
fn pinned(g: gdr_t, address: u64, len: usize) -> Result<(gdr_mh_t, u64, *mut c_void)> {
    let (mut handle, mut va, mut info) = (NO_HANDLE, null_mut(), gdr_info_v2_t::default());
    let within = address % PAGE as u64;
    let (address, len) = (address - within, len + usize::try_from(within)?);
    assert_eq!(call!(pin(g, address, len, 0, 0, &raw mut handle)), 0, "{len} bytes at {address:#x}");
    assert_eq!(call!(info(g, handle, &raw mut info)), 0);
    assert_eq!(call!(map(g, handle, &raw mut va, usize::try_from(info.v1.mapped_size)?)), 0);
    assert_eq!(info.v1.va, address);
    Ok((handle, address, va))
}

/// All bytes of the pinned pages are copied.
fn pages_are_copied(g: gdr_t) -> Result {
    let _context = PrimaryContext::retain_and_push(0);
    // The second is too large to be mapped as a whole.
    for len in [3 * PAGE + 100, 40 << 20] {
        let memory = CudaMemory::device(len);
        let start = memory.address();
        for (offset, size) in [(0, 1000), (PAGE + 7, 1), (3 * PAGE, 100)] {
            let (handle, va, host) = pinned(g, start + offset as u64, size)?;
            let expected = pattern(PAGE, offset as u64);
            assert_eq!(call!(copy_to(handle, host, expected.as_ptr().cast(), PAGE)), 0, "at {offset}");
            // What the driver reads: of the allocation.
            let (first, last) = (va.max(start), (va + PAGE as u64).min(start + len as u64));
            let (before, count) = (usize::try_from(first - va)?, usize::try_from(last - first)?);
            assert!(device_read(first, count) == expected[before..][..count]);
            let (bytes, count) = (host, PAGE);
            let mut found = vec![0_u8; count];
            assert_eq!(call!(copy_from(handle, found.as_mut_ptr().cast(), bytes, count)), 0);
            assert!(found == expected);
            assert_eq!(call!(copy_to(handle, bytes, [0_u8; 2 * PAGE].as_ptr().cast(), count + 1)), EINVAL);
            let before = bytes.wrapping_byte_sub(1);
            assert_eq!(call!(copy_to(handle, before, expected.as_ptr().cast(), 1)), EINVAL);
            assert_eq!(unpin(g, handle), 0);
        }
        // Rounded up from any address, also beyond the end. Of memory whose pages are not exported, which the simulated driver
        // does once.
        let memory = CudaMemory::device(len);
        let start = memory.address();
        for (offset, size) in [(3, len), (3, len.next_multiple_of(PAGE)), (0, len.next_multiple_of(PAGE))] {
            let mut handle = NO_HANDLE;
            assert_eq!(call!(pin(g, start + offset, size, 0, 0, &raw mut handle)), 0);
            assert_eq!(unpin(g, handle), 0);
        }
        let (mut handle, beyond) = (NO_HANDLE, len.next_multiple_of(PAGE) + 2 * PAGE);
        assert_eq!(call!(pin(g, start, beyond, 0, 0, &raw mut handle)), EINVAL);
    }
    Ok(())
}

/// As by programs that align addresses down to pages, where other memory is, or was.
fn neighbours_are_copied(g: gdr_t) -> Result {
    let _context = PrimaryContext::retain_and_push(0);
    let page = |memory: &CudaMemory| memory.address() - memory.address() % PAGE as u64;
    let mut others = vec![CudaMemory::device(1000)];
    let small = loop {
        let next = CudaMemory::device(1000);
        if page(&next) == page(&others[0]) {
            break next;
        }
        others.push(next);
    };
    let put = |memory: &CudaMemory, what: &str| -> Result {
        let end = (memory.address() + memory.len() as u64).next_multiple_of(PAGE as u64);
        let (handle, va, host) = pinned(g, page(memory), usize::try_from(end - page(memory))?)?;
        let (expected, at) = (pattern(1000, 7), usize::try_from(memory.address() - va)?);
        assert_eq!(call!(copy_to(handle, host.wrapping_byte_add(at), expected.as_ptr().cast(), 1000)), 0, "{what}");
        assert!(device_read(memory.address(), 1000) == expected, "{what}");
        assert_eq!(unpin(g, handle), 0);
        Ok(())
    };
    put(&small, "beside memory at the start of the page")?;
    drop(others);
    put(&small, "where memory was at the start of the page")
}

/// How often a primary context was retained.
fn retained() -> Result<u64> {
    Ok(support::simcuda()
        .ok_or("the simulated driver's functions are missing")?
        .calls(Some("cuDevicePrimaryCtxRetain")))
}

fn the_other_gpu_is_left_alone(g: gdr_t) -> Result {
    let mut value = 7;
    assert_eq!(call!(attribute(g, 3, &raw mut value)), 0);
    assert_eq!((value, retained()?), (1, 0), "an attribute retains no context");
    for device in [1, 0] {
        let _context = PrimaryContext::retain_and_push(device);
        let memory = CudaMemory::device(PAGE);
        let before = retained()?;
        let (handle, ..) = pinned(g, memory.address(), PAGE)?;
        assert_eq!(retained()? - before, 1, "device {device}");
        assert_eq!(unpin(g, handle), 0);
    }
    Ok(())
}

/// The driver knows that such an address is no device memory, whichever context is current.
fn no_gpu_is_retained_for_a_host_address(g: gdr_t) -> Result {
    let _context = PrimaryContext::retain_and_push(1);
    let (before, local, mut handle) = (retained()?, [0_u8; PAGE], NO_HANDLE);
    assert_eq!(call!(pin(g, local.as_ptr().addr() as u64, 1, 0, 0, &raw mut handle)), EINVAL);
    assert_eq!(retained()?, before);
    Ok(())
}

/// Also where the memory's GPU is not known at once.
fn a_gpu_that_fails_is_passed_over(g: gdr_t) -> Result {
    let driver = support::simcuda().ok_or("the simulated driver's functions are missing")?;
    let context = PrimaryContext::retain_and_push(1);
    let memory = CudaMemory::device(PAGE);
    support::cuda::no_context(|| -> Result {
        driver.fail("cuPointerGetAttributes", 1, support::codes::INVALID_CONTEXT);
        driver.fail("cuDevicePrimaryCtxRetain", 1, support::codes::OUT_OF_MEMORY);
        let (handle, ..) = pinned(g, memory.address(), PAGE)?;
        assert_eq!(unpin(g, handle), 0);
        Ok(())
    })?;
    drop(memory);
    drop(context);
    Ok(())
}

/// The handle of the GPU that pins share is of the primary context, which a program may reset.
fn memory_is_pinned_after_a_reset(g: gdr_t) -> Result {
    for _ in 0..3 {
        let _context = PrimaryContext::retain_and_push(0);
        let memory = CudaMemory::device(PAGE);
        let (handle, ..) = pinned(g, memory.address(), PAGE)?;
        assert_eq!(unpin(g, handle), 0);
        drop(memory);
        reset_primary();
    }
    Ok(())
}

fn an_address_within_a_page_is_pinned_and_not_mapped(g: gdr_t) -> Result {
    let _context = PrimaryContext::retain_and_push(0);
    let memory = CudaMemory::device(3 * PAGE);
    let (mut handle, mut va) = (NO_HANDLE, null_mut());
    let address = memory.address().next_multiple_of(PAGE as u64) + 512;
    assert_eq!(call!(pin(g, address, PAGE, 0, 0, &raw mut handle)), 0);
    assert_eq!(call!(map(g, handle, &raw mut va, PAGE)), EINVAL);
    assert_eq!(unpin(g, handle), 0);
    Ok(())
}
