//! [`stub_device`]: Vulkan memory functions for gpu-allocator, which call no driver.
//!
//! No driver may be called under the lock of gpu-allocator's state. So `allocate_memory` records the requested block in
//! the [`Scope`] and fails; the block is made without the lock, and `allocate_memory` returns it in the next attempt.
#![expect(unsafe_code, reason = "functions with the types of Vulkan's")]

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;

use ash::vk;

use crate::driver::vulkan::DedicatedTo;

/// The parameters of a block that gpu-allocator requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockRequest {
    pub(super) type_index: u32,
    /// In bytes.
    pub(super) size: u64,
    pub(super) dedicated_to: Option<DedicatedTo>,
    pub(super) flags: vk::MemoryAllocateFlags,
}

impl BlockRequest {
    /// # Safety
    ///
    /// The chain must be valid.
    unsafe fn of(info: &vk::MemoryAllocateInfo<'_>) -> Self {
        let (type_index, size) = (info.memory_type_index, info.allocation_size);
        let mut request = Self { type_index, size, dedicated_to: None, flags: vk::MemoryAllocateFlags::empty() };
        let mut next = info.p_next.cast::<vk::BaseInStructure<'_>>();
        // SAFETY: null or a structure that begins so, by this function's contract.
        while let Some(structure) = unsafe { next.as_ref() } {
            match structure.s_type {
                vk::StructureType::MEMORY_DEDICATED_ALLOCATE_INFO => {
                    // SAFETY: the type says what it is.
                    let found = unsafe { &*next.cast::<vk::MemoryDedicatedAllocateInfo<'_>>() };
                    let is_image = found.image != vk::Image::null();
                    let buffer = DedicatedTo::Buffer(found.buffer);
                    request.dedicated_to = Some(if is_image { DedicatedTo::Image(found.image) } else { buffer });
                }
                vk::StructureType::MEMORY_ALLOCATE_FLAGS_INFO => {
                    // SAFETY: the type says what it is.
                    request.flags = unsafe { &*next.cast::<vk::MemoryAllocateFlagsInfo<'_>>() }.flags;
                }
                _ => {}
            }
            next = structure.p_next;
        }
        request
    }
}

/// A block that was made for a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offer {
    pub(super) request: BlockRequest,
    pub(super) memory: vk::DeviceMemory,
    /// Null if the CPU does not see it.
    pub(super) host_ptr: *mut u8,
}

/// The offer to one call of gpu-allocator, and the call's requests.
#[derive(Debug, Default)]
pub(super) struct Scope {
    pub(super) offer: Option<Offer>,
    /// Blocks that could not be made.
    pub(super) failed: Vec<BlockRequest>,
    /// The first request that was not met, apart from those.
    pub(super) request: Option<BlockRequest>,
    /// Whether it took the offered block.
    pub(super) taken: bool,
    /// The blocks that it gave back.
    pub(super) freed: Vec<vk::DeviceMemory>,
}

thread_local! {
    /// The scope of the call of gpu-allocator that this thread is in; null outside one.
    static CURRENT: Cell<*mut Scope> = const { Cell::new(ptr::null_mut()) };
}

impl Scope {
    /// Runs a call of gpu-allocator in this scope.
    pub(super) fn run<T>(&mut self, call: impl FnOnce() -> T) -> T {
        struct Reset(*mut Scope);
        impl Drop for Reset {
            fn drop(&mut self) {
                CURRENT.set(self.0);
            }
        }
        let _reset = Reset(CURRENT.replace(self));
        call()
    }

    fn allocate(&mut self, request: BlockRequest) -> Option<vk::DeviceMemory> {
        if let Some(offer) = self.offer.filter(|offer| offer.request == request && !self.taken) {
            self.taken = true;
            return Some(offer.memory);
        }
        if self.request.is_none() && !self.failed.contains(&request) {
            self.request = Some(request);
        }
        None
    }

