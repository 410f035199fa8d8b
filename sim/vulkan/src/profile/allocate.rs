//! Allocation within the heaps' budgets, import, free.
#![expect(unsafe_code, reason = "is called by the loader and calls the next layer")]

use std::ffi::{c_int, c_void};
use std::os::fd::{FromRawFd, OwnedFd};

use ash::vk;

use super::books::Taken;
use super::catalog::profile;
use super::device::{DEVICES, Device};
use super::memory::Memory;
use crate::interface::chain;
use crate::rules::broken;
use simcommon::label::Label;

/// The parts of an allocation that are in its chain.
#[derive(Default)]
struct Wishes {
    /// The imported descriptor.
    import: Option<c_int>,
    /// Whether the memory is the program's.
    of_host: bool,
    exportable: bool,
    buffer: vk::Buffer,
    image: vk::Image,
}

impl Wishes {
    /// # Safety
    /// The chain is that of a valid `VkMemoryAllocateInfo`.
    unsafe fn of(p_next: *const c_void) -> Self {
        let mut wishes = Self::default();
        // SAFETY: the caller's promise.
        for (kind, node) in unsafe { chain(p_next) } {
            match kind {
                vk::StructureType::IMPORT_MEMORY_FD_INFO_KHR => {
                    // SAFETY: the type says what it is.
                    wishes.import = Some(unsafe { node.cast::<vk::ImportMemoryFdInfoKHR<'_>>().as_ref() }.fd);
                }
                vk::StructureType::IMPORT_MEMORY_HOST_POINTER_INFO_EXT => wishes.of_host = true,
                vk::StructureType::EXPORT_MEMORY_ALLOCATE_INFO => {
                    // SAFETY: the type says what it is.
                    let export = unsafe { node.cast::<vk::ExportMemoryAllocateInfo<'_>>().as_ref() };
                    wishes.exportable = !export.handle_types.is_empty();
                }
                vk::StructureType::MEMORY_DEDICATED_ALLOCATE_INFO => {
                    // SAFETY: the type says what it is.
                    let dedicated = unsafe { node.cast::<vk::MemoryDedicatedAllocateInfo<'_>>().as_ref() };
                    (wishes.buffer, wishes.image) = (dedicated.buffer, dedicated.image);
                }
                _ => {}
            }
        }
        wishes
    }
}

impl Device {
    /// The label of memory that is about to be allocated: an import's is that of its descriptor.
    fn label_of(&self, wishes: &Wishes, system: bool) -> Result<Label, vk::Result> {
        let own = Label { system, device: self.number() };
        let Some(fd) = wishes.import else { return Ok(own) };
        match Label::read(fd).map_err(|_| vk::Result::ERROR_INVALID_EXTERNAL_HANDLE)? {
            Some(label) if label.device != own.device => Err(vk::Result::ERROR_INVALID_EXTERNAL_HANDLE),
            label => Ok(label.unwrap_or(own)),
        }
    }

    /// Ends the process if the size of an allocation that is dedicated to a buffer is not the buffer's.
    fn check_dedicated_size(&self, buffer: vk::Buffer, size: vk::DeviceSize) {
        if buffer == vk::Buffer::null() {
            return;
        }
        // SAFETY: a live buffer of this device, as Vulkan asks.
        let required = unsafe { self.next.get_buffer_memory_requirements(buffer) }.size;
        if required != size {
            let rule = format!("{size} bytes are dedicated to a buffer that requires {required} (buffer-02965)");
            broken("vkAllocateMemory", &rule);
        }
    }
}

pub(super) unsafe extern "system" fn allocate_memory(
    device: vk::Device,
    info: *const vk::MemoryAllocateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    memory: *mut vk::DeviceMemory,
) -> vk::Result {
    // SAFETY: a live device of the caller's.
    let Some(known) = (unsafe { DEVICES.get(device) }) else { return vk::Result::ERROR_DEVICE_LOST };
    // SAFETY: Vulkan asks for a valid structure.
    let mut info = unsafe { *info };
    let size = info.allocation_size;
    let Some(memory_type) = profile().types.get(info.memory_type_index as usize) else {
        return vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
    };
    // SAFETY: the chain of the caller's structure.
    let mut wishes = unsafe { Wishes::of(info.p_next) };
    // An import that may be exported is new memory, as on NVIDIA's driver 580.
    let unused = if wishes.exportable { wishes.import.take() } else { None };
    let export = vk::ExportMemoryAllocateInfo::default().handle_types(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
    if unused.is_some() {
        info.p_next = (&raw const export).cast();
    }
    known.check_dedicated_size(wishes.buffer, size);
    let label = match known.label_of(&wishes, memory_type.is_system_memory()) {
        Ok(label) => label,
        Err(result) => return result,
    };
    let taken = if wishes.import.is_some() || wishes.of_host {
        None
    } else {
        if size == 0 {
            broken("vkAllocateMemory", "0 bytes (allocationSize-07899)");
        }
        match Taken::from(known.place, memory_type.heap, size) {
            None => return vk::Result::ERROR_OUT_OF_DEVICE_MEMORY,
            taken => taken,
        }
    };
    info.memory_type_index = known.driver_type;
    // SAFETY: the caller's arguments with another type, alive during the call.
    let result = unsafe { (known.next.fp_v1_0().allocate_memory)(device, &raw const info, allocator, memory) };
    if result == vk::Result::SUCCESS {
        if let Some(fd) = unused {
            // SAFETY: a success passes the descriptor to the driver.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        let export = wishes.exportable.then_some(label);
        // SAFETY: success means that it was written.
        let handle = unsafe { *memory };
        known.memories().insert(handle, Memory::new(size, memory_type, export, taken));
    }
    result
}

pub(super) unsafe extern "system" fn free_memory(
    device: vk::Device,
    memory: vk::DeviceMemory,
    allocator: *const vk::AllocationCallbacks<'_>,
) {
    // SAFETY: a live device of the caller's.
    let Some(known) = (unsafe { DEVICES.get(device) }) else { return };
    // Removed before the call, since afterwards the handle may belong to other memory.
    let freed = known.memories().remove(&memory);
    // SAFETY: the caller's arguments, passed on.
    unsafe { (known.next.fp_v1_0().free_memory)(device, memory, allocator) };
    // Releases its bytes in the heap only now.
    drop(freed);
}
