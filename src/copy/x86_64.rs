//! x86-64: the accesses of SSE4.1, AVX2 and AVX-512, and the fences.
//!
//! Whole lines are read by streaming loads (MOVNTDQA), all loads of a line side by side. The CPU runs ahead and has several
//! lines in flight.
#![expect(unsafe_code, reason = "accesses by assembly")]

use std::arch::asm;

use super::accesses::{Accesses, moves, stores};
use crate::allocation::LINE;

/// The stores of every x86-64 CPU.
macro_rules! narrow_stores {
    () => {
        stores! {
            1 => reg_byte, "mov {v}, byte ptr [{s}]", "mov byte ptr [{t}], {v}";
            2 => reg, "mov {v:x}, word ptr [{s}]", "mov word ptr [{t}], {v:x}";
            4 => reg, "mov {v:e}, dword ptr [{s}]", "mov dword ptr [{t}], {v:e}";
            8 => reg, "mov {v}, qword ptr [{s}]", "mov qword ptr [{t}], {v}";
            _ => xmm_reg, "movups {v}, [{s}]", "movaps [{t}], {v}";
        }
    };
}

/// SSE4.1: 16 bytes at a time.
pub(super) struct Sse41;

impl Accesses for Sse41 {
    const LOAD: usize = 16;
    narrow_stores!();
    moves! {
        load("movdqa {v}, [{s}]", "movups [{t}], {v}"; v = out(xmm_reg) _);
        load_line(
            "movntdqa {a}, [{s}]", "movntdqa {b}, [{s} + 16]", "movntdqa {c}, [{s} + 32]", "movntdqa {d}, [{s} + 48]",
            "movups [{t}], {a}", "movups [{t} + 16], {b}", "movups [{t} + 32], {c}", "movups [{t} + 48], {d}";
            a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _
        );
    }
}

/// [`moves!`] by YMM registers. Each ends with VZEROUPPER, which spares the SSE code after it a transition penalty, and names
/// the registers that it clears as overwritten.
macro_rules! ymm_moves {
    ($($name:ident($($line:literal),+);)+) => {
        moves! {$(
            $name(
                $($line,)+ "vzeroupper";
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
                out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _
            );
        )+}
    };
}

/// AVX2: 32 bytes at a time.
pub(super) struct Avx2;

impl Accesses for Avx2 {
    const LOAD: usize = 32;
    narrow_stores!();
    ymm_moves! {
        store_line(
            "vmovups ymm0, [{s}]", "vmovups ymm1, [{s} + 32]", "vmovntdq [{t}], ymm0", "vmovntdq [{t} + 32], ymm1"
        );
        load("vmovdqa ymm0, [{s}]", "vmovups [{t}], ymm0");
        load_line(
            "vmovntdqa ymm0, [{s}]", "vmovntdqa ymm1, [{s} + 32]", "vmovups [{t}], ymm0", "vmovups [{t} + 32], ymm1"
        );
    }
}

/// AVX-512F and BW: a line at a time.
///
/// Only a register that AVX-512 added is used: it causes the SSE code afterwards no transition penalty.
pub(super) struct Avx512;

impl Accesses for Avx512 {
    const LOAD: usize = 64;
    narrow_stores!();
    moves! {
        store_line("vmovups zmm16, [{s}]", "vmovntdq [{t}], zmm16"; out("zmm16") _);
        load("vmovdqa64 zmm16, [{s}]", "vmovups [{t}], zmm16"; out("zmm16") _);
        load_line("vmovntdqa zmm16, [{s}]", "vmovups [{t}], zmm16"; out("zmm16") _);
    }

    /// One load, and one store under a mask of the wanted bytes. The bytes around them may be unmapped: masked bytes cause
    /// no fault (Software Developer's Manual, volume 2, "VMOVDQU8", exceptions type E4).
    #[inline(always)]
    unsafe fn load_part(target: *mut u8, line: *const u8, skip: usize, len: usize) {
        debug_assert!(len > 0 && skip + len <= LINE);
        let mask = (u64::MAX >> (LINE - len)) << skip;
        // SAFETY: by the trait's contract.
        unsafe {
            asm!(
                "kmovq k1, {mask}",
                "vmovdqa64 zmm16, [{s}]",
                "vmovdqu8 [{t}] {{k1}}, zmm16",
                s = in(reg) line, t = in(reg) target.wrapping_sub(skip), mask = in(reg) mask,
                out("k1") _, out("zmm16") _, options(nostack, preserves_flags),
            );
        }
    }
}

/// Orders the CPU's earlier stores, write-combined, non-temporal ones included, before its later ones. Plain stores to
/// cached memory are ordered without.
#[inline]
pub(super) fn store_fence(ordinary: bool) {
    if !ordinary {
        // SAFETY: a barrier has no operands and no effect but on order; every x86-64 CPU has this one.
        unsafe { asm!("sfence", options(nostack, preserves_flags)) };
    }
}

/// Orders this thread's earlier loads before its later ones, streaming ones included. No later instruction begins before
/// it, and it ends when the earlier loads have their data (Software Developer's Manual, volume 2, "LFENCE"). Loads of
/// write-combined memory may otherwise be speculative and unordered (volume 3, "Methods of Caching Available"; AMD64
/// Architecture Programmer's Manual, volume 2, "Read Ordering"). Plain loads of cached memory are ordered without.
#[inline]
pub(super) fn load_fence(ordinary: bool) {
    if !ordinary {
        // SAFETY: as in `store_fence`.
        unsafe { asm!("lfence", options(nostack, preserves_flags)) };
    }
}
