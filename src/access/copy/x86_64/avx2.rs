//! AVX2: VMOVNTDQA and VMOVNTDQ for whole lines, 32 bytes at a time.
#![expect(unsafe_code, reason = "accesses by assembly")]

use std::arch::asm;

use super::super::accesses::Accesses;

pub(in crate::access::copy) struct Avx2;

/// Each piece of assembly ends with VZEROUPPER, which spares the SSE code after it a transition penalty, and names the
/// registers that it clears as overwritten.
macro_rules! avx {
    ($($line:literal,)* ; $($operands:tt)*) => {
        asm!(
            $($line,)*
            "vzeroupper",
            $($operands)*
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
            out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            options(nostack),
        )
    };
}

impl Accesses for Avx2 {
    const LOAD: usize = 32;
    const STORE: usize = 16;

    #[inline(always)]
    unsafe fn store(width: usize, target: *mut u8, source: *const u8) {
        // SAFETY: by the trait's contract.
        unsafe { super::store(width, target, source) };
    }

    unsafe fn store_lines(target: *mut u8, source: *const u8, lines: usize) {
        // SAFETY: the lines are mapped on both sides, the counter starts above 0.
        unsafe {
            avx!(
                "2:",
                "vmovups ymm0, [{s}]",
                "vmovups ymm1, [{s} + 32]",
                "vmovntdq [{t}], ymm0",
                "vmovntdq [{t} + 32], ymm1",
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
            avx!(
                "vmovdqa ymm0, [{s}]",
                "vmovups [{t}], ymm0",
                ; s = in(reg) source, t = in(reg) target,
            );
        }
    }

    /// Eight lines in flight.
    unsafe fn load_lines(target: *mut u8, source: *const u8, lines: usize) {
        // SAFETY: the lines are mapped on both sides.
        unsafe {
            avx!(
                "sub {lines}, 8",
                "jb 3f",
                "2:",
                ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
                "vmovntdqa ymm\\n, [{s} + 32 * \\n]",
                ".endr",
                ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
                "vmovups [{t} + 32 * \\n], ymm\\n",
                ".endr",
                "add {s}, 512",
                "add {t}, 512",
                "sub {lines}, 8",
                "jae 2b",
                "3:",
                "add {lines}, 8",
                "jz 5f",
                "4:",
                "vmovntdqa ymm0, [{s}]",
                "vmovntdqa ymm1, [{s} + 32]",
                "vmovups [{t}], ymm0",
                "vmovups [{t} + 32], ymm1",
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
