//! Copies of write-combined memory by aligned accesses, generic over the instruction set ([`Accesses`]).
//!
//! Every access to shared memory is aligned to its width and stays within one line of [`LINE`] bytes. Whole lines are
//! accessed by the widest instructions. The bytes of a line that is only copied in part are
//!
//! * written by the fewest stores that reach them and no others, each byte once: a device that polls a word must not see
//!   it written twice;
//! * read by the fewest loads of one width that cover them. These may read more of the line and discard it: a load from
//!   write-combined memory is a transaction on the bus, whatever its width.
#![expect(unsafe_code, reason = "copies through raw pointers")]

use super::cached::{self, Vectors};
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

    /// Stores whole lines, at least one, to a shared place aligned to a line.
    unsafe fn store_lines(target: *mut u8, source: *const u8, lines: usize);

    /// Loads `LOAD` bytes from a shared place aligned to that, not as a streaming load (see [`copy`](super), "Order").
    unsafe fn load(target: *mut u8, source: *const u8);

    /// Loads whole lines, at least one, from a shared place aligned to a line.
    unsafe fn load_lines(target: *mut u8, source: *const u8, lines: usize);

    /// Copies `len` bytes, at least one, of a shared line from its byte `skip` on.
    #[inline(always)]
    unsafe fn load_part(target: *mut u8, line: *const u8, skip: usize, len: usize) {
        #[repr(align(64))]
        struct Line([u8; LINE]);
        let mut private = Line([0; LINE]);
        let first = skip - skip % Self::LOAD;
        for start in (first..skip + len).step_by(Self::LOAD) {
            let to = private.0[start..start + Self::LOAD].as_mut_ptr();
            // SAFETY: the load is aligned and within the line; there is room for it at `to`.
            unsafe { Self::load(to, line.wrapping_add(start)) };
        }
        // SAFETY: `len` bytes from `skip` on are within the line, and mapped at `target` by this method's contract.
        unsafe { cached::copy(Vectors::Narrow, target, private.0[skip..].as_ptr(), len) };
    }
}

/// The remainder of a write.
struct Rest {
    to: *mut u8,
    from: *const u8,
    len: usize,
}

impl Rest {
    /// Stores the next `width` bytes. So many must be left, and the place be aligned to that.
    ///
    /// # Safety
    ///
    /// The contract of [`Accesses::store`].
    #[inline(always)]
    unsafe fn store<A: Accesses>(&mut self, width: usize) {
        // SAFETY: by this method's contract.
        unsafe { A::store(width, self.to, self.from) };
        self.advance(width);
    }

    #[inline(always)]
    const fn advance(&mut self, bytes: usize) {
        self.to = self.to.wrapping_add(bytes);
        self.from = self.from.wrapping_add(bytes);
        self.len -= bytes;
    }

    fn begins_line(&self) -> bool {
        self.to.addr().is_multiple_of(LINE)
    }
}

/// Copies `source` to the shared bytes at `target`, in any order, and orders nothing.
///
/// # Safety
///
/// `source.len()` bytes at `target` must be mapped, no Rust reference to them exist, and the CPU have `A`'s
/// instructions.
#[inline(always)]
pub(super) unsafe fn write<A: Accesses>(target: *mut u8, source: &[u8]) {
    const { assert!(A::STORE.is_power_of_two() && A::STORE < LINE) };
    let mut rest = Rest { to: target, from: source.as_ptr(), len: source.len() };
    /// One store of each width less than `STORE` for which the condition holds.
    macro_rules! stores {
        ($($width:literal)*, $if:expr) => {$(
            if $width < A::STORE && $if(&rest, $width) {
                // SAFETY: at least `$width` bytes are left, and the place is aligned to it: before the first line boundary
                // every smaller alignment bit was stored already, after the last line the widths fall by powers of two.
                unsafe { rest.store::<A>($width) };
            }
        )*};
    }
    if !rest.begins_line() {
        stores!(1 2 4 8 16, |rest: &Rest, width| rest.to.addr() & width != 0 && rest.len >= width);
        while !rest.begins_line() && rest.len >= A::STORE {
            // SAFETY: so much is left, which it would not be if the place were not aligned.
            unsafe { rest.store::<A>(A::STORE) };
        }
    }
    let lines = rest.len / LINE;
    if lines > 0 {
        // SAFETY: the lines are left, and the first begins here: the loop above has ended although `STORE` bytes are left.
        unsafe { A::store_lines(rest.to, rest.from, lines) };
        rest.advance(lines * LINE);
    }
    while rest.len >= A::STORE {
        // SAFETY: so much is left, and the place is aligned as above, or by the lines.
        unsafe { rest.store::<A>(A::STORE) };
    }
    stores!(16 8 4 2 1, |rest: &Rest, width| rest.len & width != 0);
}

/// Copies the shared bytes at `source` to `target`, in any order, and orders nothing.
///
/// # Safety
///
/// All of the lines that hold the `target.len()` bytes at `source` must be mapped, no mutable Rust reference to those
/// bytes exist, and the CPU have `A`'s instructions.
#[inline(always)]
pub(super) unsafe fn read<A: Accesses>(source: *const u8, target: &mut [u8]) {
    const { assert!(A::LOAD.is_power_of_two() && A::LOAD <= LINE) };
    let (mut from, mut to, mut left) = (source, target.as_mut_ptr(), target.len());
    let skip = from.addr() % LINE;
    if left < LINE - skip {
        if left > 0 {
            // SAFETY: the wanted bytes are in one line, and all of it is mapped.
            unsafe { A::load_part(to, from.wrapping_sub(skip), skip, left) };
        }
        return;
    }
    if skip > 0 {
        let len = LINE - skip;
        // SAFETY: the bytes up to the line's end are wanted, and all of the line is mapped.
        unsafe { A::load_part(to, from.wrapping_sub(skip), skip, len) };
        (from, to, left) = (from.wrapping_add(len), to.wrapping_add(len), left - len);
    }
    let lines = left / LINE;
    if lines > 0 {
        // SAFETY: the lines are left, and begin here: what was before them has been read.
        unsafe { A::load_lines(to, from, lines) };
    }
    let (done, len) = (lines * LINE, left % LINE);
    if len > 0 {
        // SAFETY: the rest, from a line's start on.
        unsafe { A::load_part(to.wrapping_add(done), from.wrapping_add(done), 0, len) };
    }
}

#[cfg(test)]
mod tests;
