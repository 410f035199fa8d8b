//! [`ResourceBlock`]: a request for the memory of buffers and images of [`crate::vulkan`], and its allocation.
#![forbid(unsafe_code)]

use ash::vk;

use super::shortage::{shortage, with_sizes};
use super::stages::Stages;
use super::vulkan::{Dedication, Request};
use super::{Allocation, ask};
use crate::device::MemoryType;
use crate::driver::vulkan::DedicatedTo;
use crate::{MemoryKind, Result, Vkgdr};

/// The memory to allocate for buffers and images.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResourceBlock {
    pub(crate) kind: MemoryKind,
    /// A type of Vulkan's list.
    pub(crate) memory_type: MemoryType,
    /// In bytes, more than 0. For memory that is dedicated to a buffer or image, the size that this requires.
    pub(crate) size: u64,
    pub(crate) dedicated_to: Option<DedicatedTo>,
    /// Only flags whose features the device has.
    pub(crate) flags: vk::MemoryAllocateFlags,
}

impl Allocation {
    /// Allocates memory for buffers and images in the current context, which must belong to the owner's device. When a
    /// driver has run out of memory or descriptors, this waits for retired memory, as long as the owner says, and tries once more.
    pub(crate) fn allocate_resources(owner: &Vkgdr, block: &ResourceBlock) -> Result<Self> {
        let retired = owner.gpu().retired();
        retired.poll(None);
        let acquired = match Self::acquire_for_resources(owner, block) {
            Err(error)
                if error.is_exhaustion()
                    && !error.exceeds_the_heap()
                    && retired.drain(Some(owner.shortage_deadline())) =>
            {
                Self::acquire_for_resources(owner, block)
            }
            result => result,
        };
        acquired.map_err(|error| {
            with_sizes(error, block.kind, block.len(), block.memory_type).with_still_used(retired.len())
        })
    }

    fn acquire_for_resources(owner: &Vkgdr, block: &ResourceBlock) -> Result<Self> {
        let ResourceBlock { kind, memory_type, size, dedicated_to, flags } = *block;
        let refuse = |code| shortage(None, code, kind, block.len(), memory_type);
        // Vulkan does not define a size beyond the heap (VUID-vkAllocateMemory-pAllocateInfo-01713).
        if size > memory_type.info.heap_size {
            return Err(refuse(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY));
        }
        let gpu = owner.vulkan()?;
        let dedication = dedicated_to.map_or(Dedication::None, Dedication::To);
        let request = Request { gpu, memory_type: &memory_type, size, dedication, flags };
        let stages = ask(|| {
            let counted = owner.gpu().count_allocation(gpu.device().physical.max_allocations);
            let counted = counted.ok_or_else(|| refuse(vk::Result::ERROR_TOO_MANY_OBJECTS))?;
            Stages::share(counted, request, kind, None)
        })?;
        Ok(Self::with_stages(owner, block.len(), kind, memory_type, stages))
    }

    /// Vulkan's memory object; `None` where Vulkan did not allocate the memory.
    pub(crate) const fn device_memory(&self) -> Option<vk::DeviceMemory> {
        match &self.stages {
            Stages::Imported { memory, .. } => Some(memory.handle()),
            _ => None,
        }
    }
}

impl ResourceBlock {
    fn len(&self) -> usize {
        usize::try_from(self.size).expect("usize has 64 bits")
    }
}
