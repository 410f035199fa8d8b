//! The message that goes with a descriptor, and whether the receiving handle can import it. Calls no driver.
//!
//! All integers are little-endian:
//!
//! | offset | bytes | content |
//! |---:|---:|---|
//! | 0 | 7 | `vkgdr\0\0` |
//! | 7 | 1 | version: 2 |
//! | 8 | 16 | the GPU's UUID (`cuDeviceGetUuid`, `VkPhysicalDeviceIDProperties::deviceUUID`) |
//! | 24 | 16 | the Vulkan driver's UUID (`VkPhysicalDeviceIDProperties::driverUUID`) |
//! | 40 | 8 | the memory's length in bytes |
//! | 48 | 8 | the allocation's size in bytes: the length, rounded up to whole atoms and lines; more if it is dedicated |
//! | 56 | 8 | the size of the memory type's heap in bytes |
//! | 64 | 4 | the kind: 0 mapped, 1 host, 2 device |
//! | 68 | 4 | how the memory was made, and what the descriptor is: 0 an opaque descriptor exported by Vulkan, 1 a file of |
//! | | | registered pages; then the driver's UUID and the heap's size are 0, and the indices 2³²−1 |
//! | 72 | 4 | the index of the memory type |
//! | 76 | 4 | the memory type's `VkMemoryPropertyFlags` |
//! | 80 | 4 | the index of the memory type's heap |
//! | 84 | 4 | 1 if the allocation is dedicated to a buffer, otherwise 0 |
#![forbid(unsafe_code)]

use ash::vk;

use crate::ipc::Refusal;
use crate::{MemoryKind, MemoryTypeInfo};

/// The length of a message in bytes.
pub(crate) const LEN: usize = 88;
const MAGIC: [u8; 7] = *b"vkgdr\0\0";
const VERSION: u8 = 2;

/// How memory was made, and so what its descriptor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Backing {
    /// Exported by Vulkan as an opaque descriptor.
    Vulkan = 0,
    /// A sealed anonymous file, whose pages each process registers with CUDA.
    RegisteredPages = 1,
}

/// The contents of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Message {
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

/// The contents that a handle expects of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    pub(super) gpu: [u8; 16],
    pub(super) driver: [u8; 16],
    /// The handle's memory type for the message's kind.
    pub(super) memory_type: MemoryTypeInfo,
    /// The size of an allocation of the message's length that is not dedicated; `None` if such an allocation is impossible.
    pub(super) size: Option<u64>,
}

impl Message {
    /// The bytes of the message.
    pub(crate) fn encode(&self) -> [u8; LEN] {
        let MemoryTypeInfo { index, heap, heap_size, flags } = self.memory_type;
        let mut bytes = [0; LEN];
        let mut rest = bytes.as_mut_slice();
        let mut put = |field: &[u8]| {
            if let Some((place, behind)) = std::mem::take(&mut rest).split_at_mut_checked(field.len()) {
                place.copy_from_slice(field);
                rest = behind;
            }
        };
        put(&MAGIC);
        put(&[VERSION]);
        put(&self.gpu);
        put(&self.driver);
        [self.len, self.size, heap_size].iter().for_each(|number| put(&number.to_le_bytes()));
        let words = [self.kind as u32, self.backing as u32, index, flags.as_raw(), heap, self.dedicated.into()];
        words.iter().for_each(|word| put(&word.to_le_bytes()));
        bytes
    }

    /// Parses a message.
    pub(crate) fn decode(bytes: &[u8; LEN]) -> Result<Self, Refusal> {
        check_start(bytes)?;
        let kind = match word(bytes, 64) {
            0 => MemoryKind::Mapped,
            1 => MemoryKind::Host,
            2 => MemoryKind::Device,
            value => return Err(Refusal::Unknown { field: "kind", value }),
        };
        let backing = match word(bytes, 68) {
            0 => Backing::Vulkan,
            // Memory of the other kinds is never the system's.
            1 if kind == MemoryKind::Host => Backing::RegisteredPages,
            value => return Err(Refusal::Unknown { field: "kind of descriptor", value }),
        };
        let dedicated = match word(bytes, 84) {
            0 => false,
            // Only Vulkan's memory is.
            1 if backing == Backing::Vulkan => true,
            value => return Err(Refusal::Unknown { field: "flags", value }),
        };
        let memory_type = MemoryTypeInfo {
            index: word(bytes, 72),
            heap: word(bytes, 80),
            heap_size: number(bytes, 56),
            flags: vk::MemoryPropertyFlags::from_raw(word(bytes, 76)),
        };
        Ok(Self {
            gpu: field(bytes, 8),
            driver: field(bytes, 24),
            len: number(bytes, 40),
            size: number(bytes, 48),
            dedicated,
            kind,
            backing,
            memory_type,
        })
    }

