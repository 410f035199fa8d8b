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

#[test]
fn mapped_memory_has_atoms_of_256_bytes_and_required_coherent_memory_is_refused() -> Result {
    on_mapped(|memory| {
        assert_eq!((memory.is_coherent(), memory.non_coherent_atom_size()), (false, ATOM));
        assert!(Memory::allocate(memory.owner(), LEN, MemoryKind::Host)?.is_coherent());
        let error = refused(Vkgdr::open(0, OpenFlags::REQUIRE_COHERENT));
        assert_says(&error, &["no mapped memory", "HOST_COHERENT", "open without REQUIRE_COHERENT"]);
        assert!(!error.to_string().contains("BAR"), "{error}");
        // Fresh memory shows the host nothing of the device.
        let memory = Memory::allocate(memory.owner(), LEN, MemoryKind::Mapped)?;
        let before = device_read(memory.device_ptr() + 100, 1)[0];
        assert_ne!(load(&memory, 100)?, before);
        memory.invalidate(100..101)?;
        assert_eq!(load(&memory, 100)?, before);
        Ok(())
    })
}

/// The bytes of atoms that each have one value.
fn atoms(values: [u8; 4]) -> Vec<u8> {
    values.map(|value| [value; ATOM]).concat()
}

#[test]
fn what_is_not_flushed_never_reaches_the_device_and_whole_atoms_are_flushed() -> Result {
    on_mapped(|memory| {
        store(memory, 10, 7)?;
        memory.write(20, &[8_u8; 4])?;
        assert_eq!(device_read(memory.device_ptr(), LEN), [0; LEN]);
        memory.invalidate(..)?;
        assert_eq!((load(memory, 10)?, load(memory, 20)?), (0, 0), "an invalidate loses it");
        (0..LEN).try_for_each(|offset| store(memory, offset, 5))?;
        for (byte, expected) in [(2 * ATOM - 1, [0, 5, 0, 0]), (2 * ATOM, [0, 5, 5, 0])] {
            memory.flush(byte..=byte)?;
            assert_eq!(device_read(memory.device_ptr(), LEN), atoms(expected), "the flush of byte {byte}");
        }
        Ok(())
    })
}

#[test]
fn what_the_device_writes_is_seen_after_an_invalidate_of_whole_atoms() -> Result {
    on_mapped(|memory| {
        cuda::memset_d8(memory.device_ptr(), 6, LEN);
        cuda::synchronize();
        let seen = || (0..LEN).map(|offset| load(memory, offset)).collect::<Result<Vec<_>>>();
        assert_eq!(seen()?, atoms([0; 4]));
        memory.invalidate(2 * ATOM - 1..=2 * ATOM)?;
        assert_eq!(seen()?, atoms([0, 6, 6, 0]));
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
