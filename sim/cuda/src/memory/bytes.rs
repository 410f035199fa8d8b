#![expect(unsafe_code, reason = "the only file that touches the bytes of simulated device memory")]
//! Copies, fills and accesses of single words at checked addresses.
//!
//! Every address here is either inside a pinned range of the memory table, which cannot be unmapped while it is
//! pinned, or pageable host memory that the caller of a driver function promised to be valid. Host and device
//! may access the same bytes at the same time, as on real hardware; the values read are then unspecified.

use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::quiet;

/// Copies `len` bytes; the ranges may overlap.
pub(crate) fn copy(target: usize, source: usize, len: usize) {
    let _in_place = quiet::copying();
    copy_unguarded(target, source, len);
}

/// [`copy`] of bytes whose pages are not exchanged meanwhile.
pub(crate) fn copy_unguarded(target: usize, source: usize, len: usize) {
    let source = with_exposed_provenance::<u8>(source);
    let target = with_exposed_provenance_mut::<u8>(target);
    // SAFETY: both ranges hold `len` valid bytes (see the module), and `copy` allows overlap.
    unsafe { source.copy_to(target, len) }
}

/// Fills `count` elements with one pattern of 1, 2 or 4 bytes.
pub(crate) fn fill(target: usize, pattern: Pattern, count: usize) {
    let _in_place = quiet::copying();
    match pattern {
        // SAFETY: the range holds `count` valid bytes (see the module).
        Pattern::Byte(value) => unsafe { with_exposed_provenance_mut::<u8>(target).write_bytes(value, count) },
        Pattern::Half(value) => fill_words(target, &value.to_ne_bytes(), count),
        Pattern::Word(value) => fill_words(target, &value.to_ne_bytes(), count),
    }
}

fn fill_words(target: usize, pattern: &[u8], count: usize) {
    // One row of repeated patterns, copied repeatedly: fast enough without assuming an alignment.
    let row = pattern.repeat(count.min(4096));
    let total = count * pattern.len();
    let start = row.as_ptr().expose_provenance();
    let mut done = 0;
    while done < total {
        let step = row.len().min(total - done);
        copy_unguarded(target + done, start, step);
        done += step;
    }
}

/// The element that a memset writes.
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

/// An address of a kernel as one of this process.
#[allow(clippy::cast_possible_truncation, reason = "the simulator is for 64-bit CPUs")]
pub(crate) fn host(address: u64) -> usize {
    address as usize
}

/// The accesses of one width, at an aligned address.
macro_rules! word {
    ($name:ident, $int:ty, $atomic:ty) => {
        mod $name {
            use super::*;

            fn at(address: usize) -> &'static $atomic {
                // SAFETY: valid, aligned bytes (see the module) that nobody keeps a reference to: the result is used
                // before the caller returns. All sides access them atomically, or as memory of another device.
                unsafe { <$atomic>::from_ptr(with_exposed_provenance_mut(address)) }
            }

            #[allow(clippy::cast_possible_truncation, reason = "only the low bytes are meant")]
            fn low(value: u64) -> $int {
                value as $int
            }

            pub(super) fn load(address: usize) -> u64 {
                u64::from(at(address).load(Ordering::Acquire))
            }

            pub(super) fn store(address: usize, value: u64) {
                at(address).store(low(value), Ordering::Release);
            }

            pub(super) fn load_lanes(addresses: &[u64; 32], values: &mut [u64; 32]) {
                for (value, address) in values.iter_mut().zip(addresses) {
                    *value = load(host(*address));
                }
            }

            pub(super) fn store_lanes(addresses: &[u64; 32], lanes: u32, values: &[u64; 32]) {
                for lane in ptx::members(lanes) {
                    store(host(addresses[lane]), values[lane]);
                }
            }

            pub(super) fn update(address: usize, mut change: impl FnMut(u64) -> u64) -> u64 {
                let next = |old| Some(low(change(u64::from(old))));
                #[allow(deprecated, reason = "its new name, try_update, needs Rust 1.95")]
                let old = at(address).fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
                u64::from(old.unwrap_or_else(|old| old))
            }

            pub(super) fn update_lanes(
                addresses: &[u64; 32],
                lanes: u32,
                change: &mut dyn FnMut(usize, u64) -> u64,
                old: &mut [u64; 32],
            ) {
                for lane in ptx::members(lanes) {
                    old[lane] = update(host(addresses[lane]), |value| change(lane, value));
                }
            }
        }
    };
}

word!(byte, u8, AtomicU8);
word!(half, u16, AtomicU16);
word!(single, u32, AtomicU32);
word!(double, u64, AtomicU64);

/// The value of `bytes` bytes (1, 2, 4 or 8) at an aligned address.
pub(crate) fn load(address: usize, bytes: usize) -> u64 {
    match bytes {
        1 => byte::load(address),
        2 => half::load(address),
        4 => single::load(address),
        _ => double::load(address),
    }
}

/// Stores the low `bytes` bytes (1, 2, 4 or 8) of `value` at an aligned address.
pub(crate) fn store(address: usize, bytes: usize, value: u64) {
    match bytes {
        1 => byte::store(address, value),
        2 => half::store(address, value),
        4 => single::store(address, value),
        _ => double::store(address, value),
    }
}

/// The value of `bytes` bytes (1, 2, 4 or 8) at each of the aligned addresses, which belong to the lanes of a warp.
pub(crate) fn load_lanes(addresses: &[u64; 32], bytes: u32, values: &mut [u64; 32]) {
    match bytes {
        1 => byte::load_lanes(addresses, values),
        2 => half::load_lanes(addresses, values),
        4 => single::load_lanes(addresses, values),
        _ => double::load_lanes(addresses, values),
    }
}

/// Stores the low `bytes` bytes (1, 2, 4 or 8) of each lane's value at its aligned address, for the lanes of a set.
pub(crate) fn store_lanes(addresses: &[u64; 32], lanes: u32, bytes: u32, values: &[u64; 32]) {
    match bytes {
        1 => byte::store_lanes(addresses, lanes, values),
        2 => half::store_lanes(addresses, lanes, values),
        4 => single::store_lanes(addresses, lanes, values),
        _ => double::store_lanes(addresses, lanes, values),
    }
}

/// Replaces the value of `bytes` bytes (1, 2, 4 or 8) at an aligned address by `change` of that value, in one atomic
/// step, and returns the old value. `change` is called again when another thread was faster.
pub(crate) fn update(address: usize, bytes: usize, change: &mut dyn FnMut(u64) -> u64) -> u64 {
    match bytes {
        1 => byte::update(address, change),
        2 => half::update(address, change),
        4 => single::update(address, change),
        _ => double::update(address, change),
    }
}

/// [`update`] for each lane of a set in order, at its aligned address.
pub(crate) fn update_lanes(
    addresses: &[u64; 32],
    lanes: u32,
    bytes: u32,
    change: &mut dyn FnMut(usize, u64) -> u64,
    old: &mut [u64; 32],
) {
    match bytes {
        1 => byte::update_lanes(addresses, lanes, change, old),
        2 => half::update_lanes(addresses, lanes, change, old),
        4 => single::update_lanes(addresses, lanes, change, old),
        _ => double::update_lanes(addresses, lanes, change, old),
    }
}
