//! `vkgdr::vulkan`: buffers and images whose bytes CUDA, Vulkan and the CPU share, and the devices that programs are lent or
//! bring.
#![expect(unsafe_code, reason = "calls Vulkan's functions and launches kernels")]

mod allocator;
mod compute;
mod images;
mod lent;
mod lifetime;
mod program;
mod rounds;
mod semaphores;

use support::Result;
use vkgdr::ash::{self, vk};
use vkgdr::vulkan::{
    AllocationCreateDesc, AllocationScheme, AllocationSizes, Allocator, AllocatorOptions, Buffer, MemoryLocation,
};
use vkgdr::{Memory, OpenFlags, Vkgdr};

/// The locations whose memory the CPU sees.
const VISIBLE: [MemoryLocation; 2] = [MemoryLocation::CpuToGpu, MemoryLocation::GpuToCpu];
/// The room in a block of [`allocator`].
const BLOCK: u64 = 4 << 20;

fn open() -> Result<Option<Vkgdr>> {
    open_with(OpenFlags::empty())
}

/// A handle of device 0 in its primary context; none, with a message, if it has no Vulkan device.
fn open_with(flags: OpenFlags) -> Result<Option<Vkgdr>> {
    let gpu = Vkgdr::open_primary_context(0, flags)?;
    match gpu.vulkan_handles() {
        Ok(_) => Ok(Some(gpu)),
        Err(error) => {
            eprintln!("skipped: {error}");
            Ok(None)
        }
    }
}

/// An allocator with small blocks.
fn allocator(gpu: &Vkgdr) -> vkgdr::Result<Allocator> {
    Allocator::with_options(gpu, AllocatorOptions::default().sizes(AllocationSizes::new(BLOCK, BLOCK)))
}

/// A storage buffer of `len` bytes, which copies can use as well.
fn buffer(allocator: &Allocator, len: usize, location: MemoryLocation) -> vkgdr::Result<Buffer> {
    let usage =
        vk::BufferUsageFlags::STORAGE_BUFFER | vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
    let info = vk::BufferCreateInfo::default().size(len as u64).usage(usage);
    // SAFETY: a valid description; tests wait for their queue.
    unsafe { allocator.buffer(&info, location) }
}

/// Memory of the CPU's for requirements, without a buffer or an image.
fn room(allocator: &Allocator, requirements: vk::MemoryRequirements) -> vkgdr::Result<Memory> {
    let (location, allocation_scheme) = (MemoryLocation::CpuToGpu, AllocationScheme::GpuAllocatorManaged);
    let desc = AllocationCreateDesc { name: "", requirements, location, linear: true, allocation_scheme };
    // SAFETY: nothing is bound to it.
    unsafe { allocator.allocate(&desc) }
}

/// A storage buffer of the test's own, for exported memory, destroyed on drop.
struct OwnBuffer {
    device: ash::Device,
    buffer: vk::Buffer,
    requirements: vk::MemoryRequirements,
}

impl OwnBuffer {
    fn new(gpu: &Vkgdr, len: usize) -> Result<Self> {
        let device = gpu.vulkan_handles()?.device;
        let mut external =
            vk::ExternalMemoryBufferCreateInfo::default().handle_types(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
        let usage = vk::BufferUsageFlags::STORAGE_BUFFER;
        let info = vk::BufferCreateInfo::default().size(len as u64).usage(usage).push_next(&mut external);
        // SAFETY: a valid description.
        let buffer = unsafe { device.create_buffer(&info, None) }?;
        // SAFETY: a live buffer.
        let requirements = unsafe { device.get_buffer_memory_requirements(buffer) };
        Ok(Self { device, buffer, requirements })
    }
}

impl Drop for OwnBuffer {
    fn drop(&mut self) {
        // SAFETY: tests wait for what uses it.
        unsafe { self.device.destroy_buffer(self.buffer, None) };
    }
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]])).collect()
}
