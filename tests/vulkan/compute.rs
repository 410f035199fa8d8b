//! A compute shader and copies on the queue of a Vulkan device.
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "sequences of calls of Vulkan on live objects")]

use std::slice;

use support::Result;
use vkgdr::ash::{self, vk};
use vkgdr::vulkan::Handles;

/// `shaders/step.comp`.
const STEP: &[u8] = include_bytes!("shaders/step.spv");
/// Its local size.
const GROUP: u32 = 64;

/// The shader's objects on a device, destroyed on drop.
pub(crate) struct Compute {
    device: ash::Device,
    queue: vk::Queue,
    module: vk::ShaderModule,
    set_layout: vk::DescriptorSetLayout,
    layout: vk::PipelineLayout,
    pipeline: vk::Pipeline,
    descriptors: vk::DescriptorPool,
    set: vk::DescriptorSet,
    commands: vk::CommandPool,
}

impl Compute {
    /// With the first queue of the handles, which only this thread uses.
    pub(crate) fn new(handles: &Handles) -> Result<Self> {
        let device = handles.device.clone();
        let code = ash::util::read_spv(&mut std::io::Cursor::new(STEP))?;
        let binding = vk::DescriptorSetLayoutBinding::default()
            .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
            .descriptor_count(1)
            .stage_flags(vk::ShaderStageFlags::COMPUTE);
        let set_info = vk::DescriptorSetLayoutCreateInfo::default().bindings(slice::from_ref(&binding));
        let pushed = vk::PushConstantRange::default().stage_flags(vk::ShaderStageFlags::COMPUTE).size(8);
        let size = vk::DescriptorPoolSize::default().ty(vk::DescriptorType::STORAGE_BUFFER).descriptor_count(1);
        let pool_info = vk::DescriptorPoolCreateInfo::default().max_sets(1).pool_sizes(slice::from_ref(&size));
        let commands_info = vk::CommandPoolCreateInfo::default().queue_family_index(handles.queue_family);
        // SAFETY: valid create infos, of a live device.
        unsafe {
            let module = device.create_shader_module(&vk::ShaderModuleCreateInfo::default().code(&code), None)?;
            let set_layout = device.create_descriptor_set_layout(&set_info, None)?;
            let layout_info = vk::PipelineLayoutCreateInfo::default()
                .set_layouts(slice::from_ref(&set_layout))
                .push_constant_ranges(slice::from_ref(&pushed));
            let layout = device.create_pipeline_layout(&layout_info, None)?;
            let stage = vk::PipelineShaderStageCreateInfo::default()
                .stage(vk::ShaderStageFlags::COMPUTE)
                .module(module)
                .name(c"main");
            let info = vk::ComputePipelineCreateInfo::default().stage(stage).layout(layout);
            let pipelines = device.create_compute_pipelines(vk::PipelineCache::null(), slice::from_ref(&info), None);
            let pipeline = pipelines.map_err(|(_, error)| error)?[0];
            let descriptors = device.create_descriptor_pool(&pool_info, None)?;
            let set_info = vk::DescriptorSetAllocateInfo::default()
                .descriptor_pool(descriptors)
                .set_layouts(slice::from_ref(&set_layout));
            let set = device.allocate_descriptor_sets(&set_info)?[0];
            let commands = device.create_command_pool(&commands_info, None)?;
            let queue = device.get_device_queue(handles.queue_family, 0);
            Ok(Self { device, queue, module, set_layout, layout, pipeline, descriptors, set, commands })
        }
    }

    /// Runs the shader on `count` words at the start of a buffer, and waits.
    pub(crate) fn step(&self, buffer: vk::Buffer, count: u32, addend: u32) -> Result {
        let info = vk::DescriptorBufferInfo::default().buffer(buffer).range(vk::WHOLE_SIZE);
        let write = vk::WriteDescriptorSet::default()
            .dst_set(self.set)
            .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
            .buffer_info(slice::from_ref(&info));
        let arguments: Vec<u8> = [count, addend].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let point = vk::PipelineBindPoint::COMPUTE;
        // SAFETY: the set is in use by no command, and the buffer is live.
        unsafe { self.device.update_descriptor_sets(&[write], &[]) };
        self.submit(|device, commands| {
            // SAFETY: recording into a command buffer that has begun, with live objects.
            unsafe {
                device.cmd_bind_pipeline(commands, point, self.pipeline);
                device.cmd_bind_descriptor_sets(commands, point, self.layout, 0, &[self.set], &[]);
                device.cmd_push_constants(commands, self.layout, vk::ShaderStageFlags::COMPUTE, 0, &arguments);
                device.cmd_dispatch(commands, count.div_ceil(GROUP), 1, 1);
            }
        })
    }

    /// Submits commands, between barriers for the host's accesses, and waits for them.
    pub(crate) fn submit(&self, record: impl FnOnce(&ash::Device, vk::CommandBuffer)) -> Result {
        let device = &self.device;
        let info = vk::CommandBufferAllocateInfo::default().command_pool(self.commands).command_buffer_count(1);
        let stages = vk::PipelineStageFlags::ALL_COMMANDS;
        let all = vk::AccessFlags::MEMORY_READ | vk::AccessFlags::MEMORY_WRITE;
        let host = vk::AccessFlags::HOST_READ | vk::AccessFlags::HOST_WRITE;
        let before = [vk::MemoryBarrier::default().src_access_mask(host).dst_access_mask(all)];
        let after = [vk::MemoryBarrier::default().src_access_mask(all).dst_access_mask(host)];
        let none = vk::DependencyFlags::empty();
        // SAFETY: valid infos of a live device; the queue is this thread's alone, and the wait ends all use.
        unsafe {
            let commands = device.allocate_command_buffers(&info)?;
            let first = commands[0];
            let once = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
            device.begin_command_buffer(first, &once)?;
            device.cmd_pipeline_barrier(first, vk::PipelineStageFlags::HOST, stages, none, &before, &[], &[]);
            record(device, first);
            device.cmd_pipeline_barrier(first, stages, vk::PipelineStageFlags::HOST, none, &after, &[], &[]);
            device.end_command_buffer(first)?;
            let submit = vk::SubmitInfo::default().command_buffers(&commands);
            let fence = device.create_fence(&vk::FenceCreateInfo::default(), None)?;
            let waited = device
                .queue_submit(self.queue, &[submit], fence)
                .and_then(|()| device.wait_for_fences(&[fence], true, u64::MAX));
            device.destroy_fence(fence, None);
            device.free_command_buffers(self.commands, &commands);
            Ok(waited?)
        }
    }
}

impl Drop for Compute {
    fn drop(&mut self) {
        let device = &self.device;
        // SAFETY: this value's own objects; every submission was waited for.
        unsafe {
            device.destroy_command_pool(self.commands, None);
            device.destroy_descriptor_pool(self.descriptors, None);
            device.destroy_pipeline(self.pipeline, None);
            device.destroy_pipeline_layout(self.layout, None);
            device.destroy_descriptor_set_layout(self.set_layout, None);
            device.destroy_shader_module(self.module, None);
        }
    }
}
