//! Non-coherent memory: when writes become visible in the other view.

use std::ptr::NonNull;

use support::{Result, assert_says, cuda, device_read, refused};
use vkgdr::{Memory, MemoryKind, OpenFlags, Vkgdr};

use crate::under;

const NONE: OpenFlags = OpenFlags::empty();
const ATOM: usize = 256;
const LEN: usize = 4 * ATOM;

/// Runs a check on mapped memory that is zero in both views.
fn on_mapped(check: impl Fn(&Memory) -> Result) -> Result {
    under("non-coherent", || {
        let (_context, gpu) = support::open(NONE)?;
        let memory = Memory::allocate(&gpu, LEN, MemoryKind::Mapped)?;
        cuda::memset_d8(memory.device_ptr(), 0, LEN);
        cuda::synchronize();
        memory.invalidate(..)?;
        check(&memory)
    })
}

fn pointer(memory: &Memory, offset: usize) -> Result<NonNull<u8>> {
    assert!(offset < memory.len());
    let base = memory.host_ptr().ok_or("no host view")?;
    // SAFETY: within the memory.
    Ok(unsafe { base.add(offset) })
}

/// Writes without this crate's accessors.
fn store(memory: &Memory, offset: usize, value: u8) -> Result {
    // SAFETY: mapped, and within the memory.
    unsafe { pointer(memory, offset)?.write_volatile(value) };
    Ok(())
}

fn load(memory: &Memory, offset: usize) -> Result<u8> {
    // SAFETY: mapped, and within the memory.
    Ok(unsafe { pointer(memory, offset)?.read_volatile() })
}

fn on_device(memory: &Memory, offset: usize) -> u8 {
    device_read(memory.device_ptr() + offset as u64, 1)[0]
}

#[test]
fn mapped_memory_has_atoms_of_256_bytes_and_host_memory_is_coherent() -> Result {
    on_mapped(|memory| {
        assert!(!memory.is_coherent());
        assert_eq!(memory.non_coherent_atom_size(), ATOM);
        assert!(Memory::allocate(memory.owner(), LEN, MemoryKind::Host)?.is_coherent());
        Ok(())
    })
}

#[test]
fn required_coherent_memory_is_refused_with_what_to_do() -> Result {
    under("non-coherent", || {
        let error = refused(Vkgdr::open(0, OpenFlags::REQUIRE_COHERENT));
        assert_says(&error, &["no mapped memory", "HOST_COHERENT", "open without REQUIRE_COHERENT"]);
        assert!(!error.to_string().contains("BAR"), "{error}");
        Ok(())
    })
}

#[test]
fn a_write_that_is_not_flushed_never_reaches_the_device() -> Result {
    on_mapped(|memory| {
        store(memory, 10, 7)?;
        memory.write(20, &[8_u8; 4])?;
        assert_eq!(device_read(memory.device_ptr(), LEN), [0; LEN]);
        memory.invalidate(..)?;
        assert_eq!((load(memory, 10)?, load(memory, 20)?), (0, 0), "an invalidate loses it");
        store(memory, 10, 7)?;
        memory.flush(10..11)?;
        assert_eq!(on_device(memory, 10), 7);
        Ok(())
    })
}

#[test]
fn what_the_device_writes_is_not_seen_before_an_invalidate() -> Result {
    on_mapped(|memory| {
        cuda::memset_d8(memory.device_ptr() + 10, 9, 1);
        cuda::synchronize();
        assert_eq!(load(memory, 10)?, 0);
        memory.invalidate(10..11)?;
        assert_eq!(load(memory, 10)?, 9);
        Ok(())
    })
}

#[test]
fn fresh_memory_shows_the_host_nothing_of_the_device() -> Result {
    under("non-coherent", || {
        let (_context, gpu) = support::open(NONE)?;
        let memory = Memory::allocate(&gpu, LEN, MemoryKind::Mapped)?;
        let before = on_device(&memory, 100);
        assert_ne!(load(&memory, 100)?, before);
        memory.invalidate(100..101)?;
        assert_eq!(load(&memory, 100)?, before);
        Ok(())
    })
}

#[test]
fn whole_atoms_are_flushed_and_their_neighbours_are_not() -> Result {
    on_mapped(|memory| {
        (0..LEN).try_for_each(|offset| store(memory, offset, 5))?;
        memory.flush(2 * ATOM - 1..2 * ATOM)?;
        let expected = [[0; ATOM], [5; ATOM], [0; ATOM], [0; ATOM]].concat();
        assert_eq!(device_read(memory.device_ptr(), LEN), expected);
        memory.flush(2 * ATOM..2 * ATOM + 1)?;
        assert_eq!((on_device(memory, 3 * ATOM - 1), on_device(memory, 3 * ATOM)), (5, 0));
        Ok(())
    })
}

#[test]
fn whole_atoms_are_invalidated_and_their_neighbours_are_not() -> Result {
    on_mapped(|memory| {
        cuda::memset_d8(memory.device_ptr(), 6, LEN);
        cuda::synchronize();
        memory.invalidate(2 * ATOM - 1..2 * ATOM + 1)?;
        let seen: Vec<u8> = (0..LEN).map(|offset| load(memory, offset)).collect::<Result<_>>()?;
        assert_eq!(seen, [[0; ATOM], [6; ATOM], [6; ATOM], [0; ATOM]].concat());
        Ok(())
    })
}

#[test]
fn each_import_has_a_view_of_its_own() -> Result {
    on_mapped(|memory| {
        let other = support::import(memory.owner(), memory.export_fd()?, memory)?;
        store(memory, 10, 3)?;
        other.invalidate(..)?;
        assert_eq!(load(&other, 10)?, 0, "nothing was flushed");
        memory.flush(..)?;
        assert_eq!(load(&other, 10)?, 0, "nothing was invalidated");
        other.invalidate(..)?;
        assert_eq!(load(&other, 10)?, 3);
        Ok(())
    })
}
