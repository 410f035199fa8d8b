//! Copies for every architecture, byte by byte.
#![expect(unsafe_code, reason = "copies through raw pointers")]

use std::sync::atomic::{AtomicU8, Ordering};

/// See [`copy::write`](super::write).
///
/// # Safety
///
/// As there.
pub(super) unsafe fn write(target: *mut u8, source: &[u8]) {
    for (index, &byte) in source.iter().enumerate() {
        // SAFETY: `index` is within the bytes at `target`.
        unsafe { shared_byte(target, index) }.store(byte, Ordering::Relaxed);
    }
}

/// See [`copy::read`](super::read).
///
/// # Safety
///
/// As there.
pub(super) unsafe fn read(source: *const u8, target: &mut [u8]) {
    for (index, byte) in target.iter_mut().enumerate() {
        // SAFETY: `index` is within the bytes at `source`.
        *byte = unsafe { shared_byte(source.cast_mut(), index) }.load(Ordering::Relaxed);
    }
}

/// # Safety
///
/// The byte must be mapped, and no mutable Rust reference to it exist.
unsafe fn shared_byte<'a>(base: *mut u8, index: usize) -> &'a AtomicU8 {
    // SAFETY: within the mapping by this function's contract.
    let pointer = unsafe { base.add(index) };
    // SAFETY: mapped, and bytes are always aligned.
    unsafe { AtomicU8::from_ptr(pointer) }
}

/// Orders the CPU's earlier stores, write-combined ones included, before its later ones, as a device on the bus sees
/// them.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(in crate::access) fn store_fence() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier has no operands and no effect but on order.
    unsafe {
        std::arch::asm!("dsb st", options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "aarch64"))]
    std::sync::atomic::fence(Ordering::SeqCst);
}
