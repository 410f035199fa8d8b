//! Accesses for every architecture: byte atomics, the only ones in Rust that may race with accesses of any width.
#![expect(unsafe_code, reason = "copies through raw pointers")]

use std::sync::atomic::{AtomicU8, Ordering};

use super::accesses::Accesses;
use crate::allocation::LINE;

pub(super) struct Portable;

impl Accesses for Portable {
    const LOAD: usize = 1;
    const STORE: usize = 1;

    unsafe fn store(_width: usize, target: *mut u8, source: *const u8) {
        // SAFETY: the private byte is mapped, by the trait's contract.
        let byte = unsafe { source.read() };
        // SAFETY: the shared byte is mapped, by the trait's contract.
        unsafe { shared_byte(target) }.store(byte, Ordering::Relaxed);
    }

    unsafe fn store_lines(target: *mut u8, source: *const u8, lines: usize) {
        for index in 0..lines * LINE {
            // SAFETY: `index` is within the lines on both sides.
            unsafe { Self::store(1, target.wrapping_add(index), source.wrapping_add(index)) };
        }
    }

    unsafe fn load(target: *mut u8, source: *const u8) {
        // SAFETY: the shared byte is mapped, by the trait's contract.
        let byte = unsafe { shared_byte(source.cast_mut()) }.load(Ordering::Relaxed);
        // SAFETY: the private byte is mapped, by the trait's contract.
        unsafe { target.write(byte) };
    }

    unsafe fn load_lines(target: *mut u8, source: *const u8, lines: usize) {
        for index in 0..lines * LINE {
            // SAFETY: `index` is within the lines on both sides.
            unsafe { Self::load(target.wrapping_add(index), source.wrapping_add(index)) };
        }
    }
}

/// # Safety
///
/// The byte must be mapped, and no mutable Rust reference to it exist.
unsafe fn shared_byte<'a>(pointer: *mut u8) -> &'a AtomicU8 {
    // SAFETY: mapped, and bytes are always aligned.
    unsafe { AtomicU8::from_ptr(pointer) }
}
