//! Copies of write-combined memory by aligned accesses, generic over the instruction set ([`Accesses`]).
//!
//! Every access to shared memory is aligned to its width and stays within one line of [`LINE`] bytes. Whole lines are
//! accessed by the widest instructions. The bytes of a line that is only copied in part are
//!
//! * written by the fewest stores that reach only them, each byte once: a device that polls a word must not see it
//!   written twice;
//! * read by the fewest loads of one width that cover them. These may read more of the line and discard it: a load from
//!   write-combined memory is a transaction on the bus, whatever its width.
#![expect(unsafe_code, reason = "copies through raw pointers")]

use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::allocation::LINE;

/// The accesses of an instruction set to shared memory, by assembly or byte atomics (see [`copy`](super)).
///
/// # Safety
///
/// The CPU must have the instructions wherever a method is called. `target` and `source` must be mapped for the bytes
/// that the method names. Private bytes may lie anywhere.
pub(super) trait Accesses {
    /// The width of [`load`](Self::load): a power of two, at most a line.
    const LOAD: usize;
    /// The width of the widest [`store`](Self::store): a power of two, less than a line.
    const STORE: usize;

    /// Stores `width` bytes, a power of two and at most `STORE`, to a shared place aligned to it.
    unsafe fn store(width: usize, target: *mut u8, source: *const u8);

    /// Loads `LOAD` bytes from a shared place aligned to that, not as a streaming load (see [`copy`](super), "Order").
    unsafe fn load(target: *mut u8, source: *const u8);

    /// Stores a whole shared line.
    #[inline(always)]
    unsafe fn store_line(target: *mut u8, source: *const u8) {
        for start in (0..LINE).step_by(Self::STORE) {
            // SAFETY: the store is aligned and within the line.
            unsafe { Self::store(Self::STORE, target.wrapping_add(start), source.wrapping_add(start)) };
        }
    }

    /// Loads a whole shared line.
    #[inline(always)]
    unsafe fn load_line(target: *mut u8, source: *const u8) {
        for start in (0..LINE).step_by(Self::LOAD) {
            // SAFETY: the load is aligned and within the line.
            unsafe { Self::load(target.wrapping_add(start), source.wrapping_add(start)) };
        }
    }

    /// Copies `len` bytes, at least one, of a shared line from its byte `skip` on.
    #[inline(always)]
    unsafe fn load_part(target: *mut u8, line: *const u8, skip: usize, len: usize) {
        let mut private = [0; LINE];
        let first = skip - skip % Self::LOAD;
        for start in (first..skip + len).step_by(Self::LOAD) {
            let to = private[start..start + Self::LOAD].as_mut_ptr();
            // SAFETY: the load is aligned and within the line; there is room for it at `to`.
            unsafe { Self::load(to, line.wrapping_add(start)) };
        }
        // SAFETY: `len` bytes from `skip` on are within the line, and mapped at `target` by this method's contract.
        unsafe { ptr::copy_nonoverlapping(private[skip..].as_ptr(), target, len) };
    }
}

/// Methods of [`Accesses`], each a piece of assembly that moves bytes from `s` to `t`: its lines, and its other operands.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! moves {
    ($($name:ident($($line:literal),+; $($operands:tt)+);)+) => {$(
        #[inline(always)]
        unsafe fn $name(target: *mut u8, source: *const u8) {
            // SAFETY: by the trait's contract.
            unsafe {
                asm!($($line,)+ s = in(reg) source, t = in(reg) target, $($operands)+, options(nostack, preserves_flags));
            }
        }
    )+};
}
/// [`Accesses::STORE`] of 16 bytes, and [`Accesses::store`]: the class of a register for each width, a load to it and a store from it.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! stores {
    ($($width:pat => $class:ident, $load:literal, $store:literal;)+) => {
        const STORE: usize = 16;

        #[inline(always)]
        unsafe fn store(width: usize, target: *mut u8, source: *const u8) {
            debug_assert!(width.is_power_of_two() && width <= 16);
            match width {$(
                // SAFETY: by the trait's contract.
                $width => unsafe {
                    asm!($load, $store, v = out($class) _, s = in(reg) source, t = in(reg) target,
                        options(nostack, preserves_flags));
                },
            )+}
        }
    };
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) use {moves, stores};