    fn host_ptr(&self, memory: vk::DeviceMemory) -> Option<*mut u8> {
        self.offer.filter(|offer| offer.memory == memory && !offer.host_ptr.is_null()).map(|offer| offer.host_ptr)
    }
}

/// Runs `work` on the scope of the call that this thread is in.
fn in_scope<T>(work: impl FnOnce(&mut Scope) -> T) -> Option<T> {
    // SAFETY: null, or the scope of a call that has not returned, which nothing else uses meanwhile.
    unsafe { CURRENT.get().as_mut() }.map(work)
}

/// The device that gpu-allocator calls: this file's memory functions, and Vulkan's for the rest.
pub(super) fn stub_device(device: &ash::Device) -> ash::Device {
    let mut functions = device.fp_v1_0().clone();
    functions.allocate_memory = allocate_memory;
    functions.free_memory = free_memory;
    functions.map_memory = map_memory;
    functions.unmap_memory = unmap_memory;
    let (v1_1, v1_2, v1_3) = (device.fp_v1_1().clone(), device.fp_v1_2().clone(), device.fp_v1_3().clone());
    ash::Device::from_parts_1_3(device.handle(), functions, v1_1, v1_2, v1_3)
}

unsafe extern "system" fn allocate_memory(
    _device: vk::Device,
    info: *const vk::MemoryAllocateInfo<'_>,
    _allocator: *const vk::AllocationCallbacks<'_>,
    memory: *mut vk::DeviceMemory,
) -> vk::Result {
    // SAFETY: Vulkan asks for a valid structure.
    let info = unsafe { &*info };
    // SAFETY: as above.
    let request = unsafe { BlockRequest::of(info) };
    match in_scope(|scope| scope.allocate(request)).flatten() {
        Some(offered) => {
            // SAFETY: the caller's output.
            unsafe { memory.write(offered) };
            vk::Result::SUCCESS
        }
        None => vk::Result::ERROR_OUT_OF_DEVICE_MEMORY,
    }
}

unsafe extern "system" fn free_memory(
    _device: vk::Device,
    memory: vk::DeviceMemory,
    _allocator: *const vk::AllocationCallbacks<'_>,
) {
    in_scope(|scope| scope.freed.push(memory));
}

/// All of a block is mapped as long as it lives.
unsafe extern "system" fn map_memory(
    _device: vk::Device,
    memory: vk::DeviceMemory,
    _offset: vk::DeviceSize,
    _size: vk::DeviceSize,
    _flags: vk::MemoryMapFlags,
    pointer: *mut *mut c_void,
) -> vk::Result {
    match in_scope(|scope| scope.host_ptr(memory)).flatten() {
        Some(host_ptr) => {
            // SAFETY: the caller's output.
            unsafe { pointer.write(host_ptr.cast()) };
            vk::Result::SUCCESS
        }
        None => vk::Result::ERROR_MEMORY_MAP_FAILED,
    }
}

unsafe extern "system" fn unmap_memory(_device: vk::Device, _memory: vk::DeviceMemory) {}

#[cfg(test)]
mod tests {
    use ash::vk::Handle;

    use super::*;

    fn request(size: u64) -> BlockRequest {
        BlockRequest { type_index: 1, size, dedicated_to: None, flags: vk::MemoryAllocateFlags::empty() }
    }

    #[test]
    fn a_block_is_handed_over_once_and_only_for_the_request_that_it_was_made_for() {
        let memory = vk::DeviceMemory::from_raw(7);
        let offer = Offer { request: request(64), memory, host_ptr: ptr::dangling_mut() };
        let mut scope = Scope { offer: Some(offer), failed: vec![request(1)], ..Scope::default() };
        assert_eq!(scope.allocate(request(1)), None);
        assert_eq!(scope.request, None, "a request that cannot be met is not made again");
        assert_eq!(scope.allocate(request(128)), None);
        assert_eq!(scope.allocate(request(64)), Some(memory));
        assert_eq!(scope.allocate(request(64)), None);
        assert_eq!(scope.request, Some(request(128)), "the first request counts");
    }

    #[test]
    fn the_chain_of_an_allocation_is_read() {
        let flags = vk::MemoryAllocateFlagsInfo::default().flags(vk::MemoryAllocateFlags::DEVICE_ADDRESS);
        let mut dedicated = vk::MemoryDedicatedAllocateInfo::default().image(vk::Image::from_raw(3));
        // Chained by hand: ash's `push_next` uses its argument again after it took the pointer, which Miri refuses.
        dedicated.p_next = (&raw const flags).cast();
        let mut info = vk::MemoryAllocateInfo::default().allocation_size(9);
        info.p_next = (&raw const dedicated).cast();
        // SAFETY: a valid chain.
        let request = unsafe { BlockRequest::of(&info) };
        assert_eq!(request.dedicated_to, Some(DedicatedTo::Image(vk::Image::from_raw(3))));
        assert_eq!((request.flags, request.size), (vk::MemoryAllocateFlags::DEVICE_ADDRESS, 9));
    }

    #[test]
    fn outside_a_call_no_scope_is_found() {
        let mut scope = Scope::default();
        assert!(in_scope(|_| ()).is_none());
        assert!(scope.run(|| in_scope(|scope| scope.taken = true)).is_some());
        assert!(scope.taken && in_scope(|_| ()).is_none());
    }
}
