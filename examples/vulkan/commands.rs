//! Commands for the queue of a Vulkan device: recorded, submitted and waited for.
#![expect(unsafe_code, reason = "Vulkan's functions are unsafe by nature")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "sequences of calls of Vulkan on live objects")]

use ash::vk;
use vkgdr::Vkgdr;
use vkgdr::vulkan::Handles;

/// Submits what `record` records, after all writes of the CPU and before its reads, and waits until it is done.
pub(crate) fn run(
    gpu: &Vkgdr,
    record: impl FnOnce(&ash::Device, vk::CommandBuffer),
) -> Result<(), Box<dyn std::error::Error>> {
    let Handles { device, queue_family, .. } = gpu.vulkan_handles()?;
    let pool_info = vk::CommandPoolCreateInfo::default().queue_family_index(queue_family);
    let once = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
    let (all, host) = (vk::PipelineStageFlags::ALL_COMMANDS, vk::PipelineStageFlags::HOST);
    let barrier = [vk::MemoryBarrier::default()
        .src_access_mask(vk::AccessFlags::MEMORY_WRITE)
        .dst_access_mask(vk::AccessFlags::MEMORY_READ | vk::AccessFlags::MEMORY_WRITE)];
    let none = vk::DependencyFlags::empty();
    // SAFETY: live objects of the lent device; the pool goes once the queue has finished.
    unsafe {
        let pool = device.create_command_pool(&pool_info, None)?;
        let info = vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(1);
        let commands = device.allocate_command_buffers(&info)?;
        device.begin_command_buffer(commands[0], &once)?;
        device.cmd_pipeline_barrier(commands[0], host, all, none, &barrier, &[], &[]);
        record(&device, commands[0]);
        device.cmd_pipeline_barrier(commands[0], all, host, none, &barrier, &[], &[]);
        device.end_command_buffer(commands[0])?;
        let submit = vk::SubmitInfo::default().command_buffers(&commands);
        let done = gpu.with_vulkan_queue(|queue| {
            device.queue_submit(queue, &[submit], vk::Fence::null())?;
            device.queue_wait_idle(queue)
        })?;
        device.destroy_command_pool(pool, None);
        Ok(done?)
    }
}
