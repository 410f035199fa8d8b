//! The peer of copies of write-combined memory: a straightforward loop. Steps of 1, 2, 4 and 8 bytes up to the first multiple of
//! the vector width, streaming vectors, and steps down again; fences as in gdrcopy, and before a load one for the order that
//! `Memory::read` has.

use vkgdr::CopyRoutine;

/// Copies `len` bytes, which both sides must have.
pub(crate) type Copy = unsafe fn(to: *mut u8, from: *const u8, len: usize);

/// The loops for one vector width.
pub(crate) struct PlainLoop {
    pub(crate) store: Copy,
    pub(crate) load: Copy,
}

impl PlainLoop {
    /// The loops with the vectors of a supported routine; none for one without vectors.
    pub(crate) fn of(routine: CopyRoutine) -> Option<Self> {
        match routine {
            #[cfg(target_arch = "x86_64")]
            CopyRoutine::Sse41 => Some(x86::sse41::LOOP),
            #[cfg(target_arch = "x86_64")]
            CopyRoutine::Avx2 => Some(x86::avx2::LOOP),
            #[cfg(target_arch = "x86_64")]
            CopyRoutine::Avx512 => Some(x86::avx512::LOOP),
            _ => None,
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    #![expect(unsafe_code, reason = "copies between plain pointers")]

    use std::arch::asm;

    /// The rest of a copy.
    struct Rest {
        to: *mut u8,
        from: *const u8,
        len: usize,
    }

    impl Rest {
        #[inline(always)]
        fn advance(&mut self, bytes: usize) {
            *self =
                Self { to: self.to.wrapping_add(bytes), from: self.from.wrapping_add(bytes), len: self.len - bytes };
        }

        /// Copies a word, if one is left, and the shared side is aligned to it.
        ///
        /// # Safety
        ///
        /// The rest must be mapped on both sides, here and below.
        #[inline(always)]
        unsafe fn step<T: Copy>(&mut self, shared: usize) -> bool {
            if self.len < size_of::<T>() || !shared.is_multiple_of(size_of::<T>()) {
                return false;
            }
            // SAFETY: a word is left.
            let word = unsafe { self.from.cast::<T>().read_unaligned() };
            // SAFETY: as above.
            unsafe { self.to.cast::<T>().write_unaligned(word) };
            self.advance(size_of::<T>());
            true
        }

        /// Copies the largest word that fits.
        #[inline(always)]
        unsafe fn largest(&mut self, shared: usize) {
            // SAFETY: by this function's contract, here and below.
            let _ = unsafe { self.step::<u64>(shared) }
                // SAFETY: as above.
                || unsafe { self.step::<u32>(shared) }
                // SAFETY: as above.
                || unsafe { self.step::<u16>(shared) }
                // SAFETY: as above.
                || unsafe { self.step::<u8>(shared) };
        }

        /// Steps until the shared side, with the address from `shared`, is aligned to a vector.
        #[inline(always)]
        unsafe fn up(&mut self, shared: impl Fn(&Self) -> usize, width: usize) {
            while self.len > 0 && !shared(self).is_multiple_of(width) {
                // SAFETY: by this function's contract.
                unsafe { self.largest(shared(self)) };
            }
        }

        /// Steps to the end.
        #[inline(always)]
        unsafe fn down(&mut self) {
            while self.len > 0 {
                // SAFETY: by this function's contract.
                unsafe { self.largest(0) };
            }
        }
    }

    /// Copies vectors by registers, at their multiples of the width.
    macro_rules! vectors {
        ($load:literal, $store:literal, $width:literal, $rest:ident: $($at:literal $register:literal)*) => {
            asm!(
                $(concat!($load, " ", $register, ", [{s} + ", $at, " * {w}]"),)*
                $(concat!($store, " [{t} + ", $at, " * {w}], ", $register),)*
                s = in(reg) $rest.from, t = in(reg) $rest.to, w = const $width,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _, options(nostack, preserves_flags),
            )
        };
    }

    /// The loops with vectors of `$width` bytes. `$load` and `$store` are those of a write, the other two those of a read.
    macro_rules! loops {
        ($name:ident, $width:literal, $a:literal $b:literal $c:literal $d:literal, $end:literal,
            write: $load:literal, $stream:literal, read: $stream_load:literal, $store:literal) => {
            pub(super) mod $name {
                use super::*;

                pub(in super::super) const LOOP: crate::plain_loop::PlainLoop = crate::plain_loop::PlainLoop { store, load };

                loops!(store, $width, $a $b $c $d, $end, to, $load, $stream, "");
                loops!(load, $width, $a $b $c $d, $end, from, $stream_load, $store, "lfence");
            }
        };
        ($name:ident, $width:literal, $a:literal $b:literal $c:literal $d:literal, $end:literal, $shared:ident,
            $load:literal, $store:literal, $first:literal) => {
            #[inline(never)]
            unsafe fn $name(to: *mut u8, from: *const u8, len: usize) {
                let mut rest = Rest { to, from, len };
                // SAFETY: a fence has no operands.
                unsafe { asm!($first, options(nostack, preserves_flags)) };
                // SAFETY: by the type's contract, here and below.
                unsafe { rest.up(|rest| rest.$shared.addr(), $width) };
                while rest.len >= 4 * $width {
                    // SAFETY: as above.
                    unsafe { vectors!($load, $store, $width, rest: 0 $a 1 $b 2 $c 3 $d) };
                    rest.advance(4 * $width);
                }
                while rest.len >= $width {
                    // SAFETY: as above.
                    unsafe { vectors!($load, $store, $width, rest: 0 $a) };
                    rest.advance($width);
                }
                // SAFETY: as above.
                unsafe { asm!($end, options(nostack, preserves_flags)) };
                // SAFETY: as above.
                unsafe { rest.down() };
                // SAFETY: a fence has no operands.
                unsafe { asm!("sfence", options(nostack, preserves_flags)) };
            }
        };
    }

    loops!(sse41, 16, "xmm0" "xmm1" "xmm2" "xmm3", "", write: "movups", "movntdq", read: "movntdqa", "movups");
    loops!(avx2, 32, "ymm0" "ymm1" "ymm2" "ymm3", "vzeroupper",
        write: "vmovups", "vmovntdq", read: "vmovntdqa", "vmovups");
    loops!(avx512, 64, "zmm16" "zmm17" "zmm18" "zmm19", "",
        write: "vmovups", "vmovntdq", read: "vmovntdqa", "vmovups");
}
