//! A program whose Vulkan device vulkano makes: this crate allocates on that device, vulkano's commands use the buffers.
#![expect(unsafe_code, reason = "hands over the handles of live objects, and runs a shader and a kernel")]

use std::slice;
use std::sync::Arc;

use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use support::{Result, device_read, host_read, pattern};
use vkgdr::ash::{self, vk};
use vkgdr::vulkan::{AllocationSizes, Allocator, AllocatorOptions, Handles, MemoryLocation};
use vkgdr::{OpenFlags, Vkgdr};
use vulkano::buffer::sys::RawBuffer;
use vulkano::buffer::{Buffer, BufferCreateInfo, BufferUsage, Subbuffer};
use vulkano::command_buffer::allocator::StandardCommandBufferAllocator;
use vulkano::command_buffer::{AutoCommandBufferBuilder, CommandBufferUsage};
use vulkano::descriptor_set::allocator::StandardDescriptorSetAllocator;
use vulkano::descriptor_set::{DescriptorSet, WriteDescriptorSet};
use vulkano::device::{Device, DeviceCreateInfo, DeviceExtensions, Queue, QueueCreateInfo, QueueFlags};
use vulkano::instance::{Instance, InstanceCreateInfo};
use vulkano::memory::ExternalMemoryHandleTypes;
use vulkano::pipeline::compute::ComputePipelineCreateInfo;
use vulkano::pipeline::layout::PipelineDescriptorSetLayoutCreateInfo;
use vulkano::pipeline::{ComputePipeline, Pipeline, PipelineBindPoint, PipelineLayout, PipelineShaderStageCreateInfo};
use vulkano::shader::{ShaderModule, ShaderModuleCreateInfo};
use vulkano::sync::{self, GpuFuture};
use vulkano::{VulkanLibrary, VulkanObject};

/// words[i] = 3 * words[i] + addend.
const SHADER: &[u8] = include_bytes!("../vulkan/shaders/step.spv");
/// Its local size.
const GROUP: u32 = 64;
/// words[i] = 5 * words[i] + addend.
const KERNEL: &str = include_str!("../vulkan/step.ptx");

/// A program's vulkano objects: its device and its queue.
struct Program {
    device: Arc<Device>,
    queue: Arc<Queue>,
}

impl Program {
    /// On the physical device with a UUID.
    fn new(uuid: [u8; 16]) -> Result<Self> {
        let instance = Instance::new(VulkanLibrary::new()?, InstanceCreateInfo::default())?;
        let mut devices = instance.enumerate_physical_devices()?;
        let physical = devices.find(|device| device.properties().device_uuid == Some(uuid)).ok_or("no such device")?;
        let families = physical.queue_family_properties();
        let can_compute = |flags: QueueFlags| flags.contains(QueueFlags::COMPUTE);
        let family = families.iter().position(|found| can_compute(found.queue_flags)).ok_or("no such queue")?;
        let (device, mut queues) = Device::new(
            physical,
            DeviceCreateInfo {
                queue_create_infos: vec![QueueCreateInfo {
                    queue_family_index: u32::try_from(family)?,
                    ..QueueCreateInfo::default()
                }],
                enabled_extensions: DeviceExtensions { khr_external_memory_fd: true, ..DeviceExtensions::empty() },
                ..DeviceCreateInfo::default()
            },
        )?;
        Ok(Self { device, queue: queues.next().ok_or("no queue")? })
    }

    fn handles(&self) -> Result<Handles> {
        let physical = self.device.physical_device();
        // SAFETY: the loader's initialisers may run. vulkano keeps it loaded.
        let entry = unsafe { ash::Entry::load() }?;
        let (find, family) = (entry.static_fn().get_instance_proc_addr, self.queue.queue_family_index());
        let (instance, physical, device) = (physical.instance().handle(), physical.handle(), self.device.handle());
        // SAFETY: live handles that belong together.
        Ok(unsafe { Handles::from_raw(find, instance, physical, device, family) })
    }

    /// A buffer of this crate as vulkano's commands take it.
    ///
    /// # Safety
    ///
    /// The buffer must have been created by `info`, and live as long as the result.
    unsafe fn adopt(&self, buffer: vk::Buffer, info: &vk::BufferCreateInfo<'_>) -> Subbuffer<[u8]> {
        let info = BufferCreateInfo {
            size: info.size,
            usage: BufferUsage::from(info.usage),
            external_memory_handle_types: ExternalMemoryHandleTypes::OPAQUE_FD,
            ..BufferCreateInfo::default()
        };
        // SAFETY: by this function's contract.
        let raw = unsafe { RawBuffer::from_handle_borrowed(self.device.clone(), buffer, info) };
        // SAFETY: the allocator has bound it.
        let buffer: Buffer = unsafe { raw.assume_bound() };
        Subbuffer::new(Arc::new(buffer))
    }

