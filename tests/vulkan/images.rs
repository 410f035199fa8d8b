//! Images with linear and optimal tiling, side by side with buffers.
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "sequences of calls of Vulkan on live objects")]

use support::driver::is_real;
use support::{Result, assert_says, codes, device_read, host_read, host_write, pattern, refused};
use vkgdr::ash::vk;
use vkgdr::vulkan::{AllocationCreateDesc, AllocationScheme, Allocator, Image, MemoryLocation};

use crate::compute::Compute;
use crate::{allocator, buffer, open};

const EXTENT: vk::Extent3D = vk::Extent3D { width: 50, height: 7, depth: 1 };
const PIXELS: usize = 50 * 7 * 4;
const FORMAT: vk::Format = vk::Format::R8G8B8A8_UNORM;
const COLOUR: vk::ImageSubresourceLayers = vk::ImageSubresourceLayers {
    aspect_mask: vk::ImageAspectFlags::COLOR,
    mip_level: 0,
    base_array_layer: 0,
    layer_count: 1,
};

fn description(tiling: vk::ImageTiling) -> vk::ImageCreateInfo<'static> {
    vk::ImageCreateInfo::default()
        .image_type(vk::ImageType::TYPE_2D)
        .format(FORMAT)
        .extent(EXTENT)
        .mip_levels(1)
        .array_layers(1)
        .samples(vk::SampleCountFlags::TYPE_1)
        .tiling(tiling)
        .usage(vk::ImageUsageFlags::TRANSFER_SRC | vk::ImageUsageFlags::TRANSFER_DST)
}

fn image(allocator: &Allocator, tiling: vk::ImageTiling, location: MemoryLocation) -> vkgdr::Result<Image> {
    // SAFETY: a valid description; tests wait for their queue.
    unsafe { allocator.image(&description(tiling), location) }
}

/// Whether a real driver shares no memory of such images.
fn is_not_shared(error: &vkgdr::Error) -> bool {
    is_real() && error.vulkan_code() == Some(codes::vulkan::FORMAT_NOT_SUPPORTED)
}

/// Copies pixels from one buffer through an image to another.
fn copy_through(compute: &Compute, from: vk::Buffer, image: vk::Image, to: vk::Buffer) -> Result {
    let whole = [vk::BufferImageCopy::default().image_subresource(COLOUR).image_extent(EXTENT)];
    let barrier = |from, to| {
        [vk::ImageMemoryBarrier::default()
            .old_layout(from)
            .new_layout(to)
            .src_access_mask(vk::AccessFlags::MEMORY_WRITE)
            .dst_access_mask(vk::AccessFlags::MEMORY_READ | vk::AccessFlags::MEMORY_WRITE)
            .src_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
            .dst_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
            .image(image)
            .subresource_range(
                vk::ImageSubresourceRange::default()
                    .aspect_mask(vk::ImageAspectFlags::COLOR)
                    .level_count(1)
                    .layer_count(1),
            )]
    };
    let stages = vk::PipelineStageFlags::ALL_COMMANDS;
    let none = vk::DependencyFlags::empty();
    use vk::ImageLayout as Layout;
    let (undefined, written, read) = (Layout::UNDEFINED, Layout::TRANSFER_DST_OPTIMAL, Layout::TRANSFER_SRC_OPTIMAL);
    compute.submit(|device, commands| {
        // SAFETY: recording into a command buffer that has begun, with live objects.
        unsafe {
            let change = |to: [vk::ImageMemoryBarrier<'_>; 1]| {
                device.cmd_pipeline_barrier(commands, stages, stages, none, &[], &[], &to);
            };
            change(barrier(undefined, written));
            device.cmd_copy_buffer_to_image(commands, from, image, written, &whole);
            change(barrier(written, read));
            device.cmd_copy_image_to_buffer(commands, image, read, to, &whole);
            // For the CPU.
            change(barrier(read, Layout::GENERAL));
        }
    })
}

