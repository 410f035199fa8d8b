//! Copies between private memory and memory that the device, or another thread, may use at the same time.
//!
//! A race over the shared bytes changes which bytes are seen, never whether the program is defined. Rust allows
//! that for atomic accesses of one size, so every access to shared bytes counts as one to single bytes: on x86-64 it
//! is made by assembly, whose wider accesses are invisible to the compiler, elsewhere by relaxed byte atomics.
#![expect(unsafe_code, reason = "copies through raw pointers")]

#[cfg(any(test, not(target_arch = "x86_64")))]
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use std::ptr::NonNull;

#[cfg(not(target_arch = "x86_64"))]
use portable as routines;
#[cfg(target_arch = "x86_64")]
use x86_64 as routines;

pub(super) use routines::store_fence;

/// Copies `source` to the shared bytes at `target`.
///
/// # Safety
///
/// `source.len()` bytes at `target` must be mapped, and no Rust reference to them exist.
pub(super) unsafe fn write(target: NonNull<u8>, source: &[u8]) {
    // SAFETY: by this function's contract.
    unsafe { routines::write(target.as_ptr(), source) };
}

/// Copies the shared bytes at `source` to `target`.
///
/// # Safety
///
/// `target.len()` bytes at `source` must be mapped, and no mutable Rust reference to them exist.
pub(super) unsafe fn read(source: NonNull<u8>, target: &mut [u8]) {
    // SAFETY: by this function's contract.
    unsafe { routines::read(source.as_ptr(), target) };
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

#[cfg(test)]
mod tests {
    use super::*;

    const GUARD: u8 = 0xee;
    /// The most that a routine handles in one step.
    const BLOCK: usize = 64;

    /// Bytes that differ from their neighbours and from the guard.
    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|i| u8::try_from(i % 199).unwrap_or(0)).collect()
    }

    fn at(buffer: &mut [u8], offset: usize) -> NonNull<u8> {
        NonNull::from(&mut buffer[offset..]).cast()
    }

    fn check_write(write: unsafe fn(*mut u8, &[u8]), offset: usize, len: usize) {
        let (source, mut target) = (pattern(len), vec![GUARD; 5 * BLOCK]);
        let to = at(&mut target, offset);
        // SAFETY: `offset + len` is less than the buffer's length.
        unsafe { write(to.as_ptr(), &source) };
        let expected = [vec![GUARD; offset], source, vec![GUARD; 5 * BLOCK - offset - len]].concat();
        assert_eq!(target, expected, "{len} bytes at {offset}");
    }

    fn check_read(read: unsafe fn(*const u8, &mut [u8]), offset: usize, len: usize) {
        let (mut source, mut target) = (pattern(5 * BLOCK), vec![GUARD; len + 2]);
        let from = at(&mut source, offset);
        // SAFETY: `offset + len` is less than the buffer's length.
        unsafe { read(from.as_ptr(), &mut target[1..=len]) };
        assert_eq!(&target[1..=len], &pattern(5 * BLOCK)[offset..offset + len], "{len} bytes at {offset}");
        assert_eq!((target[0], target[len + 1]), (GUARD, GUARD));
    }

    #[test]
    fn every_routine_reaches_its_bytes_and_no_others() {
        for offset in 0..17 {
            for len in 0..4 * BLOCK {
                check_write(routines::write, offset, len);
                check_write(portable::write, offset, len);
                check_read(routines::read, offset, len);
                check_read(portable::read, offset, len);
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
}
