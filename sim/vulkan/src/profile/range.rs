//! Vulkan's rules for ranges to flush and invalidate (specification, `VkMappedMemoryRange`). Pure.
#![forbid(unsafe_code)]

use ash::vk::{self, DeviceSize};

/// The mapping that a range is checked against, in bytes. Offsets count from the start of the memory.
pub(super) struct Mapped {
    /// Where the mapping starts.
    pub(super) offset: DeviceSize,
    /// Where the mapping ends.
    pub(super) end: DeviceSize,
    /// The size of the memory.
    pub(super) memory: DeviceSize,
    pub(super) atom: DeviceSize,
}

impl Mapped {
    /// The start and the end of a range within this mapping, or the rule that it violates.
    pub(super) fn check(&self, range: &vk::MappedMemoryRange<'_>) -> Result<(DeviceSize, DeviceSize), String> {
        let Self { offset: start, end, memory, atom } = *self;
        let (offset, size) = (range.offset, range.size);
        let whole = size == vk::WHOLE_SIZE;
        let last = if whole { Some(end) } else { offset.checked_add(size) };
        let aligned = |edge: DeviceSize| edge.is_multiple_of(atom) || edge == memory;
        if !offset.is_multiple_of(atom) {
            return Err(format!("offset {offset} is no multiple of the atom, {atom} (offset-00687)"));
        }
        match last.filter(|last| start <= offset && offset <= *last && *last <= end) {
            None if whole => Err(format!("offset {offset} is not within the mapping, {start}..{end} (size-00686)")),
            None => Err(format!("{size} bytes at {offset} are not within the mapping, {start}..{end} (size-00685)")),
            Some(last) if aligned(last) => Ok((offset, last)),
            Some(last) if whole => Err(format!("the mapping ends at {last}, within an atom of {atom} (size-01389)")),
            Some(_) => Err(format!("size {size} is no multiple of the atom, {atom}, nor to the end (size-01390)")),
        }
    }
}
