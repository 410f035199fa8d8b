//! Each of gdrcopy's seventeen functions, its error numbers included.
#![expect(unsafe_code, reason = "calls C functions")]

mod api;
mod existing;
mod fixture;
mod logging;
mod ranges;
mod threads;

use std::ffi::{CStr, c_int, c_ulong, c_void};
use std::ptr::{null, null_mut, without_provenance_mut};
use std::thread;

use api::{call, close, open, unmap, unpin};
use fixture::{Fixture, LEN, NO_HANDLE, PAGE, kind};
use support::fork::in_quiet_child;
use support::{Result, child, device_read, pattern};
use vkgdr_c::{gdr_info_v1_t, gdr_info_v2_t, gdr_mh_t};
use vkgdr_rs::{Memory, MemoryKind, OpenFlags, Pool, PoolOptions};

const EINVAL: c_int = 22;
const EAGAIN: c_int = 11;
const ENODEV: c_int = 19;
const EOPNOTSUPP: c_int = 95;

#[test]
fn gdr_open() -> Result {
    // The first function of a program.
    child::afresh(|| {
        let (one, other) = (open(), open());
        assert!(!one.is_null() && !other.is_null() && one != other);
        assert_eq!((close(one), close(other)), (0, 0));
        Ok(())
    })
}

#[test]
fn gdr_close() -> Result {
    let fixture = Fixture::new()?;
    let (_, bytes) = fixture.map()?;
    let (g, handle) = (fixture.g, fixture.handle);
    assert_eq!(call!(copy_to(handle, bytes, [1_u8].as_ptr().cast(), 1)), 0);
    assert_eq!(close(g), 0, "with memory that is pinned and mapped");
    assert_eq!(close(g), EINVAL, "twice");
    assert_eq!(close(null_mut()), EINVAL);
    assert_eq!(unpin(g, handle), EINVAL);
    assert_eq!(call!(copy_to(handle, bytes, [1_u8].as_ptr().cast(), 1)), EINVAL);
    Ok(())
}

#[test]
fn gdr_pin_buffer() -> Result {
    let fixture = Fixture::new()?;
    let (g, address) = (fixture.g, fixture.memory.device_ptr());
    let mut handle = NO_HANDLE;
    let mut pin = |g, address, size| -> Result<c_int> { Ok(call!(pin(g, address, size, 0, 0, &raw mut handle))) };
    assert_eq!(pin(g, address + 3, 1)?, 0, "unaligned");
    assert_eq!(pin(g, address, 4 * PAGE)?, 0, "rounded up to pages");
    let local = 0_u8;
    for (g, address, size) in [
        (null_mut(), address, 1),
        (g.wrapping_byte_add(1000), address, 1),
        (g, 0, 1),
        (g, address, 0),
        (g, address, 5 * PAGE),
        (g, address, usize::MAX),
        (g, u64::MAX, 2),
    ] {
        assert_eq!(pin(g, address, size)?, EINVAL, "{address:#x}, {size} bytes");
    }
    assert_ne!(pin(g, std::ptr::from_ref(&local).addr() as u64, 1)?, 0, "private memory");
    let host = fixture.memory.host_ptr().ok_or("no host view")?.addr().get() as u64;
    // Registered pages have one address for both.
    assert_eq!(pin(g, host, 1)?, if host == address { 0 } else { EINVAL }, "the host address of the memory");
    assert_eq!(call!(pin(g, address, 1, 0, 0, null_mut())), EINVAL);
    fixture.close()
}

#[test]
fn gdr_pin_buffer_v2() -> Result {
    let fixture = Fixture::new()?;
    let (g, address) = (fixture.g, fixture.memory.device_ptr());
    let mut handle = NO_HANDLE;
    assert_eq!(call!(pin_v2(g, address, LEN, 0, &raw mut handle)), 0);
    assert_ne!(handle, fixture.handle);
    assert_eq!(call!(pin_v2(g, address, LEN, 2, &raw mut handle)), EINVAL, "an unknown flag");
    let forced = call!(pin_v2(g, address, LEN, 1, &raw mut handle));
    assert_eq!(forced == 0, !fixture.memory.is_cached(), "by PCIe");
    let gpu = fixture.memory.owner().clone();
    let device = Memory::allocate(&gpu, LEN, MemoryKind::Device)?;
    assert_eq!(call!(pin_v2(g, device.device_ptr(), LEN, 0, &raw mut handle)), EOPNOTSUPP, "no host view");
    assert_eq!(call!(pin_v2(g, address, LEN, 0, null_mut())), EINVAL);
    fixture.close()
}

