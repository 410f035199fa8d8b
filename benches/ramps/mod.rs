//! The peer of copies of write-combined memory: a straightforward loop. Steps of 1, 2, 4 and 8 bytes up to the first
//! multiple of the vector width, streaming vectors, and steps down again; fences as in gdrcopy, a store fence at the
//! end. A plain load is not ordered after earlier loads; [`Ramps::load_in_order`] has the ordering of `Memory::read`.

#[cfg(target_arch = "x86_64")]
use std::arch::asm;

use vkgdr::CopyRoutine;

/// Copies `len` bytes, which both sides must have.
pub(crate) type Copy = unsafe fn(to: *mut u8, from: *const u8, len: usize);

/// The loops for one vector width.
#[derive(Clone, Copy)]
pub(crate) struct Ramps {
    pub(crate) store: Copy,
    pub(crate) load: Copy,
    /// Like `load`, ordered after this thread's earlier loads.
    pub(crate) load_in_order: Copy,
}

impl Ramps {
    /// The loops with the vectors of a supported routine; none for one without vectors.
    pub(crate) fn of(routine: CopyRoutine) -> Option<Self> {
        match routine {
            #[cfg(target_arch = "x86_64")]
            CopyRoutine::Sse41 => Some(sse41::RAMPS),
            #[cfg(target_arch = "x86_64")]
            CopyRoutine::Avx2 => Some(avx2::RAMPS),
            #[cfg(target_arch = "x86_64")]
            CopyRoutine::Avx512 => Some(avx512::RAMPS),
            _ => None,
        }
    }
}

/// The rest of a copy.
#[cfg(target_arch = "x86_64")]
struct Rest {
    to: *mut u8,
    from: *const u8,
    len: usize,
}

#[cfg(target_arch = "x86_64")]
impl Rest {
    #[inline(always)]
    fn advance(&mut self, bytes: usize) {
        *self = Self { to: self.to.wrapping_add(bytes), from: self.from.wrapping_add(bytes), len: self.len - bytes };
    }

    /// # Safety
    ///
    /// A word must be left, mapped on both sides.
    #[inline(always)]
    unsafe fn step<T: std::marker::Copy>(&mut self) {
        // SAFETY: a word is left.
        let word = unsafe { self.from.cast::<T>().read_unaligned() };
        // SAFETY: as above.
        unsafe { self.to.cast::<T>().write_unaligned(word) };
        self.advance(size_of::<T>());
    }

    /// Steps until the shared side, with the address from `shared`, is aligned to a vector.
    ///
    /// # Safety
    ///
    /// The rest must be mapped on both sides.
    #[inline(always)]
    unsafe fn up(&mut self, shared: impl Fn(&Self) -> usize, width: usize) {
        while self.len > 0 && !shared(self).is_multiple_of(width) {
            let fits = |word: usize| self.len >= word && shared(self).is_multiple_of(word);
            if fits(8) {
                // SAFETY: this many bytes are left, here and below.
                unsafe { self.step::<u64>() };
            } else if fits(4) {
                // SAFETY: as above.
                unsafe { self.step::<u32>() };
            } else if fits(2) {
                // SAFETY: as above.
                unsafe { self.step::<u16>() };
            } else {
                // SAFETY: as above.
                unsafe { self.step::<u8>() };
            }
        }
    }

    /// Steps to the end.
    ///
    /// # Safety
    ///
    /// As for [`up`](Self::up).
    #[inline(always)]
    unsafe fn down(&mut self) {
        while self.len >= 8 {
            // SAFETY: this many bytes are left, here and below.
            unsafe { self.step::<u64>() };
        }
        if self.len >= 4 {
            // SAFETY: as above.
            unsafe { self.step::<u32>() };
        }
        if self.len >= 2 {
            // SAFETY: as above.
            unsafe { self.step::<u16>() };
        }
        if self.len >= 1 {
            // SAFETY: as above.
            unsafe { self.step::<u8>() };
        }
    }
}

/// Copies one vector.
#[cfg(target_arch = "x86_64")]
macro_rules! vector {
    (($a:literal $($others:literal)*), $load:literal, $store:literal, $rest:ident) => {
        asm!(
            concat!($load, " ", $a, ", [{s}]"),
            concat!($store, " [{t}], ", $a),
            s = in(reg) $rest.from, t = in(reg) $rest.to, out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _, options(nostack, preserves_flags),
        )
    };
}

