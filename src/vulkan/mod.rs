//! Vulkan's side of this crate's memory: buffers, images, semaphores and devices.
//!
//! CUDA and the CPU see the bytes of the buffers and images; programs use the Vulkan device of this crate, or bring
//! one.
//!
//! * [`Allocator`] is [gpu-allocator](https://docs.rs/gpu-allocator) with blocks that CUDA imports: a [`Buffer`] or
//!   [`Image`] made by it has a host pointer, a CUDA pointer and a Vulkan handle of the same bytes.
//! * [`Vkgdr::vulkan_handles`](crate::Vkgdr::vulkan_handles) lends the Vulkan device on which this crate allocates.
//! * [`Vkgdr::open_on`](crate::Vkgdr::open_on) allocates on a Vulkan device that the program made.
//! * [`Memory::vulkan_memory`](crate::Memory::vulkan_memory) gives the `VkDeviceMemory` of any memory that Vulkan allocated.
//! * [`Semaphore`] is a timeline semaphore that queues, streams and the CPU signal and wait for.
//!
//! Neither driver orders the work of the other: between work of a Vulkan queue and work of a CUDA stream, wait for the first
//! on the CPU, or by a semaphore. The CPU's own accesses need the flush and invalidate of [`Memory`](crate::Memory), as with CUDA.
//!
//! This module needs the crate's feature `vulkan`, which is on by default.

mod allocator;
mod device;
mod resources;
mod semaphore;
mod suballocator;

pub use allocator::{Allocator, AllocatorOptions};
pub use device::VulkanMemory;
pub use gpu_allocator::vulkan::{AllocationCreateDesc, AllocationScheme};
pub use gpu_allocator::{AllocationReport, AllocationSizes, AllocatorReport, MemoryBlockReport, MemoryLocation};
pub use resources::{Buffer, Image};
pub use semaphore::Semaphore;

pub use crate::driver::vulkan::handles::Handles;