#[test]
fn images_of_both_tilings_carry_pixels_from_one_buffer_to_another() -> Result {
    let (Some(gpu), _context) = (open()?, support::cuda::PrimaryContext::retain_and_push(0)) else { return Ok(()) };
    let allocator = allocator(&gpu)?;
    let compute = Compute::new(&gpu.vulkan_handles()?)?;
    for (seed, tiling, location) in [
        (1, vk::ImageTiling::LINEAR, MemoryLocation::CpuToGpu),
        (2, vk::ImageTiling::OPTIMAL, MemoryLocation::GpuOnly),
        (3, vk::ImageTiling::LINEAR, MemoryLocation::GpuToCpu),
        (4, vk::ImageTiling::OPTIMAL, MemoryLocation::GpuOnly),
    ] {
        // Buffers on both sides of the image, which it must not touch.
        let from = buffer(&allocator, PIXELS, MemoryLocation::CpuToGpu)?;
        let image = match image(&allocator, tiling, location) {
            Err(error) if tiling == vk::ImageTiling::LINEAR && is_not_shared(&error) => {
                eprintln!("left out: images with linear tiling: {error}");
                continue;
            }
            made => made?,
        };
        let to = buffer(&allocator, PIXELS, MemoryLocation::CpuToGpu)?;
        host_write(&from, 0, &pattern(PIXELS, seed))?;
        copy_through(&compute, from.handle(), image.handle(), to.handle())?;
        assert!(host_read(&to, 0, PIXELS)? == pattern(PIXELS, seed), "{tiling:?}");
        assert!(host_read(&from, 0, PIXELS)? == pattern(PIXELS, seed), "{tiling:?}: a neighbour changed");
        match image.layout(0, 0) {
            None => assert_eq!(tiling, vk::ImageTiling::OPTIMAL),
            Some(layout) => {
                let row = 4 * EXTENT.width as usize;
                let all = device_read(image.device_ptr(), image.len());
                for y in 0..EXTENT.height as usize {
                    let at = usize::try_from(layout.offset)? + y * usize::try_from(layout.row_pitch)?;
                    let expected = &pattern(PIXELS, seed)[y * row..][..row];
                    assert!(all[at..][..row] == *expected, "row {y} for CUDA");
                    assert!(host_read(&image, at, row)? == expected, "row {y} for the CPU");
                }
                assert!(image.layout(1, 0).is_none() && image.layout(0, 1).is_none());
            }
        }
        image.rename("picture")?;
        assert!(allocator.report().allocations.iter().any(|found| found.name == "picture"));
        image.free()?;
    }
    Ok(())
}

#[test]
fn a_dedicated_allocation_is_for_the_callers_own_image() -> Result {
    let Some(gpu) = open()? else { return Ok(()) };
    let allocator = allocator(&gpu)?;
    let (compute, device) = (Compute::new(&gpu.vulkan_handles()?)?, gpu.vulkan_handles()?.device);
    let [from, to] = [1, 2].map(|_| buffer(&allocator, PIXELS, MemoryLocation::CpuToGpu));
    let (from, to) = (from?, to?);
    host_write(&from, 0, &pattern(PIXELS, 5))?;
    let shared = allocator.report().total_capacity_bytes;
    let mut external =
        vk::ExternalMemoryImageCreateInfo::default().handle_types(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
    let info = description(vk::ImageTiling::OPTIMAL).push_next(&mut external);
    // SAFETY: a valid description.
    let own = unsafe { device.create_image(&info, None) }?;
    // SAFETY: a live image.
    let requirements = unsafe { device.get_image_memory_requirements(own) };
    let desc = AllocationCreateDesc {
        name: "picture",
        requirements,
        location: MemoryLocation::GpuOnly,
        linear: false,
        allocation_scheme: AllocationScheme::DedicatedImage(own),
    };
    // SAFETY: the scheme's image is live, requires this, and was created for export.
    let memory = unsafe { allocator.allocate(&desc) }?;
    let place = memory.vulkan_memory().ok_or("not Vulkan's")?;
    assert_eq!(place.offset, 0);
    assert_eq!(allocator.report().total_capacity_bytes, shared + requirements.size, "a block of its own");
    // SAFETY: an image without memory, and memory that is dedicated to it.
    unsafe { device.bind_image_memory(own, place.memory, place.offset) }?;
    copy_through(&compute, from.handle(), own, to.handle())?;
    assert!(host_read(&to, 0, PIXELS)? == pattern(PIXELS, 5));
    // SAFETY: the commands have finished.
    unsafe { device.destroy_image(own, None) };
    memory.free()?;
    assert_eq!(allocator.report().total_capacity_bytes, shared);
    Ok(())
}

#[test]
fn an_image_whose_memory_cannot_be_shared_is_refused_before_it_is_created() -> Result {
    let Some(gpu) = open()? else { return Ok(()) };
    let allocator = Allocator::new(&gpu)?;
    let usage = vk::ImageUsageFlags::DEPTH_STENCIL_ATTACHMENT;
    let info = description(vk::ImageTiling::LINEAR).format(vk::Format::D32_SFLOAT).usage(usage);
    // SAFETY: refused.
    match unsafe { allocator.image(&info, MemoryLocation::CpuToGpu) } {
        Ok(_) => support::skip("the driver has linear images of depths"),
        result => {
            assert_says(&refused(result), &["vkGetPhysicalDeviceImageFormatProperties2", "NOT_SUPPORTED"]);
            Ok(())
        }
    }
}
