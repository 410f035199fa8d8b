//! SSE4.1: MOVNTDQA and MOVNTDQ for whole lines, 16 bytes at a time.
#![expect(unsafe_code, reason = "accesses by assembly")]

use std::arch::asm;

use super::super::accesses::Accesses;

pub(in crate::access::copy) struct Sse41;

impl Accesses for Sse41 {
    const LOAD: usize = 16;
    const STORE: usize = 16;

    #[inline(always)]
    unsafe fn store(width: usize, target: *mut u8, source: *const u8) {
        // SAFETY: by the trait's contract.
        unsafe { super::store(width, target, source) };
    }

    unsafe fn store_lines(target: *mut u8, source: *const u8, lines: usize) {
        // SAFETY: the lines are mapped on both sides, the counter starts above 0.
        unsafe {
            asm!(
                "2:",
                "movups {a}, [{s}]",
                "movups {b}, [{s} + 16]",
                "movups {c}, [{s} + 32]",
                "movups {d}, [{s} + 48]",
                "movntdq [{t}], {a}",
                "movntdq [{t} + 16], {b}",
                "movntdq [{t} + 32], {c}",
                "movntdq [{t} + 48], {d}",
                "add {s}, 64",
                "add {t}, 64",
                "dec {lines}",
                "jnz 2b",
                s = inout(reg) source => _, t = inout(reg) target => _, lines = inout(reg) lines => _,
                a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
                options(nostack),
            );
        }
    }

    #[inline(always)]
    unsafe fn load(target: *mut u8, source: *const u8) {
        // SAFETY: by the trait's contract.
        unsafe {
            asm!("movdqa {v}, [{s}]", "movups [{t}], {v}", v = out(xmm_reg) _, s = in(reg) source,
                t = in(reg) target, options(nostack, preserves_flags));
        }
    }

    /// Four lines in flight.
    unsafe fn load_lines(target: *mut u8, source: *const u8, lines: usize) {
        // SAFETY: the lines are mapped on both sides.
        unsafe {
            asm!(
                "sub {lines}, 4",
                "jb 3f",
                "2:",
                ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
                "movntdqa xmm\\n, [{s} + 16 * \\n]",
                ".endr",
                ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
                "movups [{t} + 16 * \\n], xmm\\n",
                ".endr",
                "add {s}, 256",
                "add {t}, 256",
                "sub {lines}, 4",
                "jae 2b",
                "3:",
                "add {lines}, 4",
                "jz 5f",
                "4:",
                ".irp n, 0, 1, 2, 3",
                "movntdqa xmm\\n, [{s} + 16 * \\n]",
                ".endr",
                ".irp n, 0, 1, 2, 3",
                "movups [{t} + 16 * \\n], xmm\\n",
                ".endr",
                "add {s}, 64",
                "add {t}, 64",
                "dec {lines}",
                "jnz 4b",
                "5:",
                s = inout(reg) source => _, t = inout(reg) target => _, lines = inout(reg) lines => _,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
                out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                options(nostack),
            );
        }
    }
}