    /// Refuses memory that a handle could not import.
    pub(crate) fn check(&self, expected: &Expected) -> Result<(), Refusal> {
        let (kind, theirs, ours) = (self.kind, self.memory_type, expected.memory_type);
        if self.gpu != expected.gpu {
            return Err(Refusal::OtherGpu { theirs: self.gpu, ours: expected.gpu });
        }
        if self.driver != expected.driver {
            return Err(Refusal::OtherDriver { theirs: self.driver, ours: expected.driver });
        }
        if theirs != ours {
            return Err(Refusal::OtherMemoryType { kind, theirs: describe(theirs), ours: describe(ours) });
        }
        let fits = |size: u64| match self.dedicated {
            true => (size..=ours.heap_size).contains(&self.size),
            false => size == self.size,
        };
        if !expected.size.is_some_and(fits) {
            return Err(Refusal::Size { kind, len: self.len, size: self.size });
        }
        Ok(())
    }
}

/// Checks as much of the magic and the version as has arrived, so that a message of another version is refused for that, not
/// for its length.
pub(crate) fn check_start(bytes: &[u8]) -> Result<(), Refusal> {
    if !bytes.iter().zip(&MAGIC).all(|(byte, expected)| byte == expected) {
        return Err(Refusal::NoMessage);
    }
    match bytes.get(MAGIC.len()) {
        None | Some(&VERSION) => Ok(()),
        Some(&theirs) => Err(Refusal::Version { theirs, ours: VERSION }),
    }
}

fn describe(memory_type: MemoryTypeInfo) -> String {
    let MemoryTypeInfo { index, heap, heap_size, flags } = memory_type;
    format!("memory type {index} ({flags:?}, heap {heap} of {heap_size} bytes)")
}

fn field<const N: usize>(bytes: &[u8; LEN], offset: usize) -> [u8; N] {
    bytes[offset..].first_chunk().copied().unwrap_or([0; N])
}

fn word(bytes: &[u8; LEN], offset: usize) -> u32 {
    u32::from_le_bytes(field(bytes, offset))
}

