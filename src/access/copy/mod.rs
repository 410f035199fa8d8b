//! Copies between private memory and memory that the device, or another thread, may use at the same time.
//!
//! The shared side is accessed by relaxed atomics, a machine word at a time: a race changes which bytes are
//! seen, never whether the program is defined.
#![expect(unsafe_code, reason = "copies through raw pointers")]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

const WORD: usize = size_of::<usize>();

/// How a run of bytes splits at the shared side's word boundaries: `head` bytes, whole words, `tail` bytes.
#[derive(Debug, PartialEq, Eq)]
struct Split {
    head: usize,
    words: usize,
    tail: usize,
}

impl Split {
    fn of(address: usize, len: usize) -> Self {
        let head = (address.wrapping_neg() % WORD).min(len);
        let rest = len - head;
        Self { head, words: rest / WORD, tail: rest % WORD }
    }
}

/// Copies `source` to the shared bytes at `target`.
///
/// # Safety
///
/// `source.len()` bytes at `target` must be mapped, and no Rust reference to them exist.
pub(super) unsafe fn write(target: NonNull<u8>, source: &[u8]) {
    let split = Split::of(target.addr().get(), source.len());
    let (head, rest) = source.split_at(split.head);
    let (words, tail) = rest.split_at(split.words * WORD);
    for (index, &byte) in head.iter().enumerate() {
        // SAFETY: `index` is within the bytes at `target`.
        unsafe { shared_byte(target, index) }.store(byte, Ordering::Relaxed);
    }
    for (index, word) in words.as_chunks::<WORD>().0.iter().enumerate() {
        // SAFETY: the word is within the bytes at `target`, and `head` bytes bring it to a word boundary.
        let shared = unsafe { shared_word(target, split.head + index * WORD) };
        shared.store(usize::from_ne_bytes(*word), Ordering::Relaxed);
    }
    for (index, &byte) in (split.head + words.len()..).zip(tail) {
        // SAFETY: `index` is within the bytes at `target`.
        unsafe { shared_byte(target, index) }.store(byte, Ordering::Relaxed);
    }
}

/// Copies the shared bytes at `source` to `target`.
///
/// # Safety
///
/// `target.len()` bytes at `source` must be mapped, and no Rust reference to them exist.
pub(super) unsafe fn read(source: NonNull<u8>, target: &mut [u8]) {
    let split = Split::of(source.addr().get(), target.len());
    let (head, rest) = target.split_at_mut(split.head);
    let (words, tail) = rest.split_at_mut(split.words * WORD);
    for (index, byte) in head.iter_mut().enumerate() {
        // SAFETY: `index` is within the bytes at `source`.
        *byte = unsafe { shared_byte(source, index) }.load(Ordering::Relaxed);
    }
    for (index, word) in words.as_chunks_mut::<WORD>().0.iter_mut().enumerate() {
        // SAFETY: the word is within the bytes at `source`, and `head` bytes bring it to a word boundary.
        let shared = unsafe { shared_word(source, split.head + index * WORD) };
        *word = shared.load(Ordering::Relaxed).to_ne_bytes();
    }
    for (index, byte) in (split.head + words.len()..).zip(tail) {
        // SAFETY: `index` is within the bytes at `source`.
        *byte = unsafe { shared_byte(source, index) }.load(Ordering::Relaxed);
    }
}

/// Repeats `pattern` over the `len` shared bytes at `target`.
///
/// # Safety
///
/// `len` bytes at `target` must be mapped, and no Rust reference to them exist.
pub(super) unsafe fn fill(target: NonNull<u8>, len: usize, pattern: &[u8]) {
    /// Large enough that the repetition costs nothing, small enough to stay in the first-level cache.
    const BLOCK: usize = 4096;
    if pattern.is_empty() {
        return;
    }
    let block = pattern.repeat(BLOCK.div_ceil(pattern.len()).min(len.div_ceil(pattern.len())));
    for offset in (0..len).step_by(block.len().max(1)) {
        let part = &block[..block.len().min(len - offset)];
        // SAFETY: `offset` is within the bytes at `target`.
        let to = unsafe { target.add(offset) };
        // SAFETY: `part` ends within the bytes at `target`.
        unsafe { write(to, part) };
    }
}

