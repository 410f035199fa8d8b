//! Device memory: allocation, mapping, ranges, export.
#![expect(unsafe_code, reason = "is called by the loader and calls the next layer")]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use ash::vk::{self, Handle as _};

use super::fault;
use super::ledger::{Noun, born, died};
use super::tables::{DEVICES, DeviceTable};

/// The device's table, after counting the call; `Err` is what the call must return.
///
/// # Safety
/// `device` is a live device.
unsafe fn enter(device: vk::Device, function: &'static str) -> Result<Arc<DeviceTable>, vk::Result> {
    // SAFETY: the caller's promise.
    let table = unsafe { DEVICES.get(device) }.ok_or(vk::Result::ERROR_DEVICE_LOST)?;
    fault(table.identity.counted, function).map_or(Ok(table), Err)
}

impl DeviceTable {
    /// Enters an object of this device in the ledger, if the call that made it succeeded.
    fn born(&self, noun: Noun, memory: vk::DeviceMemory, result: vk::Result) -> vk::Result {
        if self.identity.counted && result == vk::Result::SUCCESS {
            born(noun, self.identity.serial, memory.as_raw());
        }
        result
    }

    fn died(&self, noun: Noun, memory: vk::DeviceMemory) {
        died(noun, self.identity.serial, memory.as_raw());
    }
}

pub(super) unsafe extern "system" fn allocate_memory(
    device: vk::Device,
    info: *const vk::MemoryAllocateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    memory: *mut vk::DeviceMemory,
) -> vk::Result {
    // SAFETY: a live device of the caller's.
    let table = match unsafe { enter(device, "vkAllocateMemory") } {
        Ok(table) => table,
        Err(result) => return result,
    };
    // SAFETY: the caller's arguments, passed on.
    let result = unsafe { (table.next.fp_v1_0().allocate_memory)(device, info, allocator, memory) };
    if result != vk::Result::SUCCESS {
        return result;
    }
    // SAFETY: success means that it was written.
    table.born(Noun::Memory, unsafe { *memory }, result)
}

pub(super) unsafe extern "system" fn free_memory(
    device: vk::Device,
    memory: vk::DeviceMemory,
    allocator: *const vk::AllocationCallbacks<'_>,
) {
    // SAFETY: a live device of the caller's.
    let Ok(table) = (unsafe { enter(device, "vkFreeMemory") }) else {
        return;
    };
    // Freeing unmaps. Before the call: after it, the same handle may be another memory's.
    table.died(Noun::Mapping, memory);
    table.died(Noun::Memory, memory);
    // SAFETY: the caller's arguments, passed on.
    unsafe { (table.next.fp_v1_0().free_memory)(device, memory, allocator) };
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
    let table = match unsafe { enter(device, "vkMapMemory") } {
        Ok(table) => table,
        Err(result) => return result,
    };
    // SAFETY: the caller's arguments, passed on.
    let result = unsafe { (table.next.fp_v1_0().map_memory)(device, memory, offset, size, flags, pointer) };
    table.born(Noun::Mapping, memory, result)
}

pub(super) unsafe extern "system" fn unmap_memory(device: vk::Device, memory: vk::DeviceMemory) {
    // SAFETY: a live device of the caller's.
    let Ok(table) = (unsafe { enter(device, "vkUnmapMemory") }) else {
        return;
    };
    table.died(Noun::Mapping, memory);
    // SAFETY: the caller's arguments, passed on.
    unsafe { (table.next.fp_v1_0().unmap_memory)(device, memory) };
}

pub(super) unsafe extern "system" fn flush_mapped_memory_ranges(
    device: vk::Device,
    count: u32,
    ranges: *const vk::MappedMemoryRange<'_>,
) -> vk::Result {
    // SAFETY: a live device of the caller's.
    match unsafe { enter(device, "vkFlushMappedMemoryRanges") } {
        // SAFETY: the caller's arguments, passed on.
        Ok(table) => unsafe { (table.next.fp_v1_0().flush_mapped_memory_ranges)(device, count, ranges) },
        Err(result) => result,
    }
}

pub(super) unsafe extern "system" fn invalidate_mapped_memory_ranges(
    device: vk::Device,
    count: u32,
    ranges: *const vk::MappedMemoryRange<'_>,
) -> vk::Result {
    // SAFETY: a live device of the caller's.
    match unsafe { enter(device, "vkInvalidateMappedMemoryRanges") } {
        // SAFETY: the caller's arguments, passed on.
        Ok(table) => unsafe { (table.next.fp_v1_0().invalidate_mapped_memory_ranges)(device, count, ranges) },
        Err(result) => result,
    }
}

pub(super) unsafe extern "system" fn get_memory_fd(
    device: vk::Device,
    info: *const vk::MemoryGetFdInfoKHR<'_>,
    fd: *mut c_int,
) -> vk::Result {
    // SAFETY: a live device of the caller's.
    match unsafe { enter(device, "vkGetMemoryFdKHR") } {
        // SAFETY: the caller's arguments, passed on.
        Ok(table) => unsafe { (table.external_memory_fd.get_memory_fd_khr)(device, info, fd) },
        Err(result) => result,
    }
}
