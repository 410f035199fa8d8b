//! The queue of Vulkan's shared device: commands on buffers and images, and waits for them.
#![expect(unsafe_code, reason = "records and submits commands on objects that the world keeps alive")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "sequences of calls of Vulkan on live objects")]

use std::time::Duration;

use support::Result;
use vkgdr::Vkgdr;
use vkgdr::ash::{self, vk};
use vkgdr::vulkan::Handles;

/// The time for commands that wait for streams, on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// What a submission waits for, and what it signals: a semaphore and two of its values.
#[derive(Clone, Copy)]
pub(super) struct Signals {
    pub(super) semaphore: vk::Semaphore,
    pub(super) wait: u64,
    pub(super) signal: u64,
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
    pub(super) fn new(gpu: &Vkgdr) -> Result<Self> {
        let Handles { device, queue_family, .. } = gpu.vulkan_handles()?;
        let info = vk::CommandPoolCreateInfo::default().queue_family_index(queue_family);
        // SAFETY: a valid description, of a live device.
        let pool = unsafe { device.create_command_pool(&info, None) }?;
        Ok(Self { gpu: gpu.clone(), device, pool, pending: Vec::new() })
    }

    /// Submits commands, between barriers for the CPU's accesses. What they use must live until [`wait`](Self::wait) returns.
    pub(super) fn submit(
        &mut self,
        signals: Option<Signals>,
        record: impl FnOnce(&ash::Device, vk::CommandBuffer),
    ) -> Result {
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
    pub(super) fn wait(&mut self) -> Result {
        for (fence, commands) in std::mem::take(&mut self.pending) {
            let nanoseconds = u64::try_from(PATIENCE.as_nanos())?;
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
