//! x86-64: the stores and fences that its instruction sets share, and the routines that this CPU supports.
#![expect(unsafe_code, reason = "stores by assembly, and asks the CPU for its features")]

pub(super) mod avx2;
pub(super) mod avx512;
pub(super) mod sse41;

use std::arch::asm;
use std::is_x86_feature_detected as has;

use super::{CopyRoutine, Table};
use avx2::Avx2;
use avx512::Avx512;
use sse41::Sse41;

/// The functions of a routine for x86-64, if this CPU has its instructions and the system keeps its registers.
pub(super) fn table(routine: CopyRoutine) -> Option<&'static Table> {
    const SSE41: &Table = &Table::from_accesses::<Sse41>();
    const AVX2: &Table = &Table::from_accesses::<Avx2>();
    const AVX512: &Table = &Table::from_accesses::<Avx512>();

    match routine {
        CopyRoutine::Sse41 if has!("sse4.1") => Some(SSE41),
        CopyRoutine::Avx2 if has!("avx2") => Some(AVX2),
        CopyRoutine::Avx512 if has!("avx512bw") => Some(AVX512),
        _ => None,
    }
}

/// Stores 1, 2, 4, 8 or 16 bytes, for every x86-64 CPU.
///
/// # Safety
///
/// The bytes must be mapped on both sides, and `target` be aligned to `width`.
#[inline(always)]
unsafe fn store(width: usize, target: *mut u8, source: *const u8) {
    macro_rules! moved {
        ($class:ident, $load:literal, $store:literal) => {
            // SAFETY: by this function's contract.
            unsafe {
                asm!($load, $store, v = out($class) _, s = in(reg) source, t = in(reg) target,
                    options(nostack, preserves_flags));
            }
        };
    }
    debug_assert!(width.is_power_of_two() && width <= 16);
    match width {
        1 => moved!(reg_byte, "mov {v}, byte ptr [{s}]", "mov byte ptr [{t}], {v}"),
        2 => moved!(reg, "mov {v:x}, word ptr [{s}]", "mov word ptr [{t}], {v:x}"),
        4 => moved!(reg, "mov {v:e}, dword ptr [{s}]", "mov dword ptr [{t}], {v:e}"),
        8 => moved!(reg, "mov {v}, qword ptr [{s}]", "mov qword ptr [{t}], {v}"),
        _ => moved!(xmm_reg, "movups {v}, [{s}]", "movaps [{t}], {v}"),
    }
}

/// Orders the CPU's earlier stores, write-combined, non-temporal ones included, before its later ones.
#[inline]
pub(super) fn store_fence() {
    // SAFETY: a barrier has no operands and no effect but on order; every x86-64 CPU has this one.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) };
}

/// Orders this thread's earlier loads before its later ones, streaming ones included: no later instruction begins before
/// it, and it ends when the earlier ones have their data (Software Developer's Manual, volume 2, "LFENCE"). Loads of
/// write-combined memory may otherwise be speculative and out of order (volume 3, "Methods of Caching Available"; AMD64
/// Architecture Programmer's Manual, volume 2, "Read Ordering").
#[inline]
pub(super) fn load_fence() {
    // SAFETY: as in `store_fence`.
    unsafe { asm!("lfence", options(nostack, preserves_flags)) };
}

/// Nothing: plain stores to cached memory are seen in the order of the program (Software Developer's Manual, volume 3,
/// "Memory Ordering").
#[inline]
pub(super) const fn cached_store_fence() {}

/// Nothing: plain loads of cached memory are carried out in the order of the program.
#[inline]
pub(super) const fn cached_load_fence() {}