/// The accesses of every architecture: byte atomics, the only ones in Rust that may race with accesses of any width.
pub(super) struct Portable;

impl Accesses for Portable {
    const LOAD: usize = 1;
    const STORE: usize = 1;

    unsafe fn store(_width: usize, target: *mut u8, source: *const u8) {
        // SAFETY: the private byte is mapped, by the trait's contract.
        let byte = unsafe { source.read() };
        // SAFETY: the shared byte is mapped, by the trait's contract, and bytes are always aligned.
        unsafe { AtomicU8::from_ptr(target) }.store(byte, Ordering::Relaxed);
    }

    unsafe fn load(target: *mut u8, source: *const u8) {
        // SAFETY: as in `store`.
        let byte = unsafe { AtomicU8::from_ptr(source.cast_mut()) }.load(Ordering::Relaxed);
        // SAFETY: the private byte is mapped, by the trait's contract.
        unsafe { target.write(byte) };
    }
}

/// Copies `source` to the shared bytes at `target`, in any order, and orders nothing.
///
/// # Safety
///
/// `source.len()` bytes at `target` must be mapped, no Rust reference to them exist, and the CPU have `A`'s
/// instructions.
#[inline(never)]
pub(super) unsafe fn write<A: Accesses>(target: *mut u8, source: &[u8]) {
    const { assert!(A::STORE.is_power_of_two() && A::STORE < LINE) };
    let (mut to, mut from, mut left) = (target, source.as_ptr(), source.len());
    macro_rules! put {
        ($store:ident($($width:expr)?), $len:expr) => {
            // SAFETY: within the bytes on both sides, and aligned, as each use of this macro says.
            unsafe { A::$store($($width,)? to, from) };
            (to, from, left) = (to.wrapping_add($len), from.wrapping_add($len), left - $len);
        };
    }
    if left <= A::STORE && left.is_power_of_two() && to.addr() & (left - 1) == 0 {
        // One store, aligned and whole, such as of a flag: 2.9 ns instead of 4.9 for 8 bytes (`make bench ONLY=copies`).
        put!(store(left), left);
    }
    for width in [1, 2, 4, 8, 16] {
        if width < A::STORE && to.addr() & width != 0 && left >= width {
            // Aligned: the smaller bits of the address are stored.
            put!(store(width), width);
        }
    }
    while left >= A::STORE && !to.addr().is_multiple_of(LINE) {
        // Aligned: so much would not be left otherwise.
        put!(store(A::STORE), A::STORE);
    }
    while left >= LINE {
        // Aligned: the loop above has ended although `STORE` bytes are left.
        put!(store_line(), LINE);
    }
    while left >= A::STORE {
        // Aligned as above, or by the lines.
        put!(store(A::STORE), A::STORE);
    }
    for width in [16, 8, 4, 2, 1] {
        if width < A::STORE && left & width != 0 {
            // Aligned: the widths fall by powers of two.
            put!(store(width), width);
        }
    }
    debug_assert_eq!(left, 0);
}

/// Copies the shared bytes at `source` to `target`, in any order, and orders nothing.
///
/// # Safety
///
/// All lines that hold the `target.len()` bytes at `source` must be mapped. No mutable Rust reference to those bytes
/// may exist, and the CPU must have `A`'s instructions.
#[inline(never)]
pub(super) unsafe fn read<A: Accesses>(source: *const u8, target: &mut [u8]) {
    const { assert!(A::LOAD.is_power_of_two() && A::LOAD <= LINE) };
    let (mut from, mut to, mut left) = (source, target.as_mut_ptr(), target.len());
    let skip = from.addr() % LINE;
    if skip > 0 && left > 0 {
        let len = left.min(LINE - skip);
        // SAFETY: the bytes are wanted, and all of their line is mapped.
        unsafe { A::load_part(to, from.wrapping_sub(skip), skip, len) };
        (from, to, left) = (from.wrapping_add(len), to.wrapping_add(len), left - len);
    }
    while left >= LINE {
        // SAFETY: a line is left, and begins here: what was before it has been read.
        unsafe { A::load_line(to, from) };
        (from, to, left) = (from.wrapping_add(LINE), to.wrapping_add(LINE), left - LINE);
    }
    if left > 0 {
        // SAFETY: the rest, from a line's start on.
        unsafe { A::load_part(to, from, 0, left) };
    }
}
