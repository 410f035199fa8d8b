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

    #[inline(always)]
    unsafe fn store_line(target: *mut u8, source: *const u8) {
        // SAFETY: by the trait's contract.
        unsafe {
            asm!(
                "ldp {a:q}, {b:q}, [{s}]",
                "ldp {c:q}, {d:q}, [{s}, 32]",
                "stnp {a:q}, {b:q}, [{t}]",
                "stnp {c:q}, {d:q}, [{t}, 32]",
                s = in(reg) source, t = in(reg) target,
                a = out(vreg) _, b = out(vreg) _, c = out(vreg) _, d = out(vreg) _,
                options(nostack, preserves_flags),
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

    #[inline(always)]
    unsafe fn load_line(target: *mut u8, source: *const u8) {
        // SAFETY: by the trait's contract.
        unsafe {
            asm!(
                "ldnp {a:q}, {b:q}, [{s}]",
                "ldnp {c:q}, {d:q}, [{s}, 32]",
                "stp {a:q}, {b:q}, [{t}]",
                "stp {c:q}, {d:q}, [{t}, 32]",
                s = in(reg) source, t = in(reg) target,
                a = out(vreg) _, b = out(vreg) _, c = out(vreg) _, d = out(vreg) _,
                options(nostack, preserves_flags),
            );
        }
    }
}

/// Orders the CPU's earlier stores before its later ones, as a device on the bus sees them. For memory that the CPU
/// caches, the device takes part in keeping the caches coherent, and the lighter barrier does.
#[inline]
pub(super) fn store_fence(cached: bool) {
    if cached {
        // SAFETY: a barrier has no operands and no effect but on order.
        unsafe { asm!("dmb oshst", options(nostack, preserves_flags)) };
    } else {
        // SAFETY: as above.
        unsafe { asm!("dsb st", options(nostack, preserves_flags)) };
    }
}

/// Orders the CPU's earlier loads before its later accesses, also against a device's stores. LDNP may otherwise be
/// carried out before them, even where its address depends on them.
#[inline]
pub(super) fn load_fence(_cached: bool) {
    // SAFETY: as in `store_fence`.
    unsafe { asm!("dmb oshld", options(nostack, preserves_flags)) };
}
