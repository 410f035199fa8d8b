//! Formatting of the parts of an error.
#![forbid(unsafe_code)]

use std::fmt;

use ash::vk;

use super::NoMapping;
use crate::MemoryKind;

/// Vulkan's own spelling of a result code.
pub(super) struct VulkanToken(pub(super) vk::Result);

impl fmt::Display for VulkanToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("{:?}", self.0);
        if name.starts_with(|c: char| c.is_ascii_alphabetic()) {
            write!(f, "VK_{name}")
        } else {
            write!(f, "unknown Vulkan error {}", self.0.as_raw())
        }
    }
}

/// A shortage of memory: the failed call and its result, or the result as the reason where nothing was called.
pub(super) struct Shortage {
    pub(super) operation: Option<&'static str>,
    pub(super) code: vk::Result,
    pub(super) kind: MemoryKind,
    pub(super) asked: u64,
    pub(super) heap: u64,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (token, asked, heap) = (VulkanToken(self.code), Bytes(self.asked), Bytes(self.heap));
        if let Some(operation) = self.operation {
            write!(f, "{operation} failed ({token}): ")?;
        }
        write!(f, "requested {asked} of {} memory; the heap has {heap}", self.kind)?;
        if self.operation.is_none() { write!(f, " ({token})") } else { Ok(()) }
    }
}

/// The room that a driver's budget shows although there is a shortage, and the kinds of memory to use instead; or nothing.
pub(super) struct Room<'a> {
    pub(super) free: Option<u64>,
    pub(super) heap: u64,
    pub(super) others: &'a [MemoryKind],
}

impl fmt::Display for Room<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(free) = self.free else { return Ok(()) };
        let (free, heap) = (Bytes(free), Bytes(self.heap));
        write!(f, "; the BAR is full or fragmented: {free} of {heap} free by the budget")?;
        if self.others.is_empty() {
            return Ok(());
        }
        let others: Vec<_> = self.others.iter().map(ToString::to_string).collect();
        write!(f, "; {} memory would work", others.join(" and "))
    }
}

/// A number of bytes, without a larger unit.
pub(super) struct Count<N>(pub(super) N);

impl<N: fmt::Display + PartialEq + From<u8>> fmt::Display for Count<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, if self.0 == N::from(1) { "byte" } else { "bytes" })
    }
}

/// A number of bytes in the largest binary unit that leaves at least 1.
pub(super) struct Bytes(pub(super) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let Some(exponent) = self.0.checked_ilog2().map(|log| log / 10).filter(|&e| e > 0) else {
            return Count(self.0).fmt(f);
        };
        let unit = UNITS[exponent as usize - 1];
        let shift = exponent * 10;
        if self.0.trailing_zeros() >= shift {
            write!(f, "{} {unit}", self.0 >> shift)
        } else {
            let tenths = u128::from(self.0) * 10 / (1_u128 << shift);
            write!(f, "{}.{} {unit}", tenths / 10, tenths % 10)
        }
    }
}

/// A UUID in hyphenated groups.
pub(crate) struct Uuid(pub(crate) [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if [4, 6, 8, 10].contains(&index) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// A hint after a colon, or nothing.
pub(super) struct Hint(pub(super) Option<&'static str>);

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |hint| write!(f, ": {hint}"))
    }
}

/// The memory at a device address, as the beginning of an error's text; nothing where the reason is one of the device and no
/// memory is concerned.
pub(super) struct MemoryAt(pub(super) u64, pub(super) NoMapping);

impl fmt::Display for MemoryAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self(0, NoMapping::Driver { .. } | NoMapping::NoExport { .. } | NoMapping::NoMmap { .. }) => Ok(()),
            Self(address, _) => write!(f, "no host view of the memory at {address:#x}: "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_in_the_largest_whole_unit() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (1023, "1023 bytes"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (2 << 30, "2 GiB"),
            (u64::MAX, "15.9 EiB"),
            (1_000_000_000_000_000, "909.4 TiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }

    #[test]
    fn a_uuid_is_shown_in_the_usual_groups() {
        let uuid = *b"mesa22.3.6\0\0\0\0\0\0";
        assert_eq!(Uuid(uuid).to_string(), "6d657361-3232-2e33-2e36-000000000000");
    }
}
