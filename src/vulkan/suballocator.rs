//! [`Suballocator`]: gpu-allocator behind the allocator's lock, with memory functions that call no driver.
//!
//! No driver may be called under the lock. So gpu-allocator's `vkAllocateMemory` records the requested block and fails; the
//! block is made without the lock, and the next attempt gets it.
#![expect(unsafe_code, reason = "functions with the types of Vulkan's")]

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Weak};

use ash::vk::{self, Handle};
use cudarc::driver::sys::CUdeviceptr;
use gpu_allocator::vulkan::{Allocation as Suballocation, AllocationCreateDesc, Allocator, AllocatorCreateDesc};
use gpu_allocator::{AllocationError, AllocatorReport};

use crate::allocation::{Allocation, ResourceBlock};
use crate::driver::vulkan::DedicatedTo;
use crate::memory::Inner;

/// A block that was made for a request.
pub(super) type Offer = (ResourceBlock, Arc<Allocation>);

/// Why there is no place for an allocation.
pub(super) struct Refusal {
    pub(super) error: AllocationError,
    /// The block that may help.
    pub(super) request: Option<ResourceBlock>,
    /// Whether a block of another memory type has room, so that the request need not be met.
    pub(super) has_room: bool,
}

/// A block, and the offset of an allocation in it.
pub(super) type Place = (Arc<Allocation>, u64);

/// An allocation's device address and its block's handle: once a context was reset, CUDA may give an address again.
pub(super) type Key = (CUdeviceptr, vk::DeviceMemory);

pub(super) fn key_of(block: &Allocation, offset: u64) -> Key {
    (block.device_ptr() + offset, memory_of(block))
}

/// The state of an allocator. No method calls a driver, and the blocks that they return are not in the state any more.
pub(super) struct Suballocator {
    /// `None` once the allocator and all its allocations were dropped.
    inner: Option<Allocator>,
    blocks: Blocks,
    live: BTreeMap<Key, (Suballocation, Weak<Inner>)>,
    is_closed: bool,
}

impl Suballocator {
    pub(super) fn new(mut desc: AllocatorCreateDesc) -> Result<Self, AllocationError> {
        desc.device = stub_device(&desc.device);
        let inner = Some(Allocator::new(&desc)?);
        Ok(Self { inner, blocks: Blocks::default(), live: BTreeMap::new(), is_closed: false })
    }

    /// Allocates, or fails with a request for a block, to be made and offered. Also returns the blocks that it gives up.
    pub(super) fn allocate(
        &mut self,
        desc: &AllocationCreateDesc<'_>,
        offer: Option<Offer>,
    ) -> (Result<Place, Refusal>, Vec<Arc<Allocation>>) {
        let Self { inner, blocks, live, .. } = self;
        let inner = inner.as_mut().expect("open while there is a handle");
        blocks.offer = offer;
        let (mut allocated, mut has_room) = (blocks.run(|| inner.allocate(desc)), false);
        // It took another memory type than it requested first, only because no block of that had been made.
        if blocks.request.is_some()
            && let Ok(allocation) = allocated
        {
            let freed = blocks.run(|| inner.free(allocation));
            allocated = Err(freed.err().unwrap_or(AllocationError::OutOfMemory));
            has_room = true;
        }
        let (request, unused) = (blocks.request.take(), blocks.offer.take());
        blocks.freed.extend(unused.map(|(_, block)| block));
        let allocated = allocated.map_err(|error| Refusal { error, request, has_room }).map(|allocation| {
            // SAFETY: the handle is only looked up.
            let memory = unsafe { allocation.memory() };
            let block = blocks.all.get(&memory).expect("gpu-allocator has no other blocks").clone();
            let offset = allocation.offset();
            live.insert(key_of(&block, offset), (allocation, Weak::new()));
            (block, offset)
        });
        (allocated, std::mem::take(&mut blocks.freed))
    }

