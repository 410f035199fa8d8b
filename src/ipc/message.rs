//! The message that goes with a descriptor, and whether the receiving handle can import it. Calls no driver.
//! `docs/sharing.md` has the layout.
#![forbid(unsafe_code)]

use std::array::from_fn;

use ash::vk;

use super::refused;
use crate::error::{hyphenated, in_bytes};
use crate::{Error, MemoryKind, MemoryTypeInfo, Result};

/// The length of a message in bytes.
pub(super) const LEN: usize = 88;
const MAGIC: [u8; 7] = *b"vkgdr\0\0";
const VERSION: u8 = 2;

/// How memory was made, and so what its descriptor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Backing {
    /// Exported by Vulkan as an opaque descriptor.
    Vulkan = 0,
    /// A sealed anonymous file, whose pages each process registers with CUDA.
    RegisteredPages = 1,
}

/// The contents of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) gpu: [u8; 16],
    pub(super) driver: [u8; 16],
    /// Bytes of the memory.
    pub(super) len: u64,
    /// Bytes of the allocation.
    pub(super) size: u64,
    /// Whether the allocation is dedicated to a buffer, which a receiver has to repeat.
    pub(super) dedicated: bool,
    pub(super) kind: MemoryKind,
    pub(super) backing: Backing,
    pub(super) memory_type: MemoryTypeInfo,
}

impl Message {
    /// The bytes of the message.
    pub(super) fn encode(&self) -> [u8; LEN] {
        let MemoryTypeInfo { index, heap, heap_size, flags } = self.memory_type;
        let numbers = [self.len, self.size, heap_size].map(u64::to_le_bytes);
        let words = [self.kind as u32, self.backing as u32, index, flags.as_raw(), heap, self.dedicated.into()];
        let words = words.map(u32::to_le_bytes);
        let fields: [&[u8]; 6] =
            [&MAGIC, &[VERSION], &self.gpu, &self.driver, numbers.as_flattened(), words.as_flattened()];
        fields.concat().try_into().expect("the fields fill a message")
    }

    /// Parses a message.
    pub(super) fn decode(bytes: &[u8; LEN]) -> Result<Self> {
        check_start(bytes)?;
        let [len, size, heap_size] = from_fn(|index| u64::from_le_bytes(field(bytes, 40 + 8 * index)));
        let [kind, backing, index, flags, heap, dedicated] =
            from_fn(|index| u32::from_le_bytes(field(bytes, 64 + 4 * index)));
        let known = MemoryKind::ALL.into_iter().find(|known| *known as u32 == kind);
        let kind = known.ok_or_else(|| unknown("kind", kind))?;
        let backing = match backing {
            0 => Backing::Vulkan,
            // Memory of the other kinds is never the system's.
            1 if kind == MemoryKind::Host => Backing::RegisteredPages,
            value => return Err(unknown("kind of descriptor", value)),
        };
        let dedicated = match dedicated {
            0 => false,
            // Only Vulkan's memory is.
            1 if backing == Backing::Vulkan => true,
            value => return Err(unknown("flags", value)),
        };
        let flags = vk::MemoryPropertyFlags::from_raw(flags);
        let memory_type = MemoryTypeInfo { index, heap, heap_size, flags };
        Ok(Self { gpu: field(bytes, 8), driver: field(bytes, 24), len, size, dedicated, kind, backing, memory_type })
    }

    /// Refuses memory that a handle could not import: one of the GPU `gpu`, whose Vulkan driver is `driver`, and which has the
    /// memory type `ours` for the message's kind. `size` is that of an allocation of the message's length that is not dedicated;
    /// `None` if such an allocation is impossible.
    pub(super) fn check(&self, gpu: [u8; 16], driver: [u8; 16], ours: MemoryTypeInfo, size: Option<u64>) -> Result<()> {
        let (kind, theirs) = (self.kind, self.memory_type);
        if self.gpu != gpu {
            let (theirs, ours) = (hyphenated(self.gpu), hyphenated(gpu));
            return Err(refused(format!("it is memory of the GPU {theirs}, the handle is of {ours}")));
        }
        // Vulkan shares memory only between equal drivers ("External memory handle types compatibility").
        if self.driver != driver {
            let (theirs, ours) = (hyphenated(self.driver), hyphenated(driver));
            return Err(refused(format!(
                "the other process uses another Vulkan driver or version: {theirs}, not {ours}"
            )));
        }
        if theirs != ours {
            let (theirs, ours) = (describe(theirs), describe(ours));
            return Err(refused(format!(
                "it is {kind} memory of {theirs}, the handle has {ours} for that: open both handles with the same flags"
            )));
        }
        let fits = |size: u64| match self.dedicated {
            true => (size..=ours.heap_size).contains(&self.size),
            false => size == self.size,
        };
        if !size.is_some_and(fits) {
            let (len, size) = (in_bytes(self.len), in_bytes(self.size));
            return Err(refused(format!("{len} of {kind} memory in an allocation of {size} cannot be on this GPU")));
        }
        Ok(())
    }
}

