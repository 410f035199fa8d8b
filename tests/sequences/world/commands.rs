//! Commands of Vulkan's queue on buffers and images.
#![expect(unsafe_code, reason = "records commands on objects that the world keeps alive")]

use std::ops::Range;
use std::sync::Arc;

use support::{Result, pattern};
use vkgdr::ash::{self, vk};
use vkgdr::vulkan::Image;

use super::World;
use super::item::Owner;
use super::queue::{Queue, Signals};
use crate::step::Step;

/// The bytes of a pixel.
const PIXEL: usize = 4;
/// The most bytes of `vkCmdUpdateBuffer`.
const MOST_UPDATED: usize = 65536;

/// A linear image. Its bytes are those of its memory: drivers leave what lies between the rows alone.
#[derive(Debug)]
pub(crate) struct Picture {
    pub(super) image: Image,
    width: u32,
    height: u32,
}

impl Picture {
    pub(super) fn description(width: u32, height: u32) -> vk::ImageCreateInfo<'static> {
        vk::ImageCreateInfo::default()
            .image_type(vk::ImageType::TYPE_2D)
            .format(vk::Format::R8G8B8A8_UNORM)
            .extent(vk::Extent3D { width, height, depth: 1 })
            .mip_levels(1)
            .array_layers(1)
            .samples(vk::SampleCountFlags::TYPE_1)
            .tiling(vk::ImageTiling::LINEAR)
            .usage(vk::ImageUsageFlags::TRANSFER_SRC | vk::ImageUsageFlags::TRANSFER_DST)
    }

    pub(super) fn new(image: Image, width: u32, height: u32) -> Self {
        Self { image, width, height }
    }

    /// The bytes of each row of a part, in the image and in the buffer.
    fn rows(&self, part: Part) -> Result<Vec<(Range<usize>, Range<usize>)>> {
        let layout = self.image.layout(0, 0).ok_or("a linear image has a layout")?;
        let (first, pitch) = (usize::try_from(layout.offset)?, usize::try_from(layout.row_pitch)?);
        let len = part.width as usize * PIXEL;
        let row = |y| {
            let (image, buffer) = (first + y * pitch, part.offset + y * len);
            (image..image + len, buffer..buffer + len)
        };
        Ok((0..part.height as usize).map(row).collect())
    }

    /// A part that fits a buffer of `len` bytes.
    fn part(&self, step: Step, len: usize) -> Option<Part> {
        let offset = step.span.whole_units(len.max(PIXEL), PIXEL).start;
        let pixels = u32::try_from(len.checked_sub(offset)? / PIXEL).ok()?;
        let width = (1 + u32::from(step.seed) % self.width).min(pixels);
        let height = self.height.min(pixels.checked_div(width)?);
        Some(Part { width, height, offset })
    }

    /// The barrier before commands, from a layout to the general one.
    fn barrier(&self, from: vk::ImageLayout) -> vk::ImageMemoryBarrier<'static> {
        let access = vk::AccessFlags::MEMORY_READ | vk::AccessFlags::MEMORY_WRITE;
        let range = vk::ImageSubresourceRange::default().aspect_mask(vk::ImageAspectFlags::COLOR);
        vk::ImageMemoryBarrier::default()
            .old_layout(from)
            .new_layout(vk::ImageLayout::GENERAL)
            .src_access_mask(access)
            .dst_access_mask(access)
            .src_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
            .dst_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
            .image(self.image.handle())
            .subresource_range(range.level_count(1).layer_count(1))
    }
}

/// Records a barrier.
fn change(device: &ash::Device, commands: vk::CommandBuffer, barrier: vk::ImageMemoryBarrier<'_>) {
    let (all, none) = (vk::PipelineStageFlags::ALL_COMMANDS, vk::DependencyFlags::empty());
    // SAFETY: recording into a command buffer that has begun, with a live image.
    unsafe { device.cmd_pipeline_barrier(commands, all, all, none, &[], &[], &[barrier]) };
}

