//! The functions of allocated memory: mapping, flush and invalidate.
#![expect(unsafe_code, reason = "is called by the loader and calls the next layer")]

use std::ffi::c_void;

use ash::vk;

use super::catalog::profile;
use super::device::DEVICES;
use super::memory::{Mapping, shadow_of};
use super::range::Mapped;
use super::shadow::Shadow;
use crate::interface::array;
use crate::rules::broken;

pub(super) unsafe extern "system" fn map_memory(
    device: vk::Device,
    memory: vk::DeviceMemory,
    offset: vk::DeviceSize,
    size: vk::DeviceSize,
    flags: vk::MemoryMapFlags,
    pointer: *mut *mut c_void,
) -> vk::Result {
    // SAFETY: a live device of the caller's.
    let Some(known) = (unsafe { DEVICES.get(device) }) else { return vk::Result::ERROR_DEVICE_LOST };
    let mut memories = known.memories();
    let mappable = memories.get_mut(&memory).filter(|memory| memory.memory_type.is_visible());
    let Some(found) = mappable.filter(|memory| memory.mapping.is_none() && offset < memory.size) else {
        return vk::Result::ERROR_MEMORY_MAP_FAILED;
    };
    let rest = found.size - offset;
    if size != vk::WHOLE_SIZE && !(1..=rest).contains(&size) {
        broken("vkMapMemory", &format!("{size} bytes at {offset} of memory of {} (size-00681)", found.size));
    }
    // SAFETY: the caller's arguments, passed on.
    let result = unsafe { (known.next.fp_v1_0().map_memory)(device, memory, offset, size, flags, pointer) };
    if result != vk::Result::SUCCESS {
        return result;
    }
    let end = if size == vk::WHOLE_SIZE { found.size } else { offset + size };
    let mapped = Mapped { offset, end, memory: found.size, atom: profile().atom };
    // SAFETY: success means that it was written.
    let device_view = unsafe { *pointer };
    let shadow = if found.memory_type.is_coherent() {
        None
    } else {
        // SAFETY: the driver's view of the mapping, which stays until it is unmapped.
        match unsafe { shadow_of(device_view, &mapped) } {
            None => {
                // SAFETY: just mapped, and no one has the address yet.
                unsafe { (known.next.fp_v1_0().unmap_memory)(device, memory) };
                return vk::Result::ERROR_MEMORY_MAP_FAILED;
            }
            shadow => shadow,
        }
    };
    if let Some(shadow) = &shadow {
        // SAFETY: the caller's output.
        unsafe { *pointer = shadow.host().as_ptr().cast() };
    }
    found.mapping = Some(Mapping { mapped, shadow });
    result
}

pub(super) unsafe extern "system" fn unmap_memory(device: vk::Device, memory: vk::DeviceMemory) {
    // SAFETY: a live device of the caller's.
    let Some(known) = (unsafe { DEVICES.get(device) }) else { return };
    if let Some(found) = known.memories().get_mut(&memory) {
        found.mapping = None;
    }
    // SAFETY: the caller's arguments, passed on.
    unsafe { (known.next.fp_v1_0().unmap_memory)(device, memory) };
}

pub(super) unsafe extern "system" fn flush_mapped_memory_ranges(
    device: vk::Device,
    count: u32,
    ranges: *const vk::MappedMemoryRange<'_>,
) -> vk::Result {
    // SAFETY: the caller's arguments, passed on.
    unsafe { carry("vkFlushMappedMemoryRanges", device, count, ranges, Shadow::flush) }
}

pub(super) unsafe extern "system" fn invalidate_mapped_memory_ranges(
    device: vk::Device,
    count: u32,
    ranges: *const vk::MappedMemoryRange<'_>,
) -> vk::Result {
    // SAFETY: the caller's arguments, passed on.
    unsafe { carry("vkInvalidateMappedMemoryRanges", device, count, ranges, Shadow::invalidate) }
}

/// Copies the bytes of each range to the other side, by offsets within its mapping. A range that violates Vulkan's
/// rules ends the process, also for coherent memory.
///
/// # Safety
/// A live device, and `count` valid ranges; the pointer may be null where there are none.
unsafe fn carry(
    function: &str,
    device: vk::Device,
    count: u32,
    ranges: *const vk::MappedMemoryRange<'_>,
    across: impl Fn(&Shadow, usize, usize),
) -> vk::Result {
    // SAFETY: the caller's promise.
    let Some(known) = (unsafe { DEVICES.get(device) }) else { return vk::Result::ERROR_DEVICE_LOST };
    let memories = known.memories();
    // SAFETY: the caller's promise: an array of this length.
    for range in unsafe { array(ranges, count) } {
        let mapping = memories.get(&range.memory).and_then(|memory| memory.mapping.as_ref());
        let Some(Mapping { mapped, shadow }) = mapping else {
            broken(function, "the memory is not mapped (memory-00684)");
        };
        let (start, end) = mapped.check(range).unwrap_or_else(|rule| broken(function, &rule));
        let within = |edge: vk::DeviceSize| usize::try_from(edge - mapped.offset).unwrap_or(usize::MAX);
        if let Some(shadow) = shadow {
            across(shadow, within(start), within(end));
        }
    }
    vk::Result::SUCCESS
}