/// Checks as much of the magic and the version as has arrived, so that a message of another version is refused for that, not
/// for its length.
pub(super) fn check_start(bytes: &[u8]) -> Result<()> {
    if !bytes.iter().zip(&MAGIC).all(|(byte, expected)| byte == expected) {
        return Err(refused("it does not begin as a message of vkgdr::ipc::send"));
    }
    match bytes.get(MAGIC.len()) {
        None | Some(&VERSION) => Ok(()),
        Some(theirs) => Err(refused(format!(
            "the message has version {theirs}, this library has version {VERSION}: use the same vkgdr in both processes"
        ))),
    }
}

fn unknown(field: &str, value: u32) -> Error {
    refused(format!("the message has the unknown {field} {value}"))
}

fn describe(memory_type: MemoryTypeInfo) -> String {
    let MemoryTypeInfo { index, heap, heap_size, flags } = memory_type;
    format!("memory type {index} ({flags:?}, heap {heap} of {heap_size} bytes)")
}

fn field<const N: usize>(bytes: &[u8; LEN], offset: usize) -> [u8; N] {
    bytes[offset..].first_chunk().copied().expect("a field of the message")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPE: MemoryTypeInfo =
        MemoryTypeInfo { index: 5, heap: 2, heap_size: 256 << 20, flags: vk::MemoryPropertyFlags::from_raw(0x0107) };
    const SENT: Message = Message {
        gpu: *b"a GPU's own UUID",
        driver: *b"and its driver's",
        len: 5000,
        size: 5056,
        dedicated: false,
        kind: MemoryKind::Host,
        backing: Backing::Vulkan,
        memory_type: TYPE,
    };

    fn check(message: Message, size: Option<u64>) -> Result<()> {
        message.check(SENT.gpu, SENT.driver, TYPE, size)
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let mut expected = b"vkgdr\0\0\x02a GPU's own UUIDand its driver's".to_vec();
        expected.extend([0x88, 0x13, 0, 0, 0, 0, 0, 0]);
        expected.extend([0xc0, 0x13, 0, 0, 0, 0, 0, 0]);
        expected.extend([0, 0, 0, 0x10, 0, 0, 0, 0]);
        expected.extend([1, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([5, 0, 0, 0, 7, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(SENT.encode().as_slice(), expected);
    }

    #[test]
    fn only_combinations_that_exist_are_read() {
        let of = |kind, backing, dedicated| Message { kind, backing, dedicated, ..SENT };
        let is_read = |message: Message| Message::decode(&message.encode()).is_ok_and(|read| read == message);
        for kind in MemoryKind::ALL {
            assert!(is_read(of(kind, Backing::Vulkan, false)) && is_read(of(kind, Backing::Vulkan, true)), "{kind}");
            assert_eq!(is_read(of(kind, Backing::RegisteredPages, false)), kind == MemoryKind::Host, "{kind}");
            assert!(!is_read(of(kind, Backing::RegisteredPages, true)), "{kind}");
        }
    }

    #[test]
    fn a_message_of_another_version_is_refused_by_its_first_bytes() {
        // That of the Python package before it had this protocol.
        let old = b"vkgdr\0\0\x01\0\0\0\0\0\0\x13\x88mapped\0\0";
        assert!(
            check_start(old).is_err_and(|error| error.to_string().contains("version 1, this library has version 2"))
        );
        assert!(check_start(&SENT.encode()[..7]).is_ok() && check_start(b"").is_ok());
        assert!(check_start(b"vkgdr!").is_err_and(|error| error.to_string().contains("does not begin")));
    }

    #[test]
    fn no_changed_byte_of_a_message_is_overlooked() {
        for (at, change) in (0..LEN).flat_map(|at| (1..=u8::MAX).map(move |change| (at, change))) {
            let mut bytes = SENT.encode();
            bytes[at] ^= change;
            let Ok(message) = Message::decode(&bytes) else { continue };
            assert_eq!(message.encode(), bytes);
            // What is expected is that of the kind and the descriptor that the message names.
            let is_other = (message.kind, message.backing, message.dedicated) != (SENT.kind, SENT.backing, false);
            // The length is checked by the size that belongs to it.
            let size = (message.len == SENT.len).then_some(SENT.size);
            assert!(is_other || check(message, size).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_dedicated_allocation_may_be_larger_than_another_and_as_large_as_its_heap() {
        for (size, fits) in [(5055, false), (5056, true), (5120, true), (256 << 20, true), ((256 << 20) + 1, false)] {
            assert_eq!(check(Message { size, dedicated: true, ..SENT }, Some(5056)).is_ok(), fits, "{size}");
            assert_eq!(check(Message { size, ..SENT }, Some(5056)).is_ok(), size == 5056, "{size}");
        }
        assert!(check(SENT, None).is_err());
    }
}