/// A part of an image from its first pixel on, whose rows are next to each other in a buffer.
#[derive(Clone, Copy)]
struct Part {
    width: u32,
    height: u32,
    /// In bytes in the buffer.
    offset: usize,
}

impl Part {
    fn region(self) -> [vk::BufferImageCopy; 1] {
        let layers = vk::ImageSubresourceLayers::default().aspect_mask(vk::ImageAspectFlags::COLOR).layer_count(1);
        let extent = vk::Extent3D { width: self.width, height: self.height, depth: 1 };
        let region = vk::BufferImageCopy::default().buffer_offset(self.offset as u64);
        [region.image_subresource(layers).image_extent(extent)]
    }
}

impl World {
    /// Waits for the world's commands, after which their buffers, images and semaphores may be destroyed.
    pub(super) fn wait_for_queue(&mut self) -> Result {
        self.queue.as_mut().map_or(Ok(()), Queue::wait)
    }

    /// Changes a new image to its layout. Nothing may write to the image earlier.
    pub(super) fn prepare_image(&mut self, picture: &Picture) -> Result {
        let barrier = picture.barrier(vk::ImageLayout::UNDEFINED);
        let mut queue = self.queue.take().map_or_else(|| Queue::new(&self.shared.gpu), Ok)?;
        queue.submit(None, |device, commands| change(device, commands, barrier))?;
        queue.wait()?;
        self.queue = Some(queue);
        Ok(())
    }

    /// Submits commands on items, whose new bytes are noted already. Their order with streams is by a semaphore if there is one,
    /// else by the CPU's waits.
    fn command(&mut self, step: Step, items: &[usize], record: impl FnOnce(&ash::Device, vk::CommandBuffer)) -> Result {
        let mut queue = self.queue.take().map_or_else(|| Queue::new(&self.shared.gpu), Ok)?;
        let done = if self.semaphores.is_empty() || step.choice.is_multiple_of(3) {
            self.command_and_wait(&mut queue, items, record)
        } else {
            self.command_in_order(&mut queue, step, items, record)
        };
        self.queue = Some(queue);
        done
    }

    fn command_and_wait(
        &mut self,
        queue: &mut Queue,
        items: &[usize],
        record: impl FnOnce(&ash::Device, vk::CommandBuffer),
    ) -> Result {
        for &index in items {
            self.wait_for(index)?;
            self.items[index].flush()?;
        }
        queue.submit(None, record)?;
        queue.wait()
    }

    fn command_in_order(
        &mut self,
        queue: &mut Queue,
        step: Step,
        items: &[usize],
        record: impl FnOnce(&ash::Device, vk::CommandBuffer),
    ) -> Result {
        let chosen = usize::from(step.seed) % self.semaphores.len();
        let site = self.semaphores[chosen].site;
        let number = self.streams.of(site, step.choice);
        for &index in items {
            self.ready_for(number, index)?;
        }
        let (stream, slot) = (self.streams.get(number), &mut self.semaphores[chosen]);
        let (wait, signal) = (slot.signal_on(&stream)?, slot.next());
        queue.submit(Some(Signals { semaphore: slot.semaphore.handle(), wait, signal }), record)?;
        slot.semaphore.wait_on(&stream, signal)?;
        for &index in items {
            self.began(number, index)?;
        }
        // A release waits for the memory's own context only.
        let has_foreign = items.iter().any(|&index| self.items[index].site != site);
        if has_foreign { self.wait_for_stream(number) } else { Ok(()) }
    }

    /// The first item from a number on, cyclically, that commands can use so.
    fn find(&self, number: u8, is_usable: impl Fn(&Owner) -> bool) -> Option<usize> {
        let count = self.items.len();
        (0..count).map(|shift| (usize::from(number) + shift) % count).find(|&at| is_usable(&self.items[at].owner))
    }