/// Copies four vectors.
#[cfg(target_arch = "x86_64")]
macro_rules! vectors {
    (($a:literal $b:literal $c:literal $d:literal), $load:literal, $store:literal, $width:literal,
        $rest:ident) => {
        asm!(
            concat!($load, " ", $a, ", [{s}]"),
            concat!($load, " ", $b, ", [{s} + {w}]"),
            concat!($load, " ", $c, ", [{s} + 2 * {w}]"),
            concat!($load, " ", $d, ", [{s} + 3 * {w}]"),
            concat!($store, " [{t}], ", $a),
            concat!($store, " [{t} + {w}], ", $b),
            concat!($store, " [{t} + 2 * {w}], ", $c),
            concat!($store, " [{t} + 3 * {w}], ", $d),
            s = in(reg) $rest.from, t = in(reg) $rest.to, w = const $width, out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _,
            options(nostack, preserves_flags),
        )
    };
}

/// The loops with vectors of `$width` bytes. `$load` and `$store` are those of a write, the other two those of a read.
#[cfg(target_arch = "x86_64")]
macro_rules! ramps {
    ($name:ident, $width:literal, $registers:tt, $end:literal,
        write: $load:literal, $stream:literal, read: $stream_load:literal, $store:literal) => {
        mod $name {
            use super::*;

            pub(super) const RAMPS: Ramps = Ramps { store, load, load_in_order };

            #[inline(never)]
            unsafe fn store(to: *mut u8, from: *const u8, len: usize) {
                let mut rest = Rest { to, from, len };
                // SAFETY: by the type's contract, here and below.
                unsafe { rest.up(|rest| rest.to.addr(), $width) };
                while rest.len >= 4 * $width {
                    // SAFETY: as above.
                    unsafe { vectors!($registers, $load, $stream, $width, rest) };
                    rest.advance(4 * $width);
                }
                while rest.len >= $width {
                    // SAFETY: as above.
                    unsafe { vector!($registers, $load, $stream, rest) };
                    rest.advance($width);
                }
                // SAFETY: as above.
                unsafe { asm!($end, options(nostack, preserves_flags)) };
                // SAFETY: as above.
                unsafe { rest.down() };
                // SAFETY: as above.
                unsafe { asm!("sfence", options(nostack, preserves_flags)) };
            }

            #[inline(always)]
            unsafe fn unfenced(to: *mut u8, from: *const u8, len: usize) {
                let mut rest = Rest { to, from, len };
                // SAFETY: by the type's contract, here and below.
                unsafe { rest.up(|rest| rest.from.addr(), $width) };
                while rest.len >= 4 * $width {
                    // SAFETY: as above.
                    unsafe { vectors!($registers, $stream_load, $store, $width, rest) };
                    rest.advance(4 * $width);
                }
                while rest.len >= $width {
                    // SAFETY: as above.
                    unsafe { vector!($registers, $stream_load, $store, rest) };
                    rest.advance($width);
                }
                // SAFETY: as above.
                unsafe { asm!($end, options(nostack, preserves_flags)) };
                // SAFETY: as above.
                unsafe { rest.down() };
            }

            #[inline(never)]
            unsafe fn load(to: *mut u8, from: *const u8, len: usize) {
                // SAFETY: by the type's contract.
                unsafe { unfenced(to, from, len) };
                // SAFETY: a fence has no operands.
                unsafe { asm!("sfence", options(nostack, preserves_flags)) };
            }

            #[inline(never)]
            unsafe fn load_in_order(to: *mut u8, from: *const u8, len: usize) {
                // SAFETY: a fence has no operands.
                unsafe { asm!("lfence", options(nostack, preserves_flags)) };
                // SAFETY: by the type's contract.
                unsafe { unfenced(to, from, len) };
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
ramps!(sse41, 16, ("xmm0" "xmm1" "xmm2" "xmm3"), "",
    write: "movups", "movntdq", read: "movntdqa", "movups");
#[cfg(target_arch = "x86_64")]
ramps!(avx2, 32, ("ymm0" "ymm1" "ymm2" "ymm3"), "vzeroupper",
    write: "vmovups", "vmovntdq", read: "vmovntdqa", "vmovups");
#[cfg(target_arch = "x86_64")]
ramps!(avx512, 64, ("zmm16" "zmm17" "zmm18" "zmm19"), "",
    write: "vmovups", "vmovntdq", read: "vmovntdqa", "vmovups");
