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
use vkgdr::ash::vk;
use vkgdr::vulkan::{AllocationSizes, Allocator, AllocatorOptions, Buffer, MemoryLocation};
use vkgdr::{OpenFlags, Vkgdr};

/// The locations whose memory the CPU sees.
const VISIBLE: [MemoryLocation; 2] = [MemoryLocation::CpuToGpu, MemoryLocation::GpuToCpu];
/// The room in a block of [`allocator`].
const BLOCK: u64 = 4 << 20;

/// A handle of device 0 in its primary context; none, with a message, if it has no Vulkan device.
fn open() -> Result<Option<Vkgdr>> {
    open_with(OpenFlags::empty())
}

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

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]])).collect()
}
