//! Vulkan's allocators, and the buffers and images that they lend.
#![expect(unsafe_code, reason = "creates buffers and images")]

use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use support::driver::is_real;
use support::step::{Step, What};
use support::{Result, codes};
use vkgdr::ash::vk;
use vkgdr::vulkan::{AllocationSizes, Allocator, AllocatorOptions, MemoryLocation};
use vkgdr::{Error, MemoryKind, Vkgdr};

use super::World;
use super::item::{Bytes, Item, Owner};
use super::queue::TIMEOUT;

/// The largest number of allocators.
const MOST: usize = 2;
const BLOCK: u64 = 4 << 20;
const LOCATIONS: [MemoryLocation; 3] = [MemoryLocation::CpuToGpu, MemoryLocation::GpuToCpu, MemoryLocation::GpuOnly];

/// An allocator of the world, with what it lent.
pub(super) struct AllocatorSlot {
    gpu: Vkgdr,
    allocator: Allocator,
    lent: Vec<Weak<Mutex<Bytes>>>,
}

impl AllocatorSlot {
    /// Fails if the report lacks live memory. What the device may still use is in it, too.
    fn check(&mut self) -> Result {
        self.lent.retain(|bytes| bytes.strong_count() > 0);
        let report = self.allocator.report();
        let (listed, alive) = (report.allocations.len(), self.lent.len());
        let enough = report.total_allocated_bytes <= report.total_capacity_bytes;
        if listed >= alive && enough { Ok(()) } else { Err(format!("{alive} alive of {report:?}").into()) }
    }
}

/// An allocator with small blocks.
pub(super) fn allocator(gpu: &Vkgdr) -> vkgdr::Result<Allocator> {
    Allocator::with_options(gpu, AllocatorOptions::default().sizes(AllocationSizes::new(BLOCK, BLOCK)))
}

/// Fails with the error of a call for Vulkan, unless the GPU lacks that.
pub(super) fn expect_no_vulkan(gpu: &Vkgdr, error: Error) -> Result {
    let is_lacking = gpu.vulkan_handles().is_err_and(|lack| crate::is_lack(&lack));
    if is_lacking && crate::is_lack(&error) { Ok(()) } else { Err(error.into()) }
}

fn buffer(allocator: &Allocator, step: Step) -> vkgdr::Result<Owner> {
    let usage = vk::BufferUsageFlags::STORAGE_BUFFER;
    let usage = usage | vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
    let info = vk::BufferCreateInfo::default().size(step.span.new_len() as u64).usage(usage);
    // SAFETY: a valid description; `World::free_item` waits for the queue.
    let made = unsafe { allocator.buffer(&info, LOCATIONS[usize::from(step.choice) % LOCATIONS.len()]) }?;
    if step.second.is_multiple_of(4) {
        made.rename("renamed")?;
    }
    Ok(Owner::Buffer(made))
}

/// A linear image. Its bytes are those of its memory: drivers leave what lies between the rows alone.
fn image(allocator: &Allocator, step: Step) -> vkgdr::Result<Owner> {
    let (width, height) = (1 + u32::from(step.seed % 61), 1 + u32::from(step.second % 17));
    let info = vk::ImageCreateInfo::default()
        .image_type(vk::ImageType::TYPE_2D)
        .format(vk::Format::R8G8B8A8_UNORM)
        .extent(vk::Extent3D { width, height, depth: 1 })
        .mip_levels(1)
        .array_layers(1)
        .samples(vk::SampleCountFlags::TYPE_1)
        .tiling(vk::ImageTiling::LINEAR)
        .usage(vk::ImageUsageFlags::TRANSFER_SRC | vk::ImageUsageFlags::TRANSFER_DST);
    // SAFETY: a valid description; no queue uses the image.
    let made = unsafe { allocator.image(&info, LOCATIONS[usize::from(step.choice) % LOCATIONS.len()]) }?;
    Ok(Owner::Image(made))
}

impl World {
    pub(super) fn apply_to_allocators(&mut self, step: Step) -> Result<bool> {
        let done = match step.what {
            What::NewAllocator => self.new_allocator(step)?,
            What::DropAllocator if !self.allocators.is_empty() => {
                let index = usize::from(step.first) % self.allocators.len();
                drop(self.allocators.swap_remove(index));
                true
            }
            What::AllocateBuffer => self.allocate_from(step, buffer)?,
            What::AllocateImage => self.allocate_from(step, image)?,
            _ => false,
        };
        self.allocators.iter_mut().try_for_each(AllocatorSlot::check)?;
        Ok(done)
    }

    fn new_allocator(&mut self, step: Step) -> Result<bool> {
        if self.allocators.len() >= MOST {
            return Ok(false);
        }
        let (gpu, site) = self.handle(step.first, step.second.is_multiple_of(2));
        match self.inside(site, || allocator(&gpu)) {
            Ok(allocator) => {
                self.allocators.push(AllocatorSlot { gpu, allocator, lent: Vec::new() });
            }
            Err(error) => expect_no_vulkan(&gpu, error)?,
        }
        Ok(true)
    }

    fn allocate_from(&mut self, step: Step, make: fn(&Allocator, Step) -> vkgdr::Result<Owner>) -> Result<bool> {
        if self.is_full() {
            return Ok(false);
        }
        // The number after the last allocator selects the shared one.
        let index = usize::from(step.first) % (self.allocators.len() + 1);
        let own = self.allocators.get(index).map(|slot| (slot.gpu.clone(), slot.allocator.clone()));
        let shared = || Some((self.shared.gpu.clone(), self.shared.allocator.clone()?));
        let Some((gpu, allocator)) = own.or_else(shared) else { return Ok(false) };
        let owner = match make(&allocator, step) {
            Ok(owner) => owner,
            Err(Error::Allocation { .. }) if crate::has_little_room() => {
                self.tally.refused += 1;
                return Ok(true);
            }
            // The handle's flags may leave no memory type for the location.
            Err(Error::NoSuitableMemoryType { .. }) if !MemoryKind::ALL.into_iter().all(|kind| gpu.supports(kind)) => {
                return Ok(true);
            }
            // A real driver may share no memory of linear images.
            Err(error) if is_real() && error.vulkan_code() == Some(codes::vulkan::FORMAT_NOT_SUPPORTED) => {
                return Ok(true);
            }
            Err(error) => return Err(error.into()),
        };
        let site = self.site_of(&owner);
        let item = Item::new(owner, site);
        if let Some(slot) = self.allocators.get_mut(index) {
            slot.lent.push(Arc::downgrade(&item.bytes));
        }
        self.adopt(item, step)?;
        Ok(true)
    }

    /// Drops the allocators, of which nothing is in use: their memory has gone, once the device has finished with it.
    pub(super) fn end_allocators(&mut self) -> Result {
        for AllocatorSlot { gpu, allocator, .. } in std::mem::take(&mut self.allocators) {
            // Another thread may be releasing what it found among the deferred frees.
            let end = Instant::now() + TIMEOUT;
            while Instant::now() < end {
                gpu.collect();
                if allocator.report().allocations.is_empty() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            let report = allocator.report();
            if !report.allocations.is_empty() {
                return Err(format!("still allocated: {report:?}").into());
            }
        }
        Ok(())
    }

    /// Whether the item is memory of one of the world's allocators.
    pub(super) fn lends(&self, item: &Item) -> bool {
        let of = |slot: &AllocatorSlot| slot.lent.iter().any(|bytes| bytes.as_ptr() == Arc::as_ptr(&item.bytes));
        self.allocators.iter().any(of)
    }
}