    /// Runs the shader on a buffer, and waits.
    fn step(&self, buffer: Subbuffer<[u8]>, count: u32, addend: u32) -> Result {
        let words = ash::util::read_spv(&mut std::io::Cursor::new(SHADER))?;
        // SAFETY: valid code.
        let module = unsafe { ShaderModule::new(self.device.clone(), ShaderModuleCreateInfo::new(&words)) }?;
        let stage = PipelineShaderStageCreateInfo::new(module.entry_point("main").ok_or("no main")?);
        let layout = PipelineDescriptorSetLayoutCreateInfo::from_stages(slice::from_ref(&stage));
        let layout =
            PipelineLayout::new(self.device.clone(), layout.into_pipeline_layout_create_info(self.device.clone())?)?;
        let info = ComputePipelineCreateInfo::stage_layout(stage, layout.clone());
        let pipeline = ComputePipeline::new(self.device.clone(), None, info)?;
        let sets = Arc::new(StandardDescriptorSetAllocator::new(self.device.clone(), Default::default()));
        let set_layout = pipeline.layout().set_layouts()[0].clone();
        let set = DescriptorSet::new(sets, set_layout, [WriteDescriptorSet::buffer(0, buffer)], [])?;
        let commands = Arc::new(StandardCommandBufferAllocator::new(self.device.clone(), Default::default()));
        let family = self.queue.queue_family_index();
        let mut builder = AutoCommandBufferBuilder::primary(commands, family, CommandBufferUsage::OneTimeSubmit)?;
        builder
            .bind_pipeline_compute(pipeline)?
            .bind_descriptor_sets(PipelineBindPoint::Compute, layout.clone(), 0, set)?
            .push_constants(layout, 0, [count, addend])?;
        // SAFETY: the shader stays within `count` words.
        unsafe { builder.dispatch([count.div_ceil(GROUP), 1, 1]) }?;
        let future = sync::now(self.device.clone()).then_execute(self.queue.clone(), builder.build()?)?;
        future.then_signal_fence_and_flush()?.wait(None)?;
        Ok(())
    }
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().copied().map(u32::from_ne_bytes).collect()
}

/// A GPU that both CUDA and Vulkan have; none, with a message, for others.
fn uuid() -> Result<Option<[u8; 16]>> {
    let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
    match gpu.vulkan_handles() {
        Ok(_) => Ok(Some(gpu.uuid())),
        Err(error) => {
            eprintln!("skipped: {error}");
            Ok(None)
        }
    }
}

#[test]
fn a_buffer_on_vulkanos_device_is_written_by_the_cpu_a_shader_and_a_kernel() -> Result {
    let Some(uuid) = uuid()? else { return Ok(()) };
    let program = Program::new(uuid)?;
    // SAFETY: the program's device is destroyed after everything on it.
    let gpu = unsafe { Vkgdr::open_on(&program.handles()?, OpenFlags::empty()) }?;
    let context = CudaContext::new(0)?;
    let kernel = context.load_module(Ptx::from_src(KERNEL))?.load_function("step")?;
    let stream = context.new_stream()?;
    let options = AllocatorOptions::default().sizes(AllocationSizes::new(4 << 20, 4 << 20));
    let allocator = Allocator::with_options(&gpu, options)?;
    let mut live = Vec::new();
    for (seed, count) in [(1, 1_u32), (2, 1000), (3, 65), (4, 2_000_000)] {
        let (before, usage) = (pattern(4 * count as usize, seed), vk::BufferUsageFlags::STORAGE_BUFFER);
        let info = vk::BufferCreateInfo::default().size(4 * u64::from(count)).usage(usage);
        // SAFETY: a valid description; vulkano's commands are waited for.
        let shared = unsafe { allocator.buffer(&info, MemoryLocation::CpuToGpu) }?;
        shared.write(0, &before)?;
        shared.flush(..)?;
        // SAFETY: created so just now, and dropped later than the commands.
        program.step(unsafe { program.adopt(shared.handle(), &info) }, count, 7)?;
        let words_of_shared = shared.view::<u32>(&stream)?;
        let mut launch = stream.launch_builder(&kernel);
        launch.arg(&words_of_shared).arg(&count).arg(&9_u32);
        // SAFETY: the kernel stays within `count` words.
        unsafe { launch.launch(LaunchConfig::for_num_elems(count)) }?;
        stream.synchronize()?;
        let stepped = |word: u32| word.wrapping_mul(3).wrapping_add(7).wrapping_mul(5).wrapping_add(9);
        let expected: Vec<u32> = words(&before).into_iter().map(stepped).collect();
        assert!(words(&host_read(&shared, 0, before.len())?) == expected, "{count} words for the CPU");
        assert!(words(&device_read(shared.device_ptr(), before.len())) == expected, "{count} words for CUDA");
        live.push(shared);
    }
    Ok(())
}
