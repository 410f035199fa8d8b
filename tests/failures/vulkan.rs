//! Failures of buffers and images that Vulkan, CUDA and the CPU share.
#![expect(unsafe_code, reason = "creates buffers and images")]

use support::driver::is_real;
use support::{codes, skip};
use vkgdr::MemoryKind;
use vkgdr::ash::vk;
use vkgdr::vulkan::{AllocationSizes, Allocator, AllocatorOptions, Buffer, Image, MemoryLocation, Semaphore};

use crate::place::{ENTER_AND_LEAVE, Place, VULKAN_STAGES};
use crate::sweep::Sweep;
use crate::{NONE, Result};

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

/// Whether the memory of buffers and images is Vulkan's system memory, which CUDA registers. Otherwise CUDA imports it.
fn is_registered(place: &Place) -> vkgdr::Result<bool> {
    let buffer = buffer(&allocator(place)?)?;
    Ok(!buffer.memory_type().flags.contains(vk::MemoryPropertyFlags::DEVICE_LOCAL))
}

/// The calls that make such memory, and those that free it.
fn calls(place: &Place) -> vkgdr::Result<(&'static [&'static str], &'static [&'static str])> {
    Ok(match is_registered(place)? {
        true => (&["vkAllocateMemory", "cuMemHostRegister"], &["cuMemHostUnregister", "cuCtxSynchronize"]),
        false => (&VULKAN_STAGES, &["cuMemFree", "cuDestroyExternalMemory", "cuCtxSynchronize"]),
    })
}

/// Runs a check in each place with mapped memory of Vulkan, with a sweep for each of its names.
fn each(check: impl for<'a> Fn(&'a Place, &dyn Fn(&str) -> Sweep<'a>) -> Result) -> Result {
    Place::each(NONE, |place| {
        let sweep = |what: &str| Sweep::of(format!("{what}, {}", place.name)).incidental(&ENTER_AND_LEAVE);
        if support::is_imported(&place.gpu, MemoryKind::Mapped) { check(place, &sweep) } else { Ok(()) }
    })
}

#[test]
fn a_failed_allocator_or_buffer_or_release_of_it_names_the_call_and_leaves_nothing() -> Result {
    each(|place, sweep| {
        sweep("Allocator::new").call(|| allocator(place))?;
        // A refusal of a call that makes memory may be answered by another memory type.
        let (makes, frees) = calls(place)?;
        let made = sweep("Allocator::buffer").named(makes).incidental(makes);
        let made = made.named(&["vkMapMemory", "vkCreateBuffer", "vkBindBufferMemory"]);
        made.incidental(&["vkMapMemory", "vkCreateBuffer"]).run(
            || Ok(allocator(place)?),
            |allocator| buffer(&allocator),
            |made| Ok(made.free()?),
        )?;
        let freed = sweep("Buffer::free").named(frees);
        freed.collecting(&place.gpu).run(
            || {
                // The allocator is gone, so that the block goes with the buffer.
                let made = buffer(&allocator(place)?)?;
                // From here on the device may use it.
                let _ = made.device_ptr();
                Ok(made)
            },
            Buffer::free,
            |()| Ok(()),
        )
    })
}

#[test]
fn a_failed_image_names_the_call_and_leaves_nothing() -> Result {
    each(|place, sweep| {
        match image(&allocator(place)?) {
            Err(error) if is_real() && error.vulkan_code() == Some(codes::vulkan::FORMAT_NOT_SUPPORTED) => {
                return skip("the driver shares no memory of linear images");
            }
            made => made?.free()?,
        }
        let (makes, _) = calls(place)?;
        let made = sweep("Allocator::image").named(makes).incidental(makes);
        let made = made.named(&["vkMapMemory", "vkCreateImage", "vkBindImageMemory"]);
        made.incidental(&["vkMapMemory", "vkCreateBuffer"]).run(
            || Ok(allocator(place)?),
            |allocator| image(&allocator),
            |made| Ok(made.free()?),
        )
    })
}

#[test]
fn a_failed_semaphore_names_the_call_and_its_drop_survives_every_failure() -> Result {
    each(|place, sweep| {
        if !place.gpu.supports_semaphores() {
            return skip("the drivers share no semaphores");
        }
        let make = || Semaphore::new(&place.gpu, 1);
        let calls = ["vkCreateSemaphore", "vkGetSemaphoreFdKHR", "cuImportExternalSemaphore"];
        sweep("Semaphore::new").named(&calls).call(make)?;
        let survived = ["cuCtxSynchronize", "cuDestroyExternalSemaphore"];
        let sweep = sweep("drop of a Semaphore").survived(&survived).collecting(&place.gpu);
        support::cuda::no_context(|| sweep.drop(|| Ok(place.inside(make)?)))
    })
}
