//! Dot products of bytes, and differences of the parts of words.
#![expect(clippy::cast_possible_truncation, reason = "values are cut to their type's width")]

use super::Ternary;

/// Part `index` of a word, of `BITS` bits.
fn part<const BITS: u32, const SIGNED: bool>(word: u64, index: u32) -> i64 {
    let value = word >> (BITS * index) & super::mask(BITS);
    if SIGNED { super::sign_extend(value, BITS).cast_signed() } else { value.cast_signed() }
}

fn dp4a<const A: bool, const B: bool>(a: u64, b: u64, c: u64) -> u64 {
    let sum: i64 = (0..4).map(|index| part::<8, A>(a, index) * part::<8, B>(b, index)).sum();
    u64::from((c as u32).wrapping_add(sum as u32))
}

fn dp2a<const A: bool, const B: bool, const HIGH: bool>(a: u64, b: u64, c: u64) -> u64 {
    let first = if HIGH { 2 } else { 0 };
    let sum: i64 = (0..2).map(|index| part::<16, A>(a, index) * part::<8, B>(b, first + index)).sum();
    u64::from((c as u32).wrapping_add(sum as u32))
}

// A difference is cut to its part of the result, or added to `c` in full.
fn absolute<const BITS: u32, const A: bool, const B: bool, const ADD: bool>(a: u64, b: u64, c: u64) -> u64 {
    let parts = (0..32 / BITS).map(|index| (part::<BITS, A>(a, index) - part::<BITS, B>(b, index)).unsigned_abs());
    if ADD {
        u64::from(parts.fold(c as u32, |sum, part| sum.wrapping_add(part as u32)))
    } else {
        (0..).zip(parts).fold(0, |word, (index, part)| word | (part & super::mask(BITS)) << (BITS * index))
    }
}

/// The absolute differences of four bytes or two half-words, side by side or added to a third word.
pub(crate) fn absolute_differences(of_bytes: bool, signed: (bool, bool), add: bool) -> Ternary {
    match (of_bytes, signed, add) {
        (true, (false, false), false) => absolute::<8, false, false, false>,
        (true, (false, false), true) => absolute::<8, false, false, true>,
        (true, (false, true), false) => absolute::<8, false, true, false>,
        (true, (false, true), true) => absolute::<8, false, true, true>,
        (true, (true, false), false) => absolute::<8, true, false, false>,
        (true, (true, false), true) => absolute::<8, true, false, true>,
        (true, (true, true), false) => absolute::<8, true, true, false>,
        (true, (true, true), true) => absolute::<8, true, true, true>,
        (false, (false, false), false) => absolute::<16, false, false, false>,
        (false, (false, false), true) => absolute::<16, false, false, true>,
        (false, (false, true), false) => absolute::<16, false, true, false>,
        (false, (false, true), true) => absolute::<16, false, true, true>,
        (false, (true, false), false) => absolute::<16, true, false, false>,
        (false, (true, false), true) => absolute::<16, true, false, true>,
        (false, (true, true), false) => absolute::<16, true, true, false>,
        (false, (true, true), true) => absolute::<16, true, true, true>,
    }
}

/// Four products of bytes.
pub(crate) fn four(a_signed: bool, b_signed: bool) -> Ternary {
    match (a_signed, b_signed) {
        (false, false) => dp4a::<false, false>,
        (false, true) => dp4a::<false, true>,
        (true, false) => dp4a::<true, false>,
        (true, true) => dp4a::<true, true>,
    }
}

/// Two products of a half-word of `a` and a byte of the low or high half of `b`.
pub(crate) fn two(a_signed: bool, b_signed: bool, high: bool) -> Ternary {
    match (a_signed, b_signed, high) {
        (false, false, false) => dp2a::<false, false, false>,
        (false, false, true) => dp2a::<false, false, true>,
        (false, true, false) => dp2a::<false, true, false>,
        (false, true, true) => dp2a::<false, true, true>,
        (true, false, false) => dp2a::<true, false, false>,
        (true, false, true) => dp2a::<true, false, true>,
        (true, true, false) => dp2a::<true, true, false>,
        (true, true, true) => dp2a::<true, true, true>,
    }
}
