//! MOVDIR64B: stores a whole line at once, never split or merged. Its loads are those of another instruction set.
#![expect(unsafe_code, reason = "accesses by assembly")]

use std::arch::asm;
use std::marker::PhantomData;

use super::super::accesses::Accesses;

/// With the loads, and the stores to parts of lines, of `L`.
pub(in crate::access::copy) struct Movdir64b<L>(PhantomData<L>);

impl<L: Accesses> Accesses for Movdir64b<L> {
    const LOAD: usize = L::LOAD;
    const STORE: usize = L::STORE;

    #[inline(always)]
    unsafe fn store(width: usize, target: *mut u8, source: *const u8) {
        // SAFETY: by the trait's contract.
        unsafe { L::store(width, target, source) };
    }

    unsafe fn store_lines(target: *mut u8, source: *const u8, lines: usize) {
        // SAFETY: the lines are mapped on both sides, the counter starts above 0.
        unsafe {
            asm!(
                "2:",
                "movdir64b {t}, [{s}]",
                "add {s}, 64",
                "add {t}, 64",
                "dec {lines}",
                "jnz 2b",
                s = inout(reg) source => _, t = inout(reg) target => _, lines = inout(reg) lines => _,
                options(nostack),
            );
        }
    }

    #[inline(always)]
    unsafe fn load(target: *mut u8, source: *const u8) {
        // SAFETY: by the trait's contract.
        unsafe { L::load(target, source) };
    }

    #[inline(always)]
    unsafe fn load_part(target: *mut u8, line: *const u8, skip: usize, len: usize) {
        // SAFETY: by the trait's contract.
        unsafe { L::load_part(target, line, skip, len) };
    }

    unsafe fn load_lines(target: *mut u8, source: *const u8, lines: usize) {
        // SAFETY: by the trait's contract.
        unsafe { L::load_lines(target, source, lines) };
    }
}
