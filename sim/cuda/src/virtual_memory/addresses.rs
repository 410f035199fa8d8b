#![expect(unsafe_code, reason = "reserves addresses, and maps files at them")]
//! Ranges of addresses: reserved without memory, mapped to a file, reserved again, given back.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::ptr::with_exposed_provenance_mut;

const NOTHING: libc::c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

/// Reserves `len` bytes at a multiple of `alignment`: at `wanted` if that is not 0 and free, else anywhere.
pub(super) fn reserve(len: usize, alignment: usize, wanted: usize) -> Option<usize> {
    if wanted != 0
        && wanted.is_multiple_of(alignment)
        && let Some(found) = none(wanted, len, libc::MAP_FIXED_NOREPLACE)
    {
        if found == wanted {
            return Some(found);
        }
        // A kernel before 4.17, for which the address is a hint.
        release(found, len);
    }
    let all = len.checked_add(alignment)?;
    let first = none(0, all, 0)?;
    let start = first.next_multiple_of(alignment);
    release(first, start - first);
    release(start + len, first + all - (start + len));
    Some(start)
}

// Inaccessible pages.
fn none(address: usize, len: usize, flags: libc::c_int) -> Option<usize> {
    let at = with_exposed_provenance_mut(address);
    // SAFETY: a new mapping, which replaces none, unless the flags say that it replaces this module's own.
    let pages = unsafe { libc::mmap(at, len, libc::PROT_NONE, NOTHING | flags, -1, 0) };
    (pages != libc::MAP_FAILED).then(|| pages.expose_provenance())
}

/// Maps the first `len` bytes of a file in a reserved range. Whether there was room.
pub(super) fn map(address: usize, len: usize, file: &OwnedFd) -> bool {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
    let at = with_exposed_provenance_mut(address);
    // SAFETY: replaces pages of a reservation, which nothing accesses.
    let pages = unsafe { libc::mmap(at, len, access, flags, file.as_raw_fd(), 0) };
    pages != libc::MAP_FAILED
}

/// Takes the memory from a part of a reserved range, which nothing accesses any more. Whether there was room.
pub(super) fn unmap(address: usize, len: usize) -> bool {
    none(address, len, libc::MAP_FIXED).is_some()
}

/// Gives addresses back.
pub(super) fn release(address: usize, len: usize) {
    if len > 0 {
        // SAFETY: pages of this module that nothing refers to any more.
        unsafe { libc::munmap(with_exposed_provenance_mut(address), len) };
    }
}
