//! NEON: LDNP and STNP, which move pairs of 16 bytes, and the fences. Every AArch64 CPU that runs Linux has it.
#![expect(unsafe_code, reason = "accesses by assembly")]

use std::arch::asm;

use super::accesses::{Accesses, moves, stores};

pub(super) struct Neon;

impl Accesses for Neon {
    const LOAD: usize = 16;
    stores! {
        1 => reg, "ldrb {v:w}, [{s}]", "strb {v:w}, [{t}]";
        2 => reg, "ldrh {v:w}, [{s}]", "strh {v:w}, [{t}]";
        4 => reg, "ldr {v:w}, [{s}]", "str {v:w}, [{t}]";
        8 => reg, "ldr {v}, [{s}]", "str {v}, [{t}]";
        _ => vreg, "ldr {v:q}, [{s}]", "str {v:q}, [{t}]";
    }
    moves! {
        store_line(
            "ldp {a:q}, {b:q}, [{s}]", "ldp {c:q}, {d:q}, [{s}, 32]", "stnp {a:q}, {b:q}, [{t}]", "stnp {c:q}, {d:q}, [{t}, 32]";
            a = out(vreg) _, b = out(vreg) _, c = out(vreg) _, d = out(vreg) _
        );
        load("ldr {v:q}, [{s}]", "str {v:q}, [{t}]"; v = out(vreg) _);
        load_line(
            "ldnp {a:q}, {b:q}, [{s}]", "ldnp {c:q}, {d:q}, [{s}, 32]", "stp {a:q}, {b:q}, [{t}]", "stp {c:q}, {d:q}, [{t}, 32]";
            a = out(vreg) _, b = out(vreg) _, c = out(vreg) _, d = out(vreg) _
        );
    }
}

/// Orders the CPU's earlier stores before its later ones, as a device on the bus sees them. For memory that the CPU
/// caches, the device takes part in keeping the caches coherent, and the lighter barrier does.
#[inline]
pub(super) fn store_fence(ordinary: bool) {
    if ordinary {
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
pub(super) fn load_fence(_ordinary: bool) {
    // SAFETY: as in `store_fence`.
    unsafe { asm!("dmb oshld", options(nostack, preserves_flags)) };
}
