//! Failures of buffers and images that Vulkan, CUDA and the CPU share.
#![expect(unsafe_code, reason = "creates buffers and images")]

use support::cuda::no_context;
use support::driver::is_real;
use support::{codes, skip};
use vkgdr::ash::vk;
use vkgdr::vulkan::{AllocationSizes, Allocator, AllocatorOptions, Buffer, Image, MemoryLocation, Semaphore};
use vkgdr::{MemoryKind, OpenFlags};

use crate::Result;
use crate::place::{ENTER_AND_LEAVE, Place};
use crate::sweep::{Sweep, dropped};

/// The calls that make memory. A refusal of one may be answered by another memory type.
const STAGES: [&str; 5] = [
    "vkAllocateMemory",
    "vkMapMemory",
    "vkGetMemoryFdKHR",
    "cuImportExternalMemory",
    "cuExternalMemoryGetMappedBuffer",
];

fn allocator(place: &Place) -> vkgdr::Result<Allocator> {
    let options = AllocatorOptions::default().sizes(AllocationSizes::new(4 << 20, 4 << 20));
    Allocator::with_options(&place.gpu, options)
}

fn buffer(allocator: &Allocator) -> vkgdr::Result<Buffer> {
    let info = vk::BufferCreateInfo::default().size(4097).usage(vk::BufferUsageFlags::STORAGE_BUFFER);
    // SAFETY: a valid description, and no queue uses it.
    unsafe { allocator.buffer(&info, MemoryLocation::CpuToGpu) }
}

fn image(allocator: &Allocator) -> vkgdr::Result<Image> {
    let info = vk::ImageCreateInfo::default()
        .image_type(vk::ImageType::TYPE_2D)
        .format(vk::Format::R8G8B8A8_UNORM)
        .extent(vk::Extent3D { width: 33, height: 7, depth: 1 })
        .mip_levels(1)
        .array_layers(1)
        .samples(vk::SampleCountFlags::TYPE_1)
        .tiling(vk::ImageTiling::LINEAR)
        .usage(vk::ImageUsageFlags::TRANSFER_DST);
    // SAFETY: a valid description, and no queue uses it.
    unsafe { allocator.image(&info, MemoryLocation::CpuToGpu) }
}

/// Runs a check in each place with mapped memory of Vulkan.
fn each(check: impl Fn(&Place) -> Result) -> Result {
    Place::each(OpenFlags::empty(), |place| {
        if support::is_imported(&place.gpu, MemoryKind::Mapped) { check(place) } else { Ok(()) }
    })
}

#[test]
fn a_failed_buffer_names_the_call_and_leaves_nothing() -> Result {
    each(|place| {
        let what = format!("Allocator::buffer, {}", place.name);
        let named = [&STAGES[..], &["vkCreateBuffer", "vkBindBufferMemory"]].concat();
        let incidental = [&STAGES[..], &["vkCreateBuffer"], &ENTER_AND_LEAVE].concat();
        let sweep = Sweep { what: &what, named: &named, incidental: &incidental, ..Sweep::default() };
        sweep.run(
            || Ok(allocator(place)?),
            |allocator| {
                let made = buffer(&allocator);
                drop(allocator);
                made
            },
            |made| Ok(made.free()?),
        )
    })
}

#[test]
fn a_failed_image_names_the_call_and_leaves_nothing() -> Result {
    each(|place| {
        match image(&allocator(place)?) {
            Err(error) if is_real() && error.vulkan_code() == Some(codes::vulkan::FORMAT_NOT_SUPPORTED) => {
                return skip("the driver shares no memory of linear images");
            }
            made => made?.free()?,
        }
        let what = format!("Allocator::image, {}", place.name);
        let named = [&STAGES[..], &["vkCreateImage", "vkBindImageMemory"]].concat();
        let incidental = [&STAGES[..], &["vkCreateBuffer"], &ENTER_AND_LEAVE].concat();
        let sweep = Sweep { what: &what, named: &named, incidental: &incidental, ..Sweep::default() };
        sweep.run(
            || Ok(allocator(place)?),
            |allocator| {
                let made = image(&allocator);
                drop(allocator);
                made
            },
            |made| Ok(made.free()?),
        )
    })
}

#[test]
fn a_failed_allocator_names_the_call_and_leaves_nothing() -> Result {
    each(|place| {
        let what = format!("Allocator::new, {}", place.name);
        let sweep = Sweep { what: &what, incidental: &ENTER_AND_LEAVE, ..Sweep::default() };
        sweep.run(|| Ok(()), |()| allocator(place), |_| Ok(()))
    })
}

#[test]
fn a_failed_release_names_the_call_and_leaves_nothing() -> Result {
    each(|place| {
        let what = format!("Buffer::free, {}", place.name);
        let named = ["cuMemFree", "cuDestroyExternalMemory", "cuCtxSynchronize"];
        let sweep = Sweep {
            what: &what,
            named: &named,
            incidental: &ENTER_AND_LEAVE,
            collects: Some(&place.gpu),
            ..Sweep::default()
        };
        let prepare = || {
            let allocator = allocator(place)?;
            let made = buffer(&allocator)?;
            // From here on the device may use it.
            let _ = made.device_ptr();
            Ok(made)
        };
        // The allocator is gone, so that the block goes with the buffer.
        sweep.run(prepare, Buffer::free, |()| Ok(()))
    })
}

#[test]
fn a_failed_semaphore_names_the_call_and_leaves_nothing() -> Result {
    each(|place| {
        if !place.gpu.supports_semaphores() {
            return support::skip("the drivers share no semaphores");
        }
        let what = format!("Semaphore::new, {}", place.name);
        let named = ["vkCreateSemaphore", "vkGetSemaphoreFdKHR", "cuImportExternalSemaphore"];
        let sweep = Sweep { what: &what, named: &named, incidental: &ENTER_AND_LEAVE, ..Sweep::default() };
        sweep.run(|| Ok(()), |()| Semaphore::new(&place.gpu, 1), dropped)
    })
}

#[test]
fn dropping_a_semaphore_survives_every_failure() -> Result {
    each(|place| {
        if !place.gpu.supports_semaphores() {
            return support::skip("the drivers share no semaphores");
        }
        let what = format!("drop of a Semaphore, {}", place.name);
        let survived = ["cuCtxSynchronize", "cuDestroyExternalSemaphore"];
        let sweep = Sweep {
            what: &what,
            survived: &survived,
            incidental: &ENTER_AND_LEAVE,
            collects: Some(&place.gpu),
            ..Sweep::default()
        };
        no_context(|| sweep.run(|| Ok(place.inside(|| Semaphore::new(&place.gpu, 1))?), dropped, |()| Ok(())))
    })
}
