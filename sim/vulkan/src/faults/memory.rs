//! Device memory: allocation, mapping, ranges, export; buffers, to which memory is dedicated.
#![expect(unsafe_code, reason = "is called by the loader and calls the next layer")]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use ash::vk;

use super::device::{DEVICES, Device};
use super::ledger::Noun;
use super::passing::{counted, passed_on};
use super::trace;

/// The device, after counting the call; `Err` is the result that the call must return.
///
/// # Safety
/// `device` is a live device.
unsafe fn enter(device: vk::Device, function: &'static str) -> Result<Arc<Device>, vk::Result> {
    // SAFETY: the caller's promise.
    let kept = unsafe { DEVICES.get(device) }.ok_or(vk::Result::ERROR_DEVICE_LOST)?;
    kept.identity.enter(function)?;
    Ok(kept)
}

counted! {
    create_buffer = "vkCreateBuffer", destroy_buffer = "vkDestroyBuffer" of Buffer: vk::Buffer, vk::BufferCreateInfo<'_>, DEVICES;
}

pub(super) unsafe extern "system" fn allocate_memory(
    device: vk::Device,
    info: *const vk::MemoryAllocateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    memory: *mut vk::DeviceMemory,
) -> vk::Result {
    // SAFETY: a live device of the caller's.
    let kept = match unsafe { enter(device, "vkAllocateMemory") } {
        Ok(kept) => kept,
        Err(result) => return result,
    };
    // SAFETY: the caller's argument.
    let asked = unsafe { &*info };
    // SAFETY: a valid structure, since the call is valid.
    unsafe { trace::allocate_memory(kept.identity, asked) };
    // SAFETY: the caller's arguments, passed on.
    let result = unsafe { (kept.next.fp_v1_0().allocate_memory)(device, info, allocator, memory) };
    if result == vk::Result::SUCCESS {
        // SAFETY: success means that it was written.
        kept.identity.born(Noun::Memory, unsafe { *memory });
    }
    result
}

pub(super) unsafe extern "system" fn free_memory(
    device: vk::Device,
    memory: vk::DeviceMemory,
    allocator: *const vk::AllocationCallbacks<'_>,
) {
    // SAFETY: a live device of the caller's.
    let Ok(kept) = (unsafe { enter(device, "vkFreeMemory") }) else {
        return;
    };
    // Freeing unmaps. Done before the call, since afterwards the handle may belong to other memory.
    kept.identity.died(Noun::Mapping, memory);
    kept.identity.died(Noun::Memory, memory);
    // SAFETY: the caller's arguments, passed on.
    unsafe { (kept.next.fp_v1_0().free_memory)(device, memory, allocator) };
}

pub(super) unsafe extern "system" fn map_memory(
    device: vk::Device,
    memory: vk::DeviceMemory,
    offset: vk::DeviceSize,
    size: vk::DeviceSize,
    flags: vk::MemoryMapFlags,
    pointer: *mut *mut c_void,
) -> vk::Result {
    // SAFETY: a live device of the caller's.
    let kept = match unsafe { enter(device, "vkMapMemory") } {
        Ok(kept) => kept,
        Err(result) => return result,
    };
    kept.identity.trace(format_args!("offset={offset} size={size:#x} flags={}", flags.as_raw()));
    // SAFETY: the caller's arguments, passed on.
    let result = unsafe { (kept.next.fp_v1_0().map_memory)(device, memory, offset, size, flags, pointer) };
    if result == vk::Result::SUCCESS {
        kept.identity.born(Noun::Mapping, memory);
    }
    result
}

pub(super) unsafe extern "system" fn unmap_memory(device: vk::Device, memory: vk::DeviceMemory) {
    // SAFETY: a live device of the caller's.
    let Ok(kept) = (unsafe { enter(device, "vkUnmapMemory") }) else {
        return;
    };
    kept.identity.died(Noun::Mapping, memory);
    // SAFETY: the caller's arguments, passed on.
    unsafe { (kept.next.fp_v1_0().unmap_memory)(device, memory) };
}

pub(super) unsafe extern "system" fn get_memory_fd(
    device: vk::Device,
    info: *const vk::MemoryGetFdInfoKHR<'_>,
    fd: *mut c_int,
) -> vk::Result {
    // SAFETY: a live device of the caller's.
    let kept = match unsafe { enter(device, "vkGetMemoryFdKHR") } {
        Ok(kept) => kept,
        Err(result) => return result,
    };
    // SAFETY: the caller's argument.
    let handle_type = unsafe { (*info).handle_type };
    kept.identity.trace(format_args!("handleType={:#x}", handle_type.as_raw()));
    // SAFETY: the caller's arguments, passed on.
    unsafe { (kept.external_memory_fd.get_memory_fd_khr)(device, info, fd) }
}

passed_on! {
    bind_buffer_memory = "vkBindBufferMemory"(
        device: vk::Device, buffer: vk::Buffer, memory: vk::DeviceMemory, offset: vk::DeviceSize
    ) of DEVICES else ERROR_DEVICE_LOST => |kept| kept.next.fp_v1_0().bind_buffer_memory;
    flush_mapped_memory_ranges = "vkFlushMappedMemoryRanges"(
        device: vk::Device, count: u32, ranges: *const vk::MappedMemoryRange<'_>
    ) of DEVICES else ERROR_DEVICE_LOST => |kept| kept.next.fp_v1_0().flush_mapped_memory_ranges;
    invalidate_mapped_memory_ranges = "vkInvalidateMappedMemoryRanges"(
        device: vk::Device, count: u32, ranges: *const vk::MappedMemoryRange<'_>
    ) of DEVICES else ERROR_DEVICE_LOST => |kept| kept.next.fp_v1_0().invalidate_mapped_memory_ranges;
}