/// Orders the CPU's earlier stores, write-combined ones included, before its later ones.
#[inline]
pub(super) fn store_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 CPU has SSE.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(Ordering::SeqCst);
}

/// # Safety
///
/// The byte must be mapped, and no Rust reference to it exist.
unsafe fn shared_byte<'a>(base: NonNull<u8>, index: usize) -> &'a AtomicU8 {
    // SAFETY: within the mapping by this function's contract.
    let pointer = unsafe { base.add(index) };
    // SAFETY: mapped, and bytes are always aligned.
    unsafe { AtomicU8::from_ptr(pointer.as_ptr()) }
}

/// # Safety
///
/// The word must be mapped and aligned, and no Rust reference to it exist.
unsafe fn shared_word<'a>(base: NonNull<u8>, offset: usize) -> &'a AtomicUsize {
    // SAFETY: within the mapping by this function's contract.
    let pointer = unsafe { base.add(offset) };
    // SAFETY: mapped and aligned by this function's contract.
    unsafe { AtomicUsize::from_ptr(pointer.cast().as_ptr()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUARD: u8 = 0xee;

    /// Bytes that differ from their neighbours and from the guard.
    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|i| u8::try_from(i % 199).unwrap_or(0)).collect()
    }

    fn at(buffer: &mut [u8], offset: usize) -> NonNull<u8> {
        NonNull::from(&mut buffer[offset..]).cast()
    }

    #[test]
    fn writes_reach_their_bytes_and_no_others() {
        for offset in 0..2 * WORD {
            for len in 0..6 * WORD {
                let (source, mut target) = (pattern(len), vec![GUARD; 9 * WORD]);
                let to = at(&mut target, offset);
                // SAFETY: `offset + len` is less than the buffer's length.
                unsafe { write(to, &source) };
                let expected = [vec![GUARD; offset], source, vec![GUARD; 9 * WORD - offset - len]].concat();
                assert_eq!(target, expected, "{len} bytes at {offset}");
            }
        }
    }

    #[test]
    fn reads_see_their_bytes_and_touch_no_others() {
        for offset in 0..2 * WORD {
            for len in 0..6 * WORD {
                let (mut source, mut target) = (pattern(9 * WORD), vec![GUARD; len + 2]);
                let from = at(&mut source, offset);
                // SAFETY: `offset + len` is less than the buffer's length.
                unsafe { read(from, &mut target[1..=len]) };
                assert_eq!(&target[1..=len], &pattern(9 * WORD)[offset..offset + len]);
                assert_eq!((target[0], target[len + 1]), (GUARD, GUARD));
            }
        }
    }

    #[test]
    fn fills_repeat_the_pattern_across_blocks() {
        for (len, unit) in [(0, 1), (1, 1), (9, 3), (4096, 8), (12_288, 12), (5000, 5000)] {
            let (pattern, mut target) = (pattern(unit), vec![GUARD; len + 2]);
            let to = at(&mut target, 1);
            // SAFETY: the buffer has `len` bytes from there.
            unsafe { fill(to, len, &pattern) };
            let expected: Vec<u8> = pattern.iter().copied().cycle().take(len).collect();
            assert_eq!(&target[1..=len], expected, "{len} bytes of {unit}");
            assert_eq!((target[0], target[len + 1]), (GUARD, GUARD));
        }
    }

    #[test]
    fn a_run_splits_at_word_boundaries() {
        assert_eq!(Split::of(WORD, 3 * WORD), Split { head: 0, words: 3, tail: 0 });
        assert_eq!(Split::of(WORD + 1, 2 * WORD), Split { head: WORD - 1, words: 1, tail: 1 });
        assert_eq!(Split::of(WORD + 1, 2), Split { head: 2, words: 0, tail: 0 });
    }
}
