//! Copies of cached memory: a few overlapping moves for small sizes, libc's `memcpy` for others.
//!
//! Like assembly in this file, `memcpy` may access bytes that race: its address passes through assembly, so that the
//! compiler cannot recognise the function and must assume that it accesses byte by byte.
#![expect(unsafe_code, reason = "copies by assembly and by libc")]

use std::arch::asm;
use std::ffi::c_void;

/// Copies `len` bytes, which must not overlap, and orders nothing. The CPU must have `vectors`.
///
/// # Safety
///
/// The bytes on both sides must be mapped.
#[inline]
pub(super) unsafe fn copy(vectors: Vectors, target: *mut u8, source: *const u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if len <= 32 {
        // SAFETY: by this function's contract.
        return unsafe { small(target, source, len) };
    } else if len <= 64 {
        // SAFETY: by this function's contract; the length is within both bounds.
        return unsafe { narrow(target, source, len) };
    } else if len <= 256 && vectors == Vectors::Wide {
        // SAFETY: by this function's contract; the length is within both bounds, and the CPU has them.
        return unsafe { wide(target, source, len) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = vectors;
    // SAFETY: by this function's contract.
    unsafe { large(target, source, len) };
}

/// The registers for medium sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vectors {
    /// 16 bytes.
    Narrow,
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "other architectures leave it to memcpy"))]
    /// 64 bytes, of those that AVX-512 added: SSE code afterwards pays no transition penalty for them.
    Wide,
}

impl Vectors {
    /// Those of this CPU. VBMI2 is asked for since the CPUs that lower their clock for wide registers lack it.
    pub(super) fn here() -> Self {
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("avx512vl") && std::is_x86_feature_detected!("avx512vbmi2") {
            return Self::Wide;
        }
        Self::Narrow
    }
}

/// # Safety
///
/// The contract of [`copy`].
#[inline]
unsafe fn large(target: *mut u8, source: *const u8, len: usize) {
    let mut memcpy: unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void = libc::memcpy;
    // SAFETY: a comment: the register keeps its value, unknown to the compiler.
    unsafe { asm!("/* {} */", inout(reg) memcpy, options(pure, readonly, nostack, preserves_flags)) };
    // SAFETY: the bytes are mapped and do not overlap, by this function's contract.
    unsafe { memcpy(target.cast(), source.cast(), len) };
}

/// Moves by assembly from `$s` to `$t`, where `$n` is the copy's length: `[$s + $n - 8]` is its last 8 bytes. All loads come
/// before the stores, and they overlap where the size is not a power of two.
#[cfg(target_arch = "x86_64")]
macro_rules! moves {
    ($t:expr, $s:expr, $n:expr; $($line:literal,)* ; $($operands:tt)*) => {
        asm!($($line,)* $($operands)* s = in(reg) $s, t = in(reg) $t, n = in(reg) $n,
            options(nostack, preserves_flags))
    };
}

/// Copies at most 32 bytes, with the instructions of every x86-64 CPU.
///
/// # Safety
///
/// The contract of [`copy`].
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn small(target: *mut u8, source: *const u8, len: usize) {
    if len <= 16 {
        if len >= 8 {
            // SAFETY: 8 to 16 bytes on both sides.
            unsafe {
                moves!(target, source, len;
                    "mov {a}, [{s}]",
                    "mov {b}, [{s} + {n} - 8]",
                    "mov [{t}], {a}",
                    "mov [{t} + {n} - 8], {b}",
                    ; a = out(reg) _, b = out(reg) _,
                );
            }
        } else if len >= 4 {
            // SAFETY: 4 to 7 bytes on both sides.
            unsafe {
                moves!(target, source, len;
                    "mov {a:e}, [{s}]",
                    "mov {b:e}, [{s} + {n} - 4]",
                    "mov [{t}], {a:e}",
                    "mov [{t} + {n} - 4], {b:e}",
                    ; a = out(reg) _, b = out(reg) _,
                );
            }
        } else if len >= 1 {
            // SAFETY: 1 to 3 bytes on both sides: the first, the middle and the last.
            unsafe {
                moves!(target, source, len;
                    "movzx {a:e}, byte ptr [{s}]",
                    "movzx {b:e}, byte ptr [{s} + {m}]",
                    "movzx {c:e}, byte ptr [{s} + {n} - 1]",
                    "mov byte ptr [{t}], {a:l}",
                    "mov byte ptr [{t} + {m}], {b:l}",
                    "mov byte ptr [{t} + {n} - 1], {c:l}",
                    ; a = out(reg) _, b = out(reg) _, c = out(reg) _, m = in(reg) len / 2,
                );
            }
        }
    } else {
        debug_assert!(len <= 32);
        // SAFETY: 17 to 32 bytes on both sides.
        unsafe {
            moves!(target, source, len;
                "movups {a}, [{s}]",
                "movups {b}, [{s} + {n} - 16]",
                "movups [{t}], {a}",
                "movups [{t} + {n} - 16], {b}",
                ; a = out(xmm_reg) _, b = out(xmm_reg) _,
            );
        }
    }
}

/// Copies 33 to 64 bytes, with the instructions of every x86-64 CPU.
///
/// # Safety
///
/// The contract of [`copy`].
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn narrow(target: *mut u8, source: *const u8, len: usize) {
    debug_assert!((32..=64).contains(&len));
    // SAFETY: 32 to 64 bytes on both sides: the first and the last 32.
    unsafe {
        moves!(target, source, len;
            "movups {a}, [{s}]",
            "movups {b}, [{s} + 16]",
            "movups {c}, [{s} + {n} - 32]",
            "movups {d}, [{s} + {n} - 16]",
            "movups [{t}], {a}",
            "movups [{t} + 16], {b}",
            "movups [{t} + {n} - 32], {c}",
            "movups [{t} + {n} - 16], {d}",
            ; a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
        );
    }
}

/// Copies 65 to 256 bytes.
///
/// # Safety
///
/// The contract of [`copy`], and the CPU must have [`Vectors::Wide`].
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn wide(target: *mut u8, source: *const u8, len: usize) {
    debug_assert!((64..=256).contains(&len));
    if len <= 128 {
        // SAFETY: 64 to 128 bytes on both sides: the first and the last 64.
        unsafe {
            moves!(target, source, len;
                "vmovups zmm16, [{s}]",
                "vmovups zmm17, [{s} + {n} - 64]",
                "vmovups [{t}], zmm16",
                "vmovups [{t} + {n} - 64], zmm17",
                ; out("zmm16") _, out("zmm17") _,
            );
        }
    } else {
        // SAFETY: 128 to 256 bytes on both sides: the first and the last 128.
        unsafe {
            moves!(target, source, len;
                "vmovups zmm16, [{s}]",
                "vmovups zmm17, [{s} + 64]",
                "vmovups zmm18, [{s} + {n} - 128]",
                "vmovups zmm19, [{s} + {n} - 64]",
                "vmovups [{t}], zmm16",
                "vmovups [{t} + 64], zmm17",
                "vmovups [{t} + {n} - 128], zmm18",
                "vmovups [{t} + {n} - 64], zmm19",
                ; out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _,
            );
        }
    }
}