#[test]
fn gdr_unpin_buffer() -> Result {
    let fixture = Fixture::new()?;
    let (g, handle) = (fixture.g, fixture.handle);
    let other = open();
    assert_eq!(unpin(other, handle), EINVAL, "another connection's");
    assert_eq!(unpin(g, NO_HANDLE), EINVAL);
    assert_eq!(unpin(g, gdr_mh_t { h: c_ulong::MAX }), EINVAL);
    assert_eq!(unpin(null_mut(), handle), EINVAL);
    let (_, bytes) = fixture.map()?;
    assert_eq!(call!(copy_to(handle, bytes, [1_u8].as_ptr().cast(), 1)), 0);
    let g_address = g.addr();
    let unpinned = thread::spawn(move || unpin(without_provenance_mut(g_address), handle)).join();
    assert_eq!(unpinned.map_err(|_| "a thread panicked")?, 0, "mapped, by another thread");
    assert_eq!(unpin(g, handle), EINVAL, "twice");
    assert_eq!(call!(copy_to(handle, bytes, [1_u8].as_ptr().cast(), 1)), EINVAL, "not pinned any more");
    let mut next = NO_HANDLE;
    assert_eq!(call!(pin(g, fixture.memory.device_ptr(), LEN, 0, 0, &raw mut next)), 0);
    assert_eq!(call!(copy_to(next, bytes, [1_u8].as_ptr().cast(), 1)), EINVAL, "the next handle is not mapped");
    assert_eq!(close(other), 0);
    fixture.close()
}

#[test]
fn gdr_map() -> Result {
    let fixture = Fixture::new()?;
    let (g, handle) = (fixture.g, fixture.handle);
    let mut va = null_mut();
    for (g, handle, size) in [(null_mut(), handle, 1), (g, NO_HANDLE, 1), (g, handle, 0), (g, handle, 5 * PAGE)] {
        assert_eq!(call!(map(g, handle, &raw mut va, size)), EINVAL, "{size} bytes");
    }
    assert_eq!(call!(map(g, handle, null_mut(), PAGE)), EINVAL);
    assert!(va.is_null(), "a failure writes nothing");
    let (_, bytes) = fixture.map()?;
    let host = fixture.memory.host_ptr().ok_or("no host view")?;
    assert_eq!(bytes.addr(), host.addr().get());
    assert_eq!(call!(map(g, handle, &raw mut va, PAGE)), EAGAIN, "twice");
    fixture.close()
}

#[test]
fn gdr_map_v2() -> Result {
    let fixture = Fixture::new()?;
    let (g, handle) = (fixture.g, fixture.handle);
    let (mut va, real) = (null_mut(), if fixture.memory.is_cached() { 2 } else { 1 });
    for flags in [-1, 3 - real, 3, 4] {
        assert_eq!(call!(map_v2(g, handle, &raw mut va, PAGE, flags)), EINVAL, "{flags}");
    }
    for flags in [0, real] {
        assert_eq!(call!(map_v2(g, handle, &raw mut va, PAGE, flags)), 0, "{flags}");
        assert_eq!(call!(map_v2(g, handle, &raw mut va, PAGE, flags)), EAGAIN);
        assert_eq!(unmap(g, handle, va, PAGE), 0);
    }
    fixture.close()
}

