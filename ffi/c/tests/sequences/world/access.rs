//! Copies, fills and flushes in sequences of C library calls.

use vkgdr_c::*;

use super::{INVALID_ARGUMENT, Item, LARGEST, NOT_SUPPORTED, OUT_OF_RANGE, SUCCESS, World};

impl World<'_> {
    /// The permitted statuses of a copy of a range.
    fn expected(item: &Item, offset: usize, size: usize) -> [i32; 2] {
        match (is_inside(offset, size, item.len), item.kind) {
            (true, 2) => [NOT_SUPPORTED; 2],
            (false, 2) => [NOT_SUPPORTED, OUT_OF_RANGE],
            (true, _) => [SUCCESS; 2],
            (false, _) => [OUT_OF_RANGE; 2],
        }
    }

    pub(crate) fn write(&mut self) {
        let Some(index) = self.ready() else { return };
        let item = &mut self.items[index];
        let (offset, size) = (self.input.number(item.len), self.input.number(item.len).min(2 * LARGEST));
        let source = vec![self.input.byte(); size];
        // SAFETY: live, and the source has the bytes.
        let status = unsafe { vkgdr_memory_write(item.handle, offset, source.as_ptr().cast(), size) };
        assert!(Self::expected(item, offset, size).contains(&status), "{size} at {offset} of {}: {status}", item.len);
        if status == SUCCESS {
            item.wrote(offset, &source);
        }
    }

    /// Copies to the memory and back with a policy, which may be invalid.
    pub(crate) fn copy(&mut self) {
        let Some(index) = self.ready() else { return };
        let policy = u32::from(self.input.byte() % 4);
        let item = &mut self.items[index];
        let (offset, size) = (self.input.number(item.len), self.input.number(item.len).min(2 * LARGEST));
        let (source, mut target) = (vec![self.input.byte(); size], vec![0; size]);
        // SAFETY: live, and the source has the bytes.
        let written = unsafe { vkgdr_copy_write(item.handle, offset, source.as_ptr().cast(), size, policy) };
        // SAFETY: live, and the target has the bytes.
        let read = unsafe { vkgdr_copy_read(item.handle, offset, target.as_mut_ptr().cast(), size, policy) };
        let expected = match (policy, is_inside(offset, size, item.len), item.kind) {
            (3, ..) => INVALID_ARGUMENT,
            (_, false, _) => OUT_OF_RANGE,
            (1, true, 2) => NOT_SUPPORTED,
            (_, true, _) => SUCCESS,
        };
        assert_eq!([written, read], [expected; 2], "{size} at {offset} of {}, policy {policy}", item.len);
        if expected == SUCCESS {
            assert!(source == target, "read other bytes than were written");
            item.wrote(offset, &source);
        }
    }

    pub(crate) fn choose(&mut self) -> Option<usize> {
        (!self.items.is_empty()).then(|| self.input.below(self.items.len()))
    }

    /// An item that the CPU may use.
    fn ready(&mut self) -> Option<usize> {
        let index = self.choose()?;
        self.wait(index);
        Some(index)
    }

    pub(crate) fn read(&mut self) {
        let Some(index) = self.ready() else { return };
        let item = &self.items[index];
        let (offset, size) = (self.input.number(item.len), self.input.number(item.len).min(2 * LARGEST));
        let mut target = vec![0; size];
        // SAFETY: live, and the target has the bytes.
        let status = unsafe { vkgdr_memory_read(item.handle, offset, target.as_mut_ptr().cast(), size) };
        assert!(Self::expected(item, offset, size).contains(&status), "{size} at {offset} of {}: {status}", item.len);
        if let (SUCCESS, Some(bytes), false) = (status, &item.bytes, item.shared) {
            assert!(bytes[offset..offset + size] == target, "read other bytes than were written");
        }
    }

    pub(crate) fn fill(&mut self) {
        let Some(index) = self.ready() else { return };
        let item = &mut self.items[index];
        let (offset, size) = (self.input.number(item.len), self.input.number(item.len));
        let pattern = vec![self.input.byte(); self.input.below(9)];
        // SAFETY: live, and the pattern has the bytes.
        let status = unsafe { vkgdr_memory_fill(item.handle, offset, size, pattern.as_ptr().cast(), pattern.len()) };
        let fits =
            !pattern.is_empty() && size.is_multiple_of(pattern.len().max(1)) && is_inside(offset, size, item.len);
        assert_eq!(status == SUCCESS, fits && item.kind != 2, "{size} at {offset} of {}: {status}", item.len);
        if status == SUCCESS {
            item.wrote(offset, &pattern.repeat(size / pattern.len()));
        }
    }

    pub(crate) fn synchronise(&mut self) {
        let Some(index) = self.ready() else { return };
        let Item { handle, len, .. } = self.items[index];
        let (offset, size) = (self.input.number(len), self.input.number(len));
        // `usize::MAX` bytes are those up to the end.
        let size_to_end = if size == usize::MAX { len.saturating_sub(offset) } else { size };
        let expected = if is_inside(offset, size_to_end, len) { SUCCESS } else { OUT_OF_RANGE };
        // SAFETY: live.
        let status = unsafe {
            match self.input.byte() % 4 {
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
    pub(crate) fn wrote(&mut self, offset: usize, new: &[u8]) {
        if offset == 0 && new.len() == self.len {
            self.bytes = Some(new.to_vec());
        } else if let Some(bytes) = &mut self.bytes {
            bytes[offset..offset + new.len()].copy_from_slice(new);
        }
    }
}

pub(crate) fn is_inside(offset: usize, size: usize, len: usize) -> bool {
    offset <= len && size <= len - offset
}
