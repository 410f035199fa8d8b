//! The queue of Vulkan's shared device: commands on buffers and images, and waits for them.
#![expect(unsafe_code, reason = "records and submits commands on objects that the world keeps alive")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "sequences of calls of Vulkan on live objects")]

use std::sync::Arc;
use std::time::Duration;

use support::step::Step;
use support::{Result, pattern};
use vkgdr::Vkgdr;
use vkgdr::ash::{self, vk};
use vkgdr::vulkan::Handles;

use super::World;
use super::item::Owner;

/// The time for commands that wait for streams, on a busy machine.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);

/// The most bytes of `vkCmdUpdateBuffer`.
const MOST_UPDATED: usize = 65536;

/// What a submission waits for, and what it signals: a semaphore and two of its values.
#[derive(Clone, Copy)]
struct Signals {
    semaphore: vk::Semaphore,
    wait: u64,
    signal: u64,
}

/// The queue, which all worlds share, with the commands of one world.
pub(super) struct Queue {
    gpu: Vkgdr,
    device: ash::Device,
    pool: vk::CommandPool,
    /// Submissions that were not waited for.
    pending: Vec<(vk::Fence, vk::CommandBuffer)>,
}

impl Queue {
    fn new(gpu: &Vkgdr) -> Result<Self> {
        let Handles { device, queue_family, .. } = gpu.vulkan_handles()?;
        let info = vk::CommandPoolCreateInfo::default().queue_family_index(queue_family);
        // SAFETY: a valid description, of a live device.
        let pool = unsafe { device.create_command_pool(&info, None) }?;
        Ok(Self { gpu: gpu.clone(), device, pool, pending: Vec::new() })
    }

    /// Submits commands, between barriers for the CPU's accesses. What they use must live until [`wait`](Self::wait) returns.
    fn submit(&mut self, signals: Option<Signals>, record: impl FnOnce(&ash::Device, vk::CommandBuffer)) -> Result {
        let device = &self.device;
        let info = vk::CommandBufferAllocateInfo::default().command_pool(self.pool).command_buffer_count(1);
        let (host, all) = (vk::PipelineStageFlags::HOST, vk::PipelineStageFlags::ALL_COMMANDS);
        let commands_access = vk::AccessFlags::MEMORY_READ | vk::AccessFlags::MEMORY_WRITE;
        let host_access = vk::AccessFlags::HOST_READ | vk::AccessFlags::HOST_WRITE;
        let before = [vk::MemoryBarrier::default().src_access_mask(host_access).dst_access_mask(commands_access)];
        let after = [vk::MemoryBarrier::default().src_access_mask(commands_access).dst_access_mask(host_access)];
        let none = vk::DependencyFlags::empty();
        let once = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: valid descriptions, and a command buffer of this world's pool, which only this thread uses.
        let (commands, fence) = unsafe {
            let commands = device.allocate_command_buffers(&info)?[0];
            device.begin_command_buffer(commands, &once)?;
            device.cmd_pipeline_barrier(commands, host, all, none, &before, &[], &[]);
            record(device, commands);
            device.cmd_pipeline_barrier(commands, all, host, none, &after, &[], &[]);
            device.end_command_buffer(commands)?;
            (commands, device.create_fence(&vk::FenceCreateInfo::default(), None)?)
        };
        self.pending.push((fence, commands));
        let commands = [commands];
        let (handles, waits, values);
        let mut timeline;
        let mut batch = vk::SubmitInfo::default().command_buffers(&commands);
        if let Some(Signals { semaphore, wait, signal }) = signals {
            (handles, waits, values) = ([semaphore], [wait], [signal]);
            timeline = vk::TimelineSemaphoreSubmitInfo::default()
                .wait_semaphore_values(&waits)
                .signal_semaphore_values(&values);
            batch = batch
                .wait_semaphores(&handles)
                .wait_dst_stage_mask(&[vk::PipelineStageFlags::ALL_COMMANDS])
                .signal_semaphores(&handles)
                .push_next(&mut timeline);
        }
        // SAFETY: the turn with the queue is this thread's; the structures live during the call, the rest until the wait.
        let submitted = self.gpu.with_vulkan_queue(|queue| unsafe { device.queue_submit(queue, &[batch], fence) })?;
        Ok(submitted?)
    }

    /// Waits for all submissions.
    fn wait(&mut self) -> Result {
        for (fence, commands) in std::mem::take(&mut self.pending) {
            let nanoseconds = u64::try_from(TIMEOUT.as_nanos())?;
            // SAFETY: live objects of this world.
            unsafe { self.device.wait_for_fences(&[fence], true, nanoseconds) }?;
            // SAFETY: the commands have finished.
            unsafe {
                self.device.destroy_fence(fence, None);
                self.device.free_command_buffers(self.pool, &[commands]);
            }
        }
        Ok(())
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // After a failed step, commands may wait for ever: then the pool stays.
        if self.wait().is_ok() {
            // SAFETY: all commands have finished.
            unsafe { self.device.destroy_command_pool(self.pool, None) };
        }
    }
}

impl World {
    /// Waits for the world's commands, after which their buffers and semaphores may be destroyed.
    pub(super) fn wait_for_queue(&mut self) -> Result {
        self.queue.as_mut().map_or(Ok(()), Queue::wait)
    }

    /// Submits commands on items, whose new bytes are noted already. Their order with streams is by a semaphore if there is one,
    /// else by the CPU's waits.
    fn command(&mut self, step: Step, items: &[usize], record: impl FnOnce(&ash::Device, vk::CommandBuffer)) -> Result {
        let mut queue = self.queue.take().map_or_else(|| Queue::new(&self.shared.gpu), Ok)?;
        if self.semaphores.is_empty() || step.choice.is_multiple_of(3) {
            for &index in items {
                self.wait_for(index)?;
                self.items[index].flush()?;
            }
            queue.submit(None, record)?;
            queue.wait()?;
            self.queue = Some(queue);
            return Ok(());
        }
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
        self.queue = Some(queue);
        for &index in items {
            self.began(number, index);
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

    /// Copies from a buffer to another one.
    pub(super) fn queue_copy(&mut self, step: Step) -> Result<bool> {
        let is_buffer = |owner: &Owner| matches!(owner, Owner::Buffer(_));
        let (index, source) = (self.find(step.first, is_buffer), self.find(step.second, is_buffer));
        let (Some(index), Some(source)) = (index, source) else { return Ok(false) };
        let (to, from) = (&self.items[index], &self.items[source]);
        let (Owner::Buffer(target), Owner::Buffer(origin)) = (&to.owner, &from.owner) else { return Ok(false) };
        if Arc::ptr_eq(&to.bytes, &from.bytes) {
            return Ok(false);
        }
        let common = to.len().min(from.len());
        let (range, shift) = (step.span.within(common), to.len() - common);
        to.note(&(range.start + shift..range.end + shift), &from.expected(&range));
        let (target, origin) = (target.handle(), origin.handle());
        let (src_offset, dst_offset) = (range.start as u64, (range.start + shift) as u64);
        let copy = [vk::BufferCopy { src_offset, dst_offset, size: range.len() as u64 }];
        // SAFETY: ranges of live buffers.
        self.command(step, &[index, source], |device, commands| unsafe {
            device.cmd_copy_buffer(commands, origin, target, &copy);
        })?;
        Ok(true)
    }
}