#[test]
fn gdr_unmap() -> Result {
    let fixture = Fixture::new()?;
    let (g, handle) = (fixture.g, fixture.handle);
    assert_eq!(unmap(g, handle, null_mut(), PAGE), EINVAL, "not mapped");
    let (va, bytes) = fixture.map()?;
    for (g, handle) in [(null_mut(), handle), (g, NO_HANDLE)] {
        assert_eq!(unmap(g, handle, va, PAGE), EINVAL);
    }
    assert_eq!(unmap(g, handle, va, 0), EINVAL);
    assert_eq!(unmap(g, handle, va, PAGE), 0);
    assert_eq!(unmap(g, handle, va, PAGE), EINVAL, "twice");
    assert_eq!(call!(copy_to(handle, bytes, [1_u8].as_ptr().cast(), 1)), EINVAL, "not mapped any more");
    assert_eq!(call!(copy_to(handle, bytes, null(), 0)), EINVAL, "not mapped, and no bytes");
    assert_eq!(call!(copy_from(handle, null_mut(), bytes, 0)), EINVAL, "not mapped, and no bytes");
    fixture.map()?;
    let device = std::ptr::with_exposed_provenance_mut(usize::try_from(fixture.memory.device_ptr())?);
    assert_eq!(unmap(g, handle, device, PAGE), 0, "as DPDK's GPU driver does");
    fixture.map()?;
    fixture.close()
}

#[test]
fn gdr_get_info_and_gdr_get_info_v2() -> Result {
    let fixture = Fixture::new()?;
    let (g, handle, address) = (fixture.g, fixture.handle, fixture.memory.device_ptr());
    let gdr_info_v2_t { v1: before, mapping_type } = fixture.info()?;
    assert_eq!((before.va, before.page_size), (address, 65536));
    let end = before.va + before.mapped_size;
    assert!(end.is_multiple_of(65536) && end >= address + LEN as u64);
    assert_eq!((before.tm_cycles, before.cycles_per_ms, before.bits, mapping_type), (0, 0, 0, 0));
    fixture.map()?;
    let cached = fixture.memory.is_cached();
    let expected = if cached { (1, 2) } else { (3, 1) };
    let after = fixture.info()?;
    assert_eq!((after.v1.bits, after.mapping_type), expected);
    assert_eq!(call!(info(g, handle, null_mut())), EINVAL);
    let mut info = after;
    assert_eq!(call!(info(g, NO_HANDLE, &raw mut info)), EINVAL);
    assert_eq!(call!(info(null_mut(), handle, &raw mut info)), EINVAL);
    assert_eq!(info, after, "a failure writes nothing");
    // The second is what a program keeps behind the structure.
    let beside = gdr_info_v1_t { va: 1, bits: 7, ..Default::default() };
    let mut infos = [beside; 2];
    assert_eq!(call!(info_v1(g, handle, infos.as_mut_ptr())), 0);
    assert_eq!(call!(info_v1(g, handle, null_mut())), EINVAL);
    assert_eq!(call!(info_v1(g, NO_HANDLE, infos.as_mut_ptr())), EINVAL);
    assert_eq!(infos, [after.v1, beside], "a failure writes nothing");
    fixture.close()
}

#[test]
fn gdr_get_callback_flag() -> Result {
    let fixture = Fixture::new()?;
    let mut flag = 7;
    assert_eq!(call!(callback_flag(fixture.g, fixture.handle, &raw mut flag)), 0);
    assert_eq!(flag, 0);
    assert_eq!(call!(callback_flag(fixture.g, fixture.handle, null_mut())), EINVAL);
    assert_eq!(call!(callback_flag(fixture.g, NO_HANDLE, &raw mut flag)), EINVAL);
    let (g, handle) = (fixture.g, fixture.handle);
    drop(fixture.memory);
    assert_eq!(call!(callback_flag(g, handle, &raw mut flag)), 0);
    assert_eq!(flag, 0, "what is pinned is kept alive");
    assert_eq!(close(g), 0);
    Ok(())
}