    /// The memory of an allocation, for lookups.
    pub(super) fn set_memory(&mut self, key: Key, memory: &Arc<Inner>) {
        if let Some((_, place)) = self.live.get_mut(&key) {
            *place = Arc::downgrade(memory);
        }
    }

    /// The live memory at or before an address.
    pub(super) fn find(&self, address: CUdeviceptr) -> Option<Arc<Inner>> {
        let (_, (_, memory)) = self.live.range(..=(address, vk::DeviceMemory::from_raw(u64::MAX))).next_back()?;
        memory.upgrade()
    }

    pub(super) fn rename(&mut self, key: Key, name: &str) -> Result<(), AllocationError> {
        match (&mut self.inner, self.live.get_mut(&key)) {
            (Some(inner), Some((allocation, _))) => inner.rename_allocation(allocation, name),
            _ => Ok(()),
        }
    }

    /// Ends an allocation. Returns the blocks that gpu-allocator gives back by that.
    pub(super) fn free(&mut self, key: Key) -> (Vec<Arc<Allocation>>, Result<(), AllocationError>) {
        let freed = match (&mut self.inner, self.live.remove(&key)) {
            (Some(inner), Some((allocation, _))) => self.blocks.run(|| inner.free(allocation)),
            _ => Ok(()),
        };
        (self.take_freed(), freed)
    }

    /// Gives all blocks back once nothing is in use. Returns those of now, and a report of what is left.
    pub(super) fn close(&mut self) -> (Vec<Arc<Allocation>>, AllocatorReport) {
        self.is_closed = true;
        (self.take_freed(), self.report())
    }

    fn take_freed(&mut self) -> Vec<Arc<Allocation>> {
        if self.is_closed && self.live.is_empty() {
            // It frees all blocks, and reports no leaks: nothing is allocated.
            let inner = self.inner.take();
            self.blocks.run(|| drop(inner));
        }
        std::mem::take(&mut self.blocks.freed)
    }

    /// gpu-allocator's report; an empty one once everything was dropped.
    pub(super) fn report(&self) -> AllocatorReport {
        self.inner.as_ref().map_or_else(no_report, Allocator::generate_report)
    }
}

pub(super) fn no_report() -> AllocatorReport {
    AllocatorReport { allocations: Vec::new(), blocks: Vec::new(), total_allocated_bytes: 0, total_capacity_bytes: 0 }
}

fn memory_of(block: &Allocation) -> vk::DeviceMemory {
    block.device_memory().expect("Vulkan allocated the block")
}

/// What gpu-allocator's calls reach.
#[derive(Default)]
struct Blocks {
    all: HashMap<vk::DeviceMemory, Arc<Allocation>>,
    /// For the request that it was made for, if that is repeated.
    offer: Option<Offer>,
    /// The first request that was not met.
    request: Option<ResourceBlock>,
    freed: Vec<Arc<Allocation>>,
}

thread_local! {
    /// The blocks of the call of gpu-allocator that this thread is in; null outside one.
    static CURRENT: Cell<*mut Blocks> = const { Cell::new(ptr::null_mut()) };
}

impl Blocks {
    /// Runs a call of gpu-allocator, whose memory functions reach these blocks.
    fn run<T>(&mut self, call: impl FnOnce() -> T) -> T {
        struct Reset(*mut Blocks);
        impl Drop for Reset {
            fn drop(&mut self) {
                CURRENT.set(self.0);
            }
        }
        let _reset = Reset(CURRENT.replace(self));
        call()
    }

    fn allocate(&mut self, request: ResourceBlock) -> Option<vk::DeviceMemory> {
        let Some((_, block)) = self.offer.take_if(|(offered, _)| *offered == request) else {
            self.request.get_or_insert(request);
            return None;
        };
        let memory = memory_of(&block);
        self.all.insert(memory, block);
        Some(memory)
    }
}

