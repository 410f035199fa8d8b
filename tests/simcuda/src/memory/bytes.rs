#![expect(unsafe_code, reason = "the only file that touches the bytes of simulated device memory")]
//! Copies, fills and single words at addresses that were checked before.
//!
//! Every address here is either inside a pinned range of the memory table, which cannot be unmapped while it is
//! pinned, or pageable host memory that the caller of a driver function promised to be valid. Host and device
//! may touch the same bytes at the same time, as with real hardware; what is read then is unspecified.

use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Copies `len` bytes; the ranges may overlap.
pub(crate) fn copy(target: usize, source: usize, len: usize) {
    let source = with_exposed_provenance::<u8>(source);
    let target = with_exposed_provenance_mut::<u8>(target);
    // SAFETY: both ranges hold `len` valid bytes (see the module), and `copy` allows overlap.
    unsafe { source.copy_to(target, len) }
}

/// Fills `count` elements with one pattern of 1, 2 or 4 bytes.
pub(crate) fn fill(target: usize, pattern: Pattern, count: usize) {
    match pattern {
        // SAFETY: the range holds `count` valid bytes (see the module).
        Pattern::Byte(value) => unsafe { with_exposed_provenance_mut::<u8>(target).write_bytes(value, count) },
        Pattern::Half(value) => fill_words(target, &value.to_ne_bytes(), count),
        Pattern::Word(value) => fill_words(target, &value.to_ne_bytes(), count),
    }
}

fn fill_words(target: usize, pattern: &[u8], count: usize) {
    // One row of repeated patterns, copied over and over: fast enough without assuming an alignment.
    let row = pattern.repeat(count.min(4096));
    let total = count * pattern.len();
    let start = row.as_ptr().expose_provenance();
    let mut done = 0;
    while done < total {
        let step = row.len().min(total - done);
        copy(target + done, start, step);
        done += step;
    }
}

/// What a memset writes.
#[derive(Clone, Copy)]
pub(crate) enum Pattern {
    Byte(u8),
    Half(u16),
    Word(u32),
}

impl Pattern {
    /// The element's size in bytes.
    pub(crate) fn size(self) -> usize {
        match self {
            Pattern::Byte(_) => 1,
            Pattern::Half(_) => 2,
            Pattern::Word(_) => 4,
        }
    }
}

/// The value of `bytes` bytes (4 or 8) at an aligned address.
pub(crate) fn load(address: usize, bytes: usize) -> u64 {
    if bytes == 4 {
        // SAFETY: four valid, aligned bytes, which all sides access atomically or as plain memory of another device.
        u64::from(unsafe { AtomicU32::from_ptr(with_exposed_provenance_mut(address)) }.load(Ordering::Acquire))
    } else {
        // SAFETY: eight valid, aligned bytes, as above.
        unsafe { AtomicU64::from_ptr(with_exposed_provenance_mut(address)) }.load(Ordering::Acquire)
    }
}

/// Stores the low `bytes` bytes (4 or 8) of `value` at an aligned address.
pub(crate) fn store(address: usize, bytes: usize, value: u64) {
    if bytes == 4 {
        let low = u32::try_from(value & u64::from(u32::MAX)).unwrap_or_default();
        // SAFETY: four valid, aligned bytes, as in `load`.
        unsafe { AtomicU32::from_ptr(with_exposed_provenance_mut(address)) }.store(low, Ordering::Release);
    } else {
        // SAFETY: eight valid, aligned bytes, as in `load`.
        unsafe { AtomicU64::from_ptr(with_exposed_provenance_mut(address)) }.store(value, Ordering::Release);
    }
}