#[test]
fn gdr_copy_to_mapping() -> Result {
    let fixture = Fixture::new()?;
    let (_, bytes) = fixture.map()?;
    let expected = pattern(LEN, 1);
    let source = expected.as_ptr().cast::<c_void>();
    assert_eq!(call!(copy_to(fixture.handle, bytes, source, LEN)), 0);
    assert!(device_read(fixture.memory.device_ptr(), LEN) == expected);
    for (offset, len) in [(1, 3), (LEN - 1, 1), (63, 130), (PAGE, PAGE)] {
        let new = pattern(len, offset as u64);
        assert_eq!(call!(copy_to(fixture.handle, bytes.wrapping_byte_add(offset), new.as_ptr().cast(), len)), 0);
        assert!(device_read(fixture.memory.device_ptr() + offset as u64, len) == new);
    }
    for to in [bytes, null_mut(), bytes.wrapping_byte_sub(1), bytes.wrapping_byte_add(2 * LEN)] {
        assert_eq!(call!(copy_to(fixture.handle, to, null(), 0)), 0, "no bytes to {to:?}");
    }
    // What the device wrote beside the bytes stays.
    let mut expected = pattern(LEN, 3);
    support::cuda::memcpy_htod(fixture.memory.device_ptr(), &expected);
    expected[700..1900].fill(9);
    assert_eq!(call!(copy_to(fixture.handle, bytes.wrapping_byte_add(700), expected[700..].as_ptr().cast(), 1200)), 0);
    assert!(device_read(fixture.memory.device_ptr(), LEN) == expected);
    let beyond = bytes.wrapping_byte_add(LEN - 1);
    for (handle, to, from, len) in [
        (NO_HANDLE, bytes, source, 1),
        (fixture.handle, bytes, null(), 1),
        (fixture.handle, null_mut(), source, 1),
        (fixture.handle, beyond, source, 2),
        (fixture.handle, bytes.wrapping_byte_sub(1), source, 1),
        (fixture.handle, bytes, source, usize::MAX),
    ] {
        assert_eq!(call!(copy_to(handle, to, from, len)), EINVAL, "{len} bytes to {to:?}");
    }
    fixture.close()
}

#[test]
fn gdr_copy_from_mapping() -> Result {
    let fixture = Fixture::new()?;
    let (_, bytes) = fixture.map()?;
    let expected = pattern(LEN, 2);
    support::cuda::memcpy_htod(fixture.memory.device_ptr(), &expected);
    let mut found = vec![0_u8; LEN];
    let target = found.as_mut_ptr().cast::<c_void>();
    assert_eq!(call!(copy_from(fixture.handle, target, bytes, LEN)), 0);
    assert!(found == expected);
    let (mut few, part) = ([0_u8; 3], bytes.wrapping_byte_add(PAGE + 1));
    assert_eq!(call!(copy_from(fixture.handle, few.as_mut_ptr().cast(), part, 3)), 0);
    assert_eq!(few[..], expected[PAGE + 1..PAGE + 4]);
    for from in [bytes, null_mut(), bytes.wrapping_byte_sub(1), bytes.wrapping_byte_add(2 * LEN)] {
        assert_eq!(call!(copy_from(fixture.handle, null_mut(), from, 0)), 0, "no bytes from {from:?}");
    }
    for (handle, to, from, len) in [
        (NO_HANDLE, target, bytes, 1),
        (fixture.handle, null_mut(), bytes, 1),
        (fixture.handle, target, null_mut(), 1),
        (fixture.handle, target, bytes, LEN + 1),
        (fixture.handle, target, bytes, usize::MAX),
    ] {
        assert_eq!(call!(copy_from(handle, to, from, len)), EINVAL, "{len} bytes from {from:?}");
    }
    fixture.close()
}

#[test]
fn gdr_runtime_get_version_and_gdr_driver_get_version() -> Result {
    let (g, mut major, mut minor) = (open(), 0, 0);
    call!(runtime_version(&raw mut major, &raw mut minor));
    assert_eq!((major, minor), (2, 6));
    call!(runtime_version(null_mut(), null_mut()));
    (major, minor) = (0, 0);
    assert_eq!(call!(driver_version(g, &raw mut major, &raw mut minor)), 0);
    assert_eq!((major, minor), (2, 6));
    assert_eq!(call!(driver_version(g, null_mut(), &raw mut minor)), EINVAL);
    assert_eq!(close(g), 0);
    assert_eq!(call!(driver_version(g, &raw mut major, &raw mut minor)), EINVAL);
    Ok(())
}

