//! AVX-512F: VMOVNTDQA and VMOVNTDQ, a line at a time.
//!
//! Only the registers that AVX-512 added are used: they cause the SSE code afterwards no transition penalty.
#![expect(unsafe_code, reason = "accesses by assembly")]

use std::arch::asm;

use super::super::by_plan::Accesses;
use super::avx2::Avx2;

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
    const STORE: usize = 32;

    unsafe fn store(width: usize, target: *mut u8, source: *const u8) {
        // SAFETY: by the trait's contract; whatever has AVX-512 has AVX2.
        unsafe { Avx2::store(width, target, source) };
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

    unsafe fn load(target: *mut u8, source: *const u8) {
        // SAFETY: by the trait's contract.
        unsafe {
            avx512!(
                "vmovntdqa zmm16, [{s}]",
                "vmovups [{t}], zmm16",
                ; s = in(reg) source, t = in(reg) target,
            );
        }
    }

    /// Eight lines in flight.
    unsafe fn load_lines(target: *mut u8, source: *const u8, lines: usize) {
        // SAFETY: the lines are mapped on both sides.
        unsafe {
            avx512!(
                "sub {lines}, 8",
                "jb 3f",
                "2:",
                "vmovntdqa zmm16, [{s}]",
                "vmovntdqa zmm17, [{s} + 64]",
                "vmovntdqa zmm18, [{s} + 128]",
                "vmovntdqa zmm19, [{s} + 192]",
                "vmovntdqa zmm20, [{s} + 256]",
                "vmovntdqa zmm21, [{s} + 320]",
                "vmovntdqa zmm22, [{s} + 384]",
                "vmovntdqa zmm23, [{s} + 448]",
                "vmovups [{t}], zmm16",
                "vmovups [{t} + 64], zmm17",
                "vmovups [{t} + 128], zmm18",
                "vmovups [{t} + 192], zmm19",
                "vmovups [{t} + 256], zmm20",
                "vmovups [{t} + 320], zmm21",
                "vmovups [{t} + 384], zmm22",
                "vmovups [{t} + 448], zmm23",
                "add {s}, 512",
                "add {t}, 512",
                "sub {lines}, 8",
                "jae 2b",
                "3:",
                "add {lines}, 8",
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
