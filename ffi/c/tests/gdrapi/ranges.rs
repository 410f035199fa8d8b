//! Pinned ranges that do not begin and end with the memory.
#![expect(unsafe_code, reason = "calls C functions")]

use std::ptr::null_mut;

use support::{Result, device_read, pattern};
use vkgdr_c::{gdr_info_v2_t, gdr_t};
use vkgdr_rs::{Memory, MemoryKind, OpenFlags, Pool, PoolOptions};

use crate::EINVAL;
use crate::api::{call, close, open, unpin};
use crate::fixture::{NO_HANDLE, PAGE, kind};

/// An address rounded down to a page, and the bytes from there to the end of the last page of `len` bytes at it.
fn around(address: u64, len: usize) -> Result<(u64, usize)> {
    let before = address % PAGE as u64;
    Ok((address - before, (usize::try_from(before)? + len).next_multiple_of(PAGE)))
}

/// Whether an address is in memory of this library.
fn is_known(address: u64) -> bool {
    // SAFETY: the alias is not used.
    unsafe { vkgdr_rs::memory_of(address) }.is_some()
}

/// Pins whole pages around memory, and copies all of it; nothing before it.
fn check_pages_around(g: gdr_t, memory: &Memory) -> Result {
    let (address, len) = (memory.device_ptr(), memory.len());
    let (first, pages) = around(address, len)?;
    let (mut handle, mut va, mut info) = (NO_HANDLE, null_mut(), gdr_info_v2_t::default());
    assert_eq!(call!(pin(g, first, pages, 0, 0, &raw mut handle)), 0, "{pages} bytes at {first:#x} for {address:#x}");
    assert_eq!(call!(info(g, handle, &raw mut info)), 0);
    assert_eq!((info.v1.va, info.v1.mapped_size), (first, pages as u64));
    assert_eq!(call!(map(g, handle, &raw mut va, pages)), 0);
    let bytes = va.wrapping_byte_add(usize::try_from(address - first)?);
    let expected = pattern(len, address);
    assert_eq!(call!(copy_to(handle, bytes, expected.as_ptr().cast(), len)), 0);
    assert!(device_read(address, len) == expected);
    let before = bytes.wrapping_byte_sub(1);
    assert_eq!(call!(copy_to(handle, before, expected.as_ptr().cast(), 2)), EINVAL);
    assert_eq!(call!(copy_to(handle, bytes.wrapping_byte_add(1), expected.as_ptr().cast(), len)), EINVAL);
    assert_eq!(unpin(g, handle), 0);
    Ok(())
}

/// As UCX does.
#[test]
fn memory_is_pinned_from_the_start_of_its_page() -> Result {
    let (_context, gpu) = support::open(OpenFlags::empty())?;
    let g = open();
    // Host memory begins at any page of the CPU's.
    let memories = [100_000, 5000, 300_000, 12_288, 100_000, 4096]
        .into_iter()
        .flat_map(|len| [MemoryKind::Host, kind(&gpu)].map(|kind| Memory::allocate(&gpu, len, kind)))
        .collect::<vkgdr_rs::Result<Vec<_>>>()?;
    for memory in &memories {
        let (first, pages) = around(memory.device_ptr(), memory.len())?;
        let in_its_pages = |other: &&Memory| (first..first + pages as u64).contains(&other.device_ptr());
        // The first memory in the page is pinned.
        if !is_known(first) && memories.iter().filter(in_its_pages).count() == 1 {
            check_pages_around(g, memory)?;
        }
    }
    assert_eq!(close(g), 0);
    Ok(())
}

#[test]
fn memory_of_a_pool_is_pinned_from_the_start_of_its_page_where_it_begins_in_the_range() -> Result {
    let (_context, gpu) = support::open(OpenFlags::empty())?;
    let pool = Pool::new(&gpu, PoolOptions::new(kind(&gpu)))?;
    let g = open();
    for len in [5000, 1000, 20_000] {
        // The last in its page, with none before it.
        check_pages_around(g, &pool.allocate(len)?)?;
    }
    // What begins before a range, or behind its end or its first page, is not pinned in its place.
    let mut handle = NO_HANDLE;
    let mut pin = |address: u64, size: usize| call!(pin(g, address, size, 0, 0, &raw mut handle));
    let memory = Pool::new(&gpu, PoolOptions::new(kind(&gpu)))?.allocate(1000)?;
    let address = memory.device_ptr();
    if !is_known(address - 64) && !address.is_multiple_of(PAGE as u64) {
        assert_eq!(pin(address - 64, 65), 0, "it begins with the last byte of the range");
        assert_ne!(pin(address - 64, 64), 0, "it begins behind the range");
        assert_ne!(pin(address - 64, 3 * PAGE), 0, "it ends long before the range");
    }
    assert_eq!(close(g), 0);
    Ok(())
}

/// As programs do that round a size up to whole pages, whatever the address.
#[test]
fn a_size_that_was_rounded_up_pins_the_memory_at_the_address_and_not_the_one_behind() -> Result {
    let (_context, gpu) = support::open(OpenFlags::empty())?;
    let pool = Pool::new(&gpu, PoolOptions::new(kind(&gpu)))?;
    let memories = [pool.allocate(4096)?, pool.allocate(4096)?, Memory::allocate(&gpu, 4096, kind(&gpu))?];
    let g = open();
    for memory in &memories {
        let (mut handle, mut va, mut info) = (NO_HANDLE, null_mut(), gdr_info_v2_t::default());
        let mut pin = |size| call!(pin(g, memory.device_ptr() + 16, size, 0, 0, &raw mut handle));
        assert_ne!(pin(2 * PAGE + 1), 0, "beyond the page behind the last");
        assert_eq!(pin(PAGE), 0);
        assert_eq!(call!(info(g, handle, &raw mut info)), 0);
        assert_eq!(call!(map(g, handle, &raw mut va, PAGE)), 0);
        assert_eq!(info.v1.va, memory.device_ptr() + 16);
        let bytes = va.wrapping_byte_sub(16);
        let expected = pattern(memory.len(), memory.device_ptr());
        assert_eq!(call!(copy_to(handle, bytes, expected.as_ptr().cast(), expected.len())), 0);
        assert!(device_read(memory.device_ptr(), memory.len()) == expected);
        assert_eq!(unpin(g, handle), 0);
    }
    assert_eq!(close(g), 0);
    Ok(())
}