#[test]
fn gdr_get_attribute() -> Result {
    let (_context, gpu) = support::open(OpenFlags::empty())?;
    let (g, mut value) = (open(), 7);
    for (attribute, expected) in [(1, 1), (2, 1), (3, gpu.supports_existing()?.into())] {
        assert_eq!(call!(attribute(g, attribute, &raw mut value)), 0);
        assert_eq!(value, expected, "attribute {attribute}");
        assert_eq!(call!(attribute(g, attribute, null_mut())), EINVAL);
        assert_eq!(call!(attribute(null_mut(), attribute, &raw mut value)), EINVAL);
    }
    for attribute in [-1, 0, 4] {
        value = 7;
        assert_eq!(call!(attribute(g, attribute, &raw mut value)), EINVAL, "attribute {attribute}");
        assert_eq!(value, 0, "attribute {attribute}");
    }
    assert_eq!(close(g), 0);
    Ok(())
}

#[test]
fn gdr_get_mapping_type_string() -> Result {
    let mut texts = Vec::new();
    for mapping_type in 0..4 {
        let mut text = null();
        assert_eq!(call!(type_string(mapping_type, &raw mut text)), 0);
        // SAFETY: a static string.
        texts.push(unsafe { CStr::from_ptr(text) }.to_str()?);
        assert_eq!(call!(type_string(mapping_type, null_mut())), EINVAL);
    }
    assert_eq!(texts, ["None", "Write Combining", "Caching", "Device"]);
    let mut text = null();
    assert_eq!(call!(type_string(4, &raw mut text)), EINVAL);
    assert_eq!(call!(type_string(-1, &raw mut text)), EINVAL);
    assert!(text.is_null());
    Ok(())
}

#[test]
fn memory_of_a_pool_is_pinned_and_kept_from_reuse() -> Result {
    let (context, gpu) = support::open(OpenFlags::empty())?;
    let pool = Pool::new(&gpu, PoolOptions::new(kind(&gpu)))?;
    let fixture = Fixture::of(pool.allocate(1000)?, context)?;
    let (_, bytes) = fixture.map()?;
    assert_eq!(call!(copy_to(fixture.handle, bytes, pattern(1000, 5).as_ptr().cast(), 1000)), 0);
    let (g, handle) = (fixture.g, fixture.handle);
    drop(fixture.memory);
    for _ in 0..100 {
        pool.allocate(1000)?.write(0, &[0_u8; 1000])?;
    }
    let mut found = [0_u8; 1000];
    assert_eq!(call!(copy_from(handle, found.as_mut_ptr().cast(), bytes, 1000)), 0);
    assert!(found[..] == pattern(1000, 5));
    assert_eq!(close(g), 0);
    assert_eq!(pool.used_chunks(), 0);
    Ok(())
}

#[test]
fn a_forked_child_can_release_what_it_inherited_and_nothing_else() -> Result {
    let fixture = Fixture::new()?;
    let (va, bytes) = fixture.map()?;
    let (g, handle, address) = (fixture.g, fixture.handle, fixture.memory.device_ptr());
    assert_eq!(call!(copy_to(handle, bytes, pattern(100, 9).as_ptr().cast(), 100)), 0);
    in_quiet_child(|| {
        let (mut new, mut again) = (NO_HANDLE, null_mut());
        assert!(open().is_null());
        assert_eq!(call!(pin(g, address, 1, 0, 0, &raw mut new)), ENODEV);
        assert_eq!(unmap(g, handle, va, PAGE), 0);
        assert_eq!(call!(map(g, handle, &raw mut again, PAGE)), ENODEV);
        assert_eq!(unpin(g, handle), 0);
        assert_eq!(close(g), 0);
        Ok(())
    })?;
    let mut found = [0_u8; 100];
    assert_eq!(call!(copy_from(handle, found.as_mut_ptr().cast(), bytes, 100)), 0);
    assert!(found[..] == pattern(100, 9));
    fixture.close()
}
