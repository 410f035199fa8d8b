//! The layout of a ring's two memories: control blocks, position words and records. `vkgdr_ring.cuh` must match it.
#![forbid(unsafe_code)]

/// The version of the layout, the first word of the device's control block.
pub(super) const VERSION: u64 = 1;
/// The bytes before the records in each memory.
pub(super) const CONTROL: usize = 1024;
/// The offset of the word that the producer writes, in the memory with the records: the head. Each word has 256 bytes of its
/// own, the largest `nonCoherentAtomSize` that Vulkan allows (specification, "Required Limits").
pub(super) const HEAD: usize = 256;
/// The offset of the word that the consumer writes, in the memory with the other direction's records: the tail.
pub(super) const TAIL: usize = 512;

/// The words of the device's control block: version, the addresses and lengths of the two directions' records, the address of
/// the host memory's control block.
pub(super) const DESCRIPTION: usize = 6;

/// A bit of a position word: its writer will not move it again.
pub(super) const CLOSED: u64 = 1 << 63;
/// A bit of a position word: its reader stops at once.
pub(super) const ABORTED: u64 = 1 << 62;
/// The other bits of a position word: the bytes of all records before the position, from the ring's beginning on.
pub(super) const POSITION: u64 = ABORTED - 1;

/// The unit of records, which aligns messages: what a kernel loads at once.
pub(super) const UNIT: usize = 16;

/// The length of a record with a message of `len` bytes; `None` if there is no such length.
pub(super) fn record_len(len: usize) -> Option<usize> {
    len.checked_next_multiple_of(UNIT)?.checked_add(Header::LEN)
}

/// The header before each message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Header {
    /// A message: its length in bytes, and its number, from 0.
    Message {
        /// The length in bytes.
        len: usize,
        /// The number.
        number: u64,
    },
    /// The rest of the records' memory is unused: the next record is at the memory's beginning.
    Skip,
}

/// The first word of [`Header::Skip`].
const SKIP: u64 = 1 << 63;

impl Header {
    pub(super) const LEN: usize = UNIT;

    pub(super) fn to_bytes(self) -> [u8; Self::LEN] {
        let (first, second) = match self {
            Self::Message { len, number } => (len as u64, number),
            Self::Skip => (SKIP, 0),
        };
        let mut bytes = [0; Self::LEN];
        let (low, high) = bytes.split_at_mut(8);
        low.copy_from_slice(&first.to_le_bytes());
        high.copy_from_slice(&second.to_le_bytes());
        bytes
    }

    /// The header of these bytes; `None` if they are no header.
    pub(super) fn from_bytes(bytes: [u8; Self::LEN]) -> Option<Self> {
        let (first, second) = bytes.split_at(8);
        let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes);
        let (first, number) = (word(first).ok()?, word(second).ok()?);
        if first == SKIP {
            return Some(Self::Skip);
        }
        let len = usize::try_from(first).ok()?;
        Some(Self::Message { len, number })
    }
}

/// Where the next record of a direction is: the bytes of all records before it, and its offset in the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Cursor {
    pub(super) position: u64,
    pub(super) offset: usize,
}

impl Cursor {
    /// The cursor `len` bytes further; `len` is at most the rest of the `capacity` bytes.
    pub(super) fn after(self, len: usize, capacity: usize) -> Self {
        let offset = self.offset + len;
        debug_assert!(offset <= capacity);
        Self { position: self.position + len as u64, offset: if offset == capacity { 0 } else { offset } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_they_were_written() {
        for header in
            [Header::Skip, Header::Message { len: 0, number: 0 }, Header::Message { len: 77, number: u64::MAX }]
        {
            assert_eq!(Header::from_bytes(header.to_bytes()), Some(header));
        }
    }

    #[test]
    fn a_record_has_whole_units_and_room_for_its_header() {
        for (len, record) in [(0, 16), (1, 32), (16, 32), (17, 48)] {
            assert_eq!(record_len(len), Some(record));
        }
        assert_eq!(record_len(usize::MAX), None);
        assert_eq!(record_len(usize::MAX - 15), None);
    }

    #[test]
    fn the_last_byte_is_followed_by_the_first() {
        let cursor = Cursor { position: 1_000, offset: 40 };
        assert_eq!(cursor.after(8, 64), Cursor { position: 1_008, offset: 48 });
        assert_eq!(cursor.after(24, 64), Cursor { position: 1_024, offset: 0 });
    }
}
