//! Copies for x86-64: blocks of 64 bytes by SSE2 loads and stores, which every such CPU has, the rest by string
//! moves.
#![expect(unsafe_code, reason = "copies by assembly")]

use std::arch::asm;
use std::arch::x86_64::_mm_sfence;

/// See [`copy::write`](super::write).
///
/// # Safety
///
/// As there.
pub(super) unsafe fn write(target: *mut u8, source: &[u8]) {
    // SAFETY: by this function's contract.
    unsafe { copy(target, source.as_ptr(), source.len()) };
}

/// See [`copy::read`](super::read).
///
/// # Safety
///
/// As there.
pub(super) unsafe fn read(source: *const u8, target: &mut [u8]) {
    // SAFETY: by this function's contract.
    unsafe { copy(target.as_mut_ptr(), source, target.len()) };
}

/// Copies `len` bytes, which must not overlap.
///
/// # Safety
///
/// The bytes on both sides must be mapped.
unsafe fn copy(mut target: *mut u8, mut source: *const u8, len: usize) {
    let blocks = len / 64;
    if blocks > 0 {
        // SAFETY: `blocks * 64` bytes are within both sides; the counter starts above 0.
        unsafe {
            asm!(
                "2:",
                "movups {a}, [{source}]",
                "movups {b}, [{source} + 16]",
                "movups {c}, [{source} + 32]",
                "movups {d}, [{source} + 48]",
                "movups [{target}], {a}",
                "movups [{target} + 16], {b}",
                "movups [{target} + 32], {c}",
                "movups [{target} + 48], {d}",
                "add {source}, 64",
                "add {target}, 64",
                "dec {blocks}",
                "jnz 2b",
                source = inout(reg) source,
                target = inout(reg) target,
                blocks = inout(reg) blocks => _,
                a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
                options(nostack),
            );
        }
    }
    let (words, bytes) = (len % 64 / 8, len % 8);
    // SAFETY: the words and bytes are what the blocks left of both sides; the ABI keeps the direction flag clear.
    unsafe {
        asm!(
            "rep movsq",
            "mov rcx, {bytes}",
            "rep movsb",
            bytes = in(reg) bytes,
            inout("rcx") words => _,
            inout("rdi") target => _,
            inout("rsi") source => _,
            options(nostack, preserves_flags),
        );
    }
}

/// Orders the CPU's earlier stores, write-combined ones included, before its later ones.
#[inline]
pub(in crate::access) fn store_fence() {
    // SAFETY: every x86-64 CPU has SSE.
    unsafe { _mm_sfence() };
}
