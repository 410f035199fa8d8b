//! Copies, fills and flushes in sequences of C library calls.

use vkgdr_c::*;

use super::{Bytes, INVALID_ARGUMENT, Item, LARGEST, NOT_SUPPORTED, OUT_OF_RANGE, SUCCESS, World};

/// The number of copy policies, which is itself no policy: the C functions must refuse it.
const POLICIES: u32 = 3;
/// Selects the C functions that take no policy.
const NO_POLICY: u32 = POLICIES + 1;

impl World {
    /// A policy, an offset and a size of a copy.
    fn place(&mut self, len: usize) -> (u32, usize, usize) {
        let policy = u32::from(self.numbers.byte() % 5);
        (policy, self.numbers.edge(len), self.numbers.edge(len).min(2 * LARGEST))
    }

    pub(crate) fn write(&mut self, index: usize) {
        let (policy, offset, size) = self.place(self.items[index].len);
        let (item, source) = (&self.items[index], vec![self.numbers.byte(); size]);
        let (handle, bytes) = (item.handle, source.as_ptr().cast());
        // SAFETY: live, and the source has the bytes.
        let status = unsafe {
            match policy {
                NO_POLICY => vkgdr_memory_write(handle, offset, bytes, size),
                policy => vkgdr_copy_write(handle, offset, bytes, size, policy),
            }
        };
        if item.copies(policy, offset, size, status) {
            item.wrote(offset, &source);
        }
    }

    pub(crate) fn read(&mut self, index: usize) {
        let (policy, offset, size) = self.place(self.items[index].len);
        let (item, mut target) = (&self.items[index], vec![0_u8; size]);
        let (handle, bytes) = (item.handle, target.as_mut_ptr().cast());
        // SAFETY: live, and the target has the bytes.
        let status = unsafe {
            match policy {
                NO_POLICY => vkgdr_memory_read(handle, offset, bytes, size),
                policy => vkgdr_copy_read(handle, offset, bytes, size, policy),
            }
        };
        if item.copies(policy, offset, size, status) {
            let same = item.expected(offset, size).is_none_or(|expected| expected == target);
            assert!(same, "read other bytes than were written, {size} at {offset} of {}", item.len);
        }
    }

    pub(crate) fn fill(&mut self, index: usize) {
        let item = &self.items[index];
        let (offset, size) = (self.numbers.edge(item.len), self.numbers.edge(item.len));
        let pattern = vec![self.numbers.byte(); self.numbers.below(9)];
        // SAFETY: live, and the pattern has the bytes.
        let status = unsafe { vkgdr_memory_fill(item.handle, offset, size, pattern.as_ptr().cast(), pattern.len()) };
        let fits =
            !pattern.is_empty() && size.is_multiple_of(pattern.len().max(1)) && is_inside(offset, size, item.len);
        assert_eq!(status == SUCCESS, fits && item.kind != 2, "{size} at {offset} of {}: {status}", item.len);
        if status == SUCCESS {
            item.wrote(offset, &pattern.repeat(size / pattern.len()));
        }
    }

    pub(crate) fn synchronise(&mut self, index: usize) {
        let Item { handle, len, .. } = self.items[index];
        let (offset, size) = (self.numbers.edge(len), self.numbers.edge(len));
        // `usize::MAX` bytes are those up to the end.
        let size_to_end = if size == usize::MAX { len.saturating_sub(offset) } else { size };
        let expected = if is_inside(offset, size_to_end, len) { SUCCESS } else { OUT_OF_RANGE };
        // SAFETY: live. An invalidation may undo writes that were not flushed.
        let status = unsafe {
            assert_eq!(vkgdr_memory_flush_checked(handle, 0, len), SUCCESS);
            match self.numbers.below(4) {
                0 => vkgdr_memory_flush_checked(handle, offset, size),
                1 => vkgdr_memory_invalidate_checked(handle, offset, size),
                2 => {
                    vkgdr_memory_flush(handle, offset, size);
                    expected
                }
                _ => {
                    vkgdr_memory_invalidate(handle, offset, size);
                    expected
                }
            }
        };
        assert_eq!(status, expected, "{size} at {offset} of {len}");
    }
}

impl Item {
    /// Whether a copy of a range was made; fails unless the status is a permitted one.
    fn copies(&self, policy: u32, offset: usize, size: usize, status: i32) -> bool {
        let permitted = match (policy, is_inside(offset, size, self.len), self.kind) {
            (POLICIES, ..) => [INVALID_ARGUMENT; 2],
            (NO_POLICY, false, 2) => [NOT_SUPPORTED, OUT_OF_RANGE],
            (_, false, _) => [OUT_OF_RANGE; 2],
            (1 | NO_POLICY, true, 2) => [NOT_SUPPORTED; 2],
            (_, true, _) => [SUCCESS; 2],
        };
        assert!(permitted.contains(&status), "{size} at {offset} of {}, policy {policy}: {status}", self.len);
        status == SUCCESS
    }

    /// The expected bytes of a range, if they are known.
    pub(crate) fn expected(&self, offset: usize, size: usize) -> Option<Vec<u8>> {
        let bytes = self.bytes.borrow();
        bytes.known.then(|| bytes.expected[self.start + offset..][..size].to_vec())
    }

    pub(crate) fn wrote(&self, offset: usize, new: &[u8]) {
        let Bytes { expected, known } = &mut *self.bytes.borrow_mut();
        expected[self.start + offset..][..new.len()].copy_from_slice(new);
        *known |= new.len() == expected.len();
    }
}

pub(crate) fn is_inside(offset: usize, size: usize, len: usize) -> bool {
    offset <= len && size <= len - offset
}