fn number(bytes: &[u8; LEN], offset: usize) -> u64 {
    u64::from_le_bytes(field(bytes, offset))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
    const EXPECTED: Expected = Expected { gpu: SENT.gpu, driver: SENT.driver, memory_type: TYPE, size: Some(5056) };

    #[test]
    fn the_layout_is_the_documented_one() {
        let mut expected = b"vkgdr\0\0\x02a GPU's own UUIDand its driver's".to_vec();
        expected.extend([0x88, 0x13, 0, 0, 0, 0, 0, 0]);
        expected.extend([0xc0, 0x13, 0, 0, 0, 0, 0, 0]);
        expected.extend([0, 0, 0, 0x10, 0, 0, 0, 0]);
        expected.extend([1, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([5, 0, 0, 0, 7, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(SENT.encode().as_slice(), expected);
        assert_eq!(Message::decode(&SENT.encode()), Ok(SENT));
        assert_eq!(SENT.check(&EXPECTED), Ok(()));
    }

    #[test]
    fn a_message_of_another_version_is_refused_by_its_first_bytes() {
        // That of the Python package before it had this protocol.
        let old = b"vkgdr\0\0\x01\0\0\0\0\0\0\x13\x88mapped\0\0";
        assert_eq!(check_start(old), Err(Refusal::Version { theirs: 1, ours: 2 }));
        assert_eq!(check_start(&SENT.encode()[..7]), Ok(()));
        assert_eq!(check_start(b""), Ok(()));
        assert_eq!(check_start(b"vkgdr!"), Err(Refusal::NoMessage));
    }

    #[test]
    fn each_field_that_does_not_fit_is_refused_by_name() {
        let refusal = |message: Message| message.check(&EXPECTED).err().map(|refusal| refusal.to_string());
        for (message, text) in [
            (Message { gpu: [7; 16], ..SENT }, "memory of the GPU 07070707-"),
            (Message { driver: [0; 16], ..SENT }, "another Vulkan driver or version: 00000000-"),
            (Message { memory_type: MemoryTypeInfo { index: 6, ..TYPE }, ..SENT }, "memory type 6 ("),
            (Message { memory_type: MemoryTypeInfo { heap: 0, ..TYPE }, ..SENT }, "heap 0 of 268435456 bytes"),
            (Message { memory_type: MemoryTypeInfo { heap_size: 1, ..TYPE }, ..SENT }, "heap 2 of 1 bytes"),
            (Message { size: 5120, ..SENT }, "5000 bytes of host memory in an allocation of 5120 bytes"),
            (Message { size: u64::MAX, ..SENT }, "18446744073709551615 bytes"),
            (Message { size: 5055, dedicated: true, ..SENT }, "in an allocation of 5055 bytes"),
            (Message { size: (256 << 20) + 1, dedicated: true, ..SENT }, "in an allocation of 268435457 bytes"),
        ] {
            assert!(refusal(message).is_some_and(|refusal| refusal.contains(text)), "{text}: {:?}", refusal(message));
        }
        assert_eq!(Message { size: 5120, dedicated: true, ..SENT }.check(&EXPECTED), Ok(()));
        let impossible = SENT.check(&Expected { size: None, ..EXPECTED });
        assert!(matches!(impossible, Err(Refusal::Size { .. })), "{impossible:?}");
    }

    #[test]
    fn values_that_this_version_does_not_know_are_refused_by_name() {
        for (offset, name) in [(64, "kind 171"), (68, "kind of descriptor 171"), (84, "flags 171")] {
            let mut bytes = SENT.encode();
            bytes[offset] = 171;
            let refusal = Message::decode(&bytes).err().map(|refusal| refusal.to_string());
            assert!(refusal.as_ref().is_some_and(|refusal| refusal.ends_with(name)), "{name}: {refusal:?}");
        }
    }

    fn any_message() -> impl Strategy<Value = Message> {
        let made = (0_usize..4).prop_map(|index| match MemoryKind::ALL.get(index) {
            Some(&kind) => (kind, Backing::Vulkan),
            None => (MemoryKind::Host, Backing::RegisteredPages),
        });
        let memory_type =
            (any::<u32>(), any::<u32>(), any::<u64>(), any::<u32>()).prop_map(|(index, heap, heap_size, flags)| {
                MemoryTypeInfo { index, heap, heap_size, flags: vk::MemoryPropertyFlags::from_raw(flags) }
            });
        (any::<[u8; 16]>(), any::<[u8; 16]>(), any::<u64>(), any::<u64>(), any::<bool>(), made, memory_type).prop_map(
            |(gpu, driver, len, size, dedicated, (kind, backing), memory_type)| Message {
                gpu,
                driver,
                len,
                size,
                dedicated: dedicated && backing == Backing::Vulkan,
                kind,
                backing,
                memory_type,
            },
        )
    }

    proptest! {
        #[test]
        fn every_message_is_read_as_it_was_written(message in any_message()) {
            prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
        }

        #[test]
        fn bytes_are_refused_or_are_exactly_one_message(start in any::<bool>(), mut bytes in any::<[u8; LEN]>(), zeros in any::<u16>()) {
            if start {
                bytes[..8].copy_from_slice(b"vkgdr\0\0\x02");
            }
            for word in (0..6).filter(|word| zeros & 1 << word != 0) {
                bytes[64 + 4 * word..68 + 4 * word].fill(0);
            }
            if let Ok(message) = Message::decode(&bytes) {
                prop_assert_eq!(message.encode(), bytes);
            }
        }

        #[test]
        fn no_changed_byte_of_a_message_is_overlooked(at in 0..LEN, change in 1_u8..) {
            let mut bytes = SENT.encode();
            bytes[at] ^= change;
            let checked = Message::decode(&bytes).and_then(|message| {
                // The length is checked by the size that belongs to it.
                let size = (message.len == SENT.len).then_some(5056);
                // What is expected is that of the kind and of the descriptor that the message names.
                let named = (message.kind, message.backing) == (SENT.kind, SENT.backing);
                named.then_some(()).ok_or(Refusal::NoMessage)?;
                // The receiver makes the allocation that the message describes, and a driver refuses what does not fit.
                (!message.dedicated).then_some(()).ok_or(Refusal::NoMessage)?;
                message.check(&Expected { size, ..EXPECTED })
            });
            prop_assert!(checked.is_err(), "byte {at}");
        }
    }
}