    /// Fills a part of a buffer, or writes bytes of the command buffer to it.
    pub(super) fn queue_fill(&mut self, step: Step) -> Result<bool> {
        let is_usable = |owner: &Owner| matches!(owner, Owner::Buffer(buffer) if buffer.len() >= 4);
        let Some(index) = self.find(step.first, is_usable) else { return Ok(false) };
        let item = &self.items[index];
        let Owner::Buffer(buffer) = &item.owner else { return Ok(false) };
        let (handle, range) = (buffer.handle(), step.span.whole_units(item.len(), 4));
        let start = range.start as u64;
        if step.choice.is_multiple_of(2) {
            let value = u32::from(step.seed) << 8 | u32::from(step.second);
            item.note(&range, &value.to_ne_bytes().repeat(range.len() / 4));
            // SAFETY: whole words of a live buffer.
            let fill = |device: &ash::Device, commands| unsafe {
                device.cmd_fill_buffer(commands, handle, start, range.len() as u64, value);
            };
            self.command(step, &[index], fill)?;
        } else {
            let new = pattern(range.len().min(MOST_UPDATED), step.seed.into());
            item.note(&(range.start..range.start + new.len()), &new);
            // SAFETY: as above, no more than a command may have.
            let update = |device: &ash::Device, commands| unsafe {
                device.cmd_update_buffer(commands, handle, start, &new);
            };
            self.command(step, &[index], update)?;
        }
        Ok(true)
    }

    /// Copies between a buffer and another one or an image.
    pub(super) fn queue_copy(&mut self, step: Step) -> Result<bool> {
        let is_vulkans = |owner: &Owner| matches!(owner, Owner::Buffer(_) | Owner::Image(_));
        let Some(index) = self.find(step.first, is_vulkans) else { return Ok(false) };
        let Some(source) = self.find(step.second, is_vulkans) else { return Ok(false) };
        let (to, from) = (&self.items[index], &self.items[source]);
        if Arc::ptr_eq(&to.bytes, &from.bytes) {
            return Ok(false);
        }
        let both = [index, source];
        match (&to.owner, &from.owner) {
            (Owner::Buffer(target), Owner::Buffer(origin)) => {
                let common = to.len().min(from.len());
                let (range, shift) = (step.span.within(common), to.len() - common);
                to.note(&(range.start + shift..range.end + shift), &from.expected(&range));
                let (target, origin) = (target.handle(), origin.handle());
                let (src_offset, dst_offset) = (range.start as u64, (range.start + shift) as u64);
                let copy = [vk::BufferCopy { src_offset, dst_offset, size: range.len() as u64 }];
                // SAFETY: ranges of live buffers.
                self.command(step, &both, |device, commands| unsafe {
                    device.cmd_copy_buffer(commands, origin, target, &copy);
                })?;
            }
            (Owner::Image(picture), Owner::Buffer(buffer)) => {
                let Some(part) = picture.part(step, from.len()) else { return Ok(false) };
                for (in_image, in_buffer) in picture.rows(part)? {
                    to.note(&in_image, &from.expected(&in_buffer));
                }
                self.copy_image(step, both, part, buffer.handle(), index)?;
            }
            (Owner::Buffer(buffer), Owner::Image(picture)) => {
                let Some(part) = picture.part(step, to.len()) else { return Ok(false) };
                for (in_image, in_buffer) in picture.rows(part)? {
                    to.note(&in_buffer, &from.expected(&in_image));
                }
                self.copy_image(step, both, part, buffer.handle(), source)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Copies a part of the image at `index` from or to a buffer, the first of `items` being the target.
    fn copy_image(&mut self, step: Step, items: [usize; 2], part: Part, buffer: vk::Buffer, index: usize) -> Result {
        let Owner::Image(picture) = &self.items[index].owner else { return Err("not an image".into()) };
        let (image, region, layout) = (picture.image.handle(), part.region(), vk::ImageLayout::GENERAL);
        let barrier = picture.barrier(layout);
        self.command(step, &items, |device, commands| {
            change(device, commands, barrier);
            if index == items[0] {
                // SAFETY: a part of a live image, and as many bytes of a live buffer.
                unsafe { device.cmd_copy_buffer_to_image(commands, buffer, image, layout, &region) };
            } else {
                // SAFETY: as above.
                unsafe { device.cmd_copy_image_to_buffer(commands, image, layout, buffer, &region) };
            }
        })
    }
}