/// Runs `work` on the blocks of the call that this thread is in.
fn in_call<T>(work: impl FnOnce(&mut Blocks) -> T) -> Option<T> {
    // SAFETY: null, or those of a call that has not returned, which nothing else uses meanwhile.
    unsafe { CURRENT.get().as_mut() }.map(work)
}

/// The device that gpu-allocator calls: this file's memory functions, and Vulkan's for the rest.
fn stub_device(device: &ash::Device) -> ash::Device {
    let mut functions = device.fp_v1_0().clone();
    functions.allocate_memory = allocate_memory;
    functions.free_memory = free_memory;
    functions.map_memory = map_memory;
    functions.unmap_memory = unmap_memory;
    let (v1_1, v1_2, v1_3) = (device.fp_v1_1().clone(), device.fp_v1_2().clone(), device.fp_v1_3().clone());
    ash::Device::from_parts_1_3(device.handle(), functions, v1_1, v1_2, v1_3)
}

/// The request of a call of `vkAllocateMemory`.
///
/// # Safety
///
/// The chain must be valid.
unsafe fn read_request(info: &vk::MemoryAllocateInfo<'_>) -> ResourceBlock {
    let (type_index, size) = (info.memory_type_index, info.allocation_size);
    let mut request = ResourceBlock { type_index, size, dedicated_to: None, flags: vk::MemoryAllocateFlags::empty() };
    let mut next = info.p_next.cast::<vk::BaseInStructure<'_>>();
    // SAFETY: null or a structure that begins so, by this function's contract.
    while let Some(structure) = unsafe { next.as_ref() } {
        match structure.s_type {
            vk::StructureType::MEMORY_DEDICATED_ALLOCATE_INFO => {
                // SAFETY: the type says what it is.
                let found = unsafe { &*next.cast::<vk::MemoryDedicatedAllocateInfo<'_>>() };
                let (image, buffer) = (DedicatedTo::Image(found.image), DedicatedTo::Buffer(found.buffer));
                request.dedicated_to = Some(if found.image.is_null() { buffer } else { image });
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

unsafe extern "system" fn allocate_memory(
    _device: vk::Device,
    info: *const vk::MemoryAllocateInfo<'_>,
    _allocator: *const vk::AllocationCallbacks<'_>,
    memory: *mut vk::DeviceMemory,
) -> vk::Result {
    // SAFETY: Vulkan asks for a valid structure.
    let info = unsafe { &*info };
    // SAFETY: as above.
    let request = unsafe { read_request(info) };
    let Some(offered) = in_call(|blocks| blocks.allocate(request)).flatten() else {
        return vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
    };
    // SAFETY: the caller's output.
    unsafe { memory.write(offered) };
    vk::Result::SUCCESS
}

unsafe extern "system" fn free_memory(
    _device: vk::Device,
    memory: vk::DeviceMemory,
    _allocator: *const vk::AllocationCallbacks<'_>,
) {
    in_call(|blocks| blocks.freed.extend(blocks.all.remove(&memory)));
}

/// All of a block is mapped as long as it lives. gpu-allocator maps it when it takes it, and never again.
unsafe extern "system" fn map_memory(
    _device: vk::Device,
    memory: vk::DeviceMemory,
    _offset: vk::DeviceSize,
    _size: vk::DeviceSize,
    _flags: vk::MemoryMapFlags,
    pointer: *mut *mut c_void,
) -> vk::Result {
    let Some(host_ptr) = in_call(|blocks| blocks.all.get(&memory)?.host_ptr()).flatten() else {
        return vk::Result::ERROR_MEMORY_MAP_FAILED;
    };
    // SAFETY: the caller's output.
    unsafe { pointer.write(host_ptr.as_ptr().cast()) };
    vk::Result::SUCCESS
}

unsafe extern "system" fn unmap_memory(_device: vk::Device, _memory: vk::DeviceMemory) {}
