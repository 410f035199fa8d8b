//! Copies for x86-64: what its instruction sets share, and which of them this CPU has.
#![expect(unsafe_code, reason = "stores by assembly, and asks the CPU what it has")]

pub(super) mod avx2;
pub(super) mod avx512;
pub(super) mod movdir64b;
pub(super) mod sse41;

use std::arch::asm;
use std::arch::x86_64::__cpuid_count;
use std::is_x86_feature_detected as has;

use super::{CopyRoutine, Table};
use avx2::Avx2;
use avx512::Avx512;
use movdir64b::Movdir64b;
use sse41::Sse41;

/// The functions of a routine for x86-64, if this CPU has its instructions and the system keeps its registers.
pub(super) fn table(routine: CopyRoutine) -> Option<&'static Table> {
    const SSE41: &Table = &Table::planned::<Sse41>();
    const AVX2: &Table = &Table::planned::<Avx2>();
    const AVX512: &Table = &Table::planned::<Avx512>();
    const DIRECT_SSE41: &Table = &Table::planned::<Movdir64b<Sse41>>();
    const DIRECT_AVX2: &Table = &Table::planned::<Movdir64b<Avx2>>();
    const DIRECT_AVX512: &Table = &Table::planned::<Movdir64b<Avx512>>();

    let loads = [
        (has!("sse4.1"), SSE41, DIRECT_SSE41),
        (has!("avx2"), AVX2, DIRECT_AVX2),
        (has!("avx512f") && has!("avx2"), AVX512, DIRECT_AVX512),
    ];
    let table = |index: usize| loads[index].0.then_some(loads[index].1);
    match routine {
        CopyRoutine::Sse41 => table(0),
        CopyRoutine::Avx2 => table(1),
        CopyRoutine::Avx512 => table(2),
        CopyRoutine::Movdir64b if has_movdir64b() => loads.iter().rev().find(|loads| loads.0).map(|loads| loads.2),
        _ => None,
    }
}

/// Leaf 7, ECX, bit 28 (Intel's Software Developer's Manual, volume 2, "CPUID").
fn has_movdir64b() -> bool {
    #[allow(unused_unsafe, reason = "newer compilers know that every x86-64 CPU has the instruction")]
    // SAFETY: every x86-64 CPU has CPUID.
    let (leaves, features) = unsafe { (__cpuid_count(0, 0).eax, __cpuid_count(7, 0).ecx) };
    leaves >= 7 && features & 1 << 28 != 0
}

/// Stores 1, 2, 4, 8 or 16 bytes, for every x86-64 CPU.
///
/// # Safety
///
/// The bytes must be mapped on both sides, and `target` be aligned to `width`.
#[inline]
unsafe fn store(width: usize, target: *mut u8, source: *const u8) {
    match width {
        1 => {
            // SAFETY: by this function's contract; so are those below.
            unsafe {
                asm!("mov {v}, byte ptr [{s}]", "mov byte ptr [{t}], {v}", v = out(reg_byte) _, s = in(reg) source,
                    t = in(reg) target, options(nostack, preserves_flags));
            }
        }
        2 => {
            // SAFETY: as above.
            unsafe {
                asm!("mov {v:x}, word ptr [{s}]", "mov word ptr [{t}], {v:x}", v = out(reg) _, s = in(reg) source,
                    t = in(reg) target, options(nostack, preserves_flags));
            }
        }
        4 => {
            // SAFETY: as above.
            unsafe {
                asm!("mov {v:e}, dword ptr [{s}]", "mov dword ptr [{t}], {v:e}", v = out(reg) _, s = in(reg) source,
                    t = in(reg) target, options(nostack, preserves_flags));
            }
        }
        8 => {
            // SAFETY: as above.
            unsafe {
                asm!("mov {v}, qword ptr [{s}]", "mov qword ptr [{t}], {v}", v = out(reg) _, s = in(reg) source,
                    t = in(reg) target, options(nostack, preserves_flags));
            }
        }
        _ => {
            debug_assert_eq!(width, 16);
            // SAFETY: as above.
            unsafe {
                asm!("movups {v}, [{s}]", "movaps [{t}], {v}", v = out(xmm_reg) _, s = in(reg) source,
                    t = in(reg) target, options(nostack, preserves_flags));
            }
        }
    }
}

/// Orders the CPU's earlier stores, write-combined, non-temporal and direct ones included, before its later ones.
#[inline]
pub(super) fn store_fence() {
    // SAFETY: a barrier has no operands and no effect but on order; every x86-64 CPU has this one.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) };
}

/// Orders whatever the CPU did earlier before its later loads, streaming ones included.
///
/// Streaming loads from write-combined memory may be carried out before earlier loads, and find what an earlier one
/// left in a buffer: MFENCE is what Intel names to order them after another agent's writes (Software Developer's Manual,
/// volume 1, "Streaming Load Hint Instruction").
#[inline]
pub(super) fn load_fence() {
    // SAFETY: as in `store_fence`.
    unsafe { asm!("mfence", options(nostack, preserves_flags)) };
}

/// Nothing: plain stores to cached memory are seen in the order of the program (Software Developer's Manual, volume 3,
/// "Memory Ordering").
#[inline]
pub(super) const fn cached_store_fence() {}

/// Nothing: plain loads of cached memory are carried out in the order of the program.
#[inline]
pub(super) const fn cached_load_fence() {}
