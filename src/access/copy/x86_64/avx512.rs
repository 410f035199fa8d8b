//! AVX-512F and BW: VMOVNTDQA and VMOVNTDQ, a line at a time.
//!
//! Only the registers that AVX-512 added are used: they cause the SSE code afterwards no transition penalty.
#![expect(unsafe_code, reason = "accesses by assembly")]

use std::arch::asm;

use super::super::accesses::Accesses;
use crate::allocation::LINE;

pub(in crate::access::copy) struct Avx512;

/// Names the registers that are used as overwritten. No class of operands names them without the feature at compile
/// time, but as overwritten they may be named.
macro_rules! avx512 {
    ($($line:literal,)* ; $($operands:tt)*) => {
        asm!(
            $($line,)*
            $($operands)*
            out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _,
            out("zmm20") _, out("zmm21") _, out("zmm22") _, out("zmm23") _,
            options(nostack),
        )
    };
}

impl Accesses for Avx512 {
    const LOAD: usize = 64;
    const STORE: usize = 16;

    #[inline(always)]
    unsafe fn store(width: usize, target: *mut u8, source: *const u8) {
        // SAFETY: by the trait's contract.
        unsafe { super::store(width, target, source) };
    }

    unsafe fn store_lines(target: *mut u8, source: *const u8, lines: usize) {
        // SAFETY: the lines are mapped on both sides, the counter starts above 0.
        unsafe {
            avx512!(
                "2:",
                "vmovups zmm16, [{s}]",
                "vmovntdq [{t}], zmm16",
                "add {s}, 64",
                "add {t}, 64",
                "dec {lines}",
                "jnz 2b",
                ; s = inout(reg) source => _, t = inout(reg) target => _, lines = inout(reg) lines => _,
            );
        }
    }

    #[inline(always)]
    unsafe fn load(target: *mut u8, source: *const u8) {
        // SAFETY: by the trait's contract.
        unsafe {
            avx512!(
                "vmovdqa64 zmm16, [{s}]",
                "vmovups [{t}], zmm16",
                ; s = in(reg) source, t = in(reg) target,
            );
        }
    }

    /// One load, and one store under a mask of the wanted bytes. The bytes around them may be unmapped: masked bytes cause
    /// no fault (Software Developer's Manual, volume 2, "VMOVDQU8", exceptions type E4).
    #[inline(always)]
    unsafe fn load_part(target: *mut u8, line: *const u8, skip: usize, len: usize) {
        debug_assert!(len > 0 && skip + len <= LINE);
        let mask = (u64::MAX >> (LINE - len)) << skip;
        // SAFETY: by the trait's contract.
        unsafe {
            avx512!(
                "kmovq k1, {mask}",
                "vmovdqa64 zmm16, [{s}]",
                "vmovdqu8 [{t}] {{k1}}, zmm16",
                ; s = in(reg) line, t = in(reg) target.wrapping_sub(skip), mask = in(reg) mask, out("k1") _,
            );
        }
    }

    /// Four lines side by side; the CPU runs ahead and has more in flight.
    unsafe fn load_lines(target: *mut u8, source: *const u8, lines: usize) {
        // SAFETY: the lines are mapped on both sides.
        unsafe {
            avx512!(
                "sub {lines}, 4",
                "jb 3f",
                "2:",
                "vmovntdqa zmm16, [{s}]",
                "vmovntdqa zmm17, [{s} + 64]",
                "vmovntdqa zmm18, [{s} + 128]",
                "vmovntdqa zmm19, [{s} + 192]",
                "vmovups [{t}], zmm16",
                "vmovups [{t} + 64], zmm17",
                "vmovups [{t} + 128], zmm18",
                "vmovups [{t} + 192], zmm19",
                "add {s}, 256",
                "add {t}, 256",
                "sub {lines}, 4",
                "jae 2b",
                "3:",
                "add {lines}, 4",
                "jz 5f",
                "4:",
                "vmovntdqa zmm16, [{s}]",
                "vmovups [{t}], zmm16",
                "add {s}, 64",
                "add {t}, 64",
                "dec {lines}",
                "jnz 4b",
                "5:",
                ; s = inout(reg) source => _, t = inout(reg) target => _, lines = inout(reg) lines => _,
            );
        }
    }
}
