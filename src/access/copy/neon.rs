//! NEON: LDNP and STNP, which move pairs of 16 bytes, and the fences. Every AArch64 CPU that runs Linux has it.
#![expect(unsafe_code, reason = "accesses by assembly")]

use std::arch::asm;

use super::accesses::Accesses;

pub(super) struct Neon;

impl Accesses for Neon {
    const LOAD: usize = 16;
    const STORE: usize = 16;

    #[inline(always)]
    unsafe fn store(width: usize, target: *mut u8, source: *const u8) {
        macro_rules! moved {
            ($class:ident, $load:literal, $store:literal) => {
                // SAFETY: by the trait's contract.
                unsafe {
                    asm!($load, $store, v = out($class) _, s = in(reg) source, t = in(reg) target,
                        options(nostack, preserves_flags));
                }
            };
        }
        debug_assert!(width.is_power_of_two() && width <= 16);
        match width {
            1 => moved!(reg, "ldrb {v:w}, [{s}]", "strb {v:w}, [{t}]"),
            2 => moved!(reg, "ldrh {v:w}, [{s}]", "strh {v:w}, [{t}]"),
            4 => moved!(reg, "ldr {v:w}, [{s}]", "str {v:w}, [{t}]"),
            8 => moved!(reg, "ldr {v}, [{s}]", "str {v}, [{t}]"),
            _ => moved!(vreg, "ldr {v:q}, [{s}]", "str {v:q}, [{t}]"),
        }
    }

    unsafe fn store_lines(target: *mut u8, source: *const u8, lines: usize) {
        // SAFETY: the lines are mapped on both sides, the counter starts above 0.
        unsafe {
            asm!(
                "2:",
                "ldp {a:q}, {b:q}, [{s}]",
                "ldp {c:q}, {d:q}, [{s}, 32]",
                "stnp {a:q}, {b:q}, [{t}]",
                "stnp {c:q}, {d:q}, [{t}, 32]",
                "add {s}, {s}, 64",
                "add {t}, {t}, 64",
                "subs {lines}, {lines}, 1",
                "b.ne 2b",
                s = inout(reg) source => _, t = inout(reg) target => _, lines = inout(reg) lines => _,
                a = out(vreg) _, b = out(vreg) _, c = out(vreg) _, d = out(vreg) _,
                options(nostack),
            );
        }
    }

    #[inline(always)]
    unsafe fn load(target: *mut u8, source: *const u8) {
        // SAFETY: by the trait's contract.
        unsafe {
            asm!("ldr {v:q}, [{s}]", "str {v:q}, [{t}]", v = out(vreg) _, s = in(reg) source, t = in(reg) target,
                options(nostack, preserves_flags));
        }
    }

    /// Four lines in flight.
    unsafe fn load_lines(target: *mut u8, source: *const u8, lines: usize) {
        // SAFETY: the lines are mapped on both sides.
        unsafe {
            asm!(
                "subs {lines}, {lines}, 4",
                "b.lo 3f",
                "2:",
                "ldnp q16, q17, [{s}]",
                "ldnp q18, q19, [{s}, 32]",
                "ldnp q20, q21, [{s}, 64]",
                "ldnp q22, q23, [{s}, 96]",
                "ldnp q24, q25, [{s}, 128]",
                "ldnp q26, q27, [{s}, 160]",
                "ldnp q28, q29, [{s}, 192]",
                "ldnp q30, q31, [{s}, 224]",
                "stp q16, q17, [{t}]",
                "stp q18, q19, [{t}, 32]",
                "stp q20, q21, [{t}, 64]",
                "stp q22, q23, [{t}, 96]",
                "stp q24, q25, [{t}, 128]",
                "stp q26, q27, [{t}, 160]",
                "stp q28, q29, [{t}, 192]",
                "stp q30, q31, [{t}, 224]",
                "add {s}, {s}, 256",
                "add {t}, {t}, 256",
                "subs {lines}, {lines}, 4",
                "b.hs 2b",
                "3:",
                "adds {lines}, {lines}, 4",
                "b.eq 5f",
                "4:",
                "ldnp q16, q17, [{s}]",
                "ldnp q18, q19, [{s}, 32]",
                "stp q16, q17, [{t}]",
                "stp q18, q19, [{t}, 32]",
                "add {s}, {s}, 64",
                "add {t}, {t}, 64",
                "subs {lines}, {lines}, 1",
                "b.ne 4b",
                "5:",
                s = inout(reg) source => _, t = inout(reg) target => _, lines = inout(reg) lines => _,
                out("v16") _, out("v17") _, out("v18") _, out("v19") _, out("v20") _, out("v21") _,
                out("v22") _, out("v23") _, out("v24") _, out("v25") _, out("v26") _, out("v27") _,
                out("v28") _, out("v29") _, out("v30") _, out("v31") _,
                options(nostack),
            );
        }
    }
}

/// Orders the CPU's earlier stores before its later ones, as a device on the bus sees them.
#[inline]
pub(super) fn store_fence() {
    // SAFETY: a barrier has no operands and no effect but on order.
    unsafe { asm!("dsb st", options(nostack, preserves_flags)) };
}

/// Orders the CPU's earlier loads before its later accesses, also against a device's stores. LDNP may otherwise be
/// carried out before them, even where its address depends on them.
#[inline]
pub(super) fn load_fence() {
    // SAFETY: as in `store_fence`.
    unsafe { asm!("dmb oshld", options(nostack, preserves_flags)) };
}

/// As [`store_fence`], of memory that the CPU caches, where the device takes part in keeping the caches coherent.
#[inline]
pub(super) fn cached_store_fence() {
    // SAFETY: as in `store_fence`.
    unsafe { asm!("dmb oshst", options(nostack, preserves_flags)) };
}

pub(super) use load_fence as cached_load_fence;
