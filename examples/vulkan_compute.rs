//! A Vulkan compute shader and a CUDA kernel take turns on one buffer, which the CPU writes and reads through a pointer.
//!
//! The shader is `vulkan/step.comp`, the kernel `vulkan/step.cu`. Both are called on the same `vulkan::Buffer`: Vulkan by its
//! `VkBuffer`, CUDA by its device address. The example also runs on the simulated driver.
//!
//! ```text
//! $ cargo run --example vulkan_compute
//! GPU: Simulated CUDA device (llvmpipe (LLVM 15.0.6, 256 bits))
//! 40000 bytes: VkBuffer 0x55f695a01480, CUDA 0x7fdc33fff000, CPU 0x7fdc53fff000
//! after 3 rounds of Vulkan and CUDA, 10000 numbers are right, the last is 149985
//! ```
#![expect(unsafe_code, reason = "Vulkan's functions and launching a kernel are unsafe by nature")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "sequences of calls of Vulkan on live objects")]

#[path = "vulkan/commands.rs"]
mod commands;

use std::error::Error;
use std::process::ExitCode;
use std::slice;

use ash::vk::{self, Handle};
use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use vkgdr::vulkan::{Allocator, Handles, MemoryLocation};
use vkgdr::{OpenFlags, Vkgdr};

/// The numbers in the buffer.
const N: u16 = 10_000;
const ROUNDS: usize = 3;
/// The local size of the shader.
const GROUP: u32 = 64;
const COMPUTE: vk::ShaderStageFlags = vk::ShaderStageFlags::COMPUTE;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vulkan_compute: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
    println!("GPU: {}", gpu.name());
    let handles = match gpu.vulkan_handles() {
        Ok(handles) => handles,
        Err(error) => {
            println!("without Vulkan there is nothing to show: {error}");
            return Ok(());
        }
    };
    let allocator = Allocator::new(&gpu)?;
    let bytes = usize::from(N) * size_of::<f32>();
    let info = vk::BufferCreateInfo::default().size(bytes as u64).usage(vk::BufferUsageFlags::STORAGE_BUFFER);
    // SAFETY: a valid description; every submission is waited for.
    let mut numbers = unsafe { allocator.buffer(&info, MemoryLocation::CpuToGpu) }?;
    let host = numbers.host_ptr().ok_or("the CPU does not see the buffer")?;
    let vulkan = numbers.handle();
    println!("{bytes} bytes: VkBuffer {:#x}, CUDA {:#x}, CPU {host:p}", vulkan.as_raw(), numbers.device_ptr());

    let first: Vec<f32> = (0..N).map(f32::from).collect();
    numbers.write(0, &first)?;
    numbers.flush(..)?;

    let shader = Shader::new(&handles, vulkan)?;
    let context = CudaContext::new(0)?;
    let kernel = context.load_module(Ptx::from_src(include_str!("vulkan/step.ptx")))?.load_function("add_index")?;
    let stream = context.new_stream()?;
    let n = u32::from(N);
    for _ in 0..ROUNDS {
        // Twice each number, by Vulkan.
        commands::run(&gpu, |device, commands| shader.record(device, commands, n))?;
        // Plus its index, by CUDA.
        let mut view = numbers.view_mut::<f32>(&stream)?;
        let mut launch = stream.launch_builder(&kernel);
        launch.arg(&mut view).arg(&n);
        // SAFETY: the kernel stays within `n` numbers.
        unsafe { launch.launch(LaunchConfig::for_num_elems(n)) }?;
        stream.synchronize()?;
    }

    numbers.invalidate(..)?;
    let mut found = vec![0_f32; usize::from(N)];
    numbers.read(0, &mut found)?;
    let expected = |first: &f32| (0..ROUNDS).fold(*first, |number, _| 2.0 * number + first);
    match first.iter().zip(&found).find(|(first, found)| expected(first).to_bits() != found.to_bits()) {
        Some((first, found)) => Err(format!("{first} became {found}, not {}", expected(first)).into()),
        None => {
            let last = found[found.len() - 1];
            println!("after {ROUNDS} rounds of Vulkan and CUDA, {N} numbers are right, the last is {last}");
            Ok(())
        }
    }
}

/// The pipeline of the shader, with one buffer.
struct Shader {
    device: ash::Device,
    module: vk::ShaderModule,
    set_layout: vk::DescriptorSetLayout,
    layout: vk::PipelineLayout,
    pipeline: vk::Pipeline,
    descriptors: vk::DescriptorPool,
    set: vk::DescriptorSet,
}

impl Shader {
    fn new(handles: &Handles, buffer: vk::Buffer) -> Result<Self, Box<dyn Error>> {
        let device = handles.device.clone();
        let code = ash::util::read_spv(&mut std::io::Cursor::new(include_bytes!("vulkan/step.spv")))?;
        let storage = vk::DescriptorType::STORAGE_BUFFER;
        let binding =
            vk::DescriptorSetLayoutBinding::default().descriptor_type(storage).descriptor_count(1).stage_flags(COMPUTE);
        let set_info = vk::DescriptorSetLayoutCreateInfo::default().bindings(slice::from_ref(&binding));
        let pushed = vk::PushConstantRange::default().stage_flags(COMPUTE).size(4);
        let size = vk::DescriptorPoolSize::default().ty(storage).descriptor_count(1);
        let pool_info = vk::DescriptorPoolCreateInfo::default().max_sets(1).pool_sizes(slice::from_ref(&size));
        let whole = vk::DescriptorBufferInfo::default().buffer(buffer).range(vk::WHOLE_SIZE);
        // SAFETY: valid descriptions, of a live device and buffer.
        unsafe {
            let module = device.create_shader_module(&vk::ShaderModuleCreateInfo::default().code(&code), None)?;
            let set_layout = device.create_descriptor_set_layout(&set_info, None)?;
            let layout_info = vk::PipelineLayoutCreateInfo::default()
                .set_layouts(slice::from_ref(&set_layout))
                .push_constant_ranges(slice::from_ref(&pushed));
            let layout = device.create_pipeline_layout(&layout_info, None)?;
            let stage = vk::PipelineShaderStageCreateInfo::default().stage(COMPUTE).module(module).name(c"main");
            let info = vk::ComputePipelineCreateInfo::default().stage(stage).layout(layout);
            let made = device.create_compute_pipelines(vk::PipelineCache::null(), slice::from_ref(&info), None);
            let pipeline = made.map_err(|(_, error)| error)?[0];
            let descriptors = device.create_descriptor_pool(&pool_info, None)?;
            let set_info = vk::DescriptorSetAllocateInfo::default()
                .descriptor_pool(descriptors)
                .set_layouts(slice::from_ref(&set_layout));
            let set = device.allocate_descriptor_sets(&set_info)?[0];
            let write = vk::WriteDescriptorSet::default()
                .dst_set(set)
                .descriptor_type(storage)
                .buffer_info(slice::from_ref(&whole));
            device.update_descriptor_sets(slice::from_ref(&write), &[]);
            Ok(Self { device, module, set_layout, layout, pipeline, descriptors, set })
        }
    }

    fn record(&self, device: &ash::Device, commands: vk::CommandBuffer, count: u32) {
        let point = vk::PipelineBindPoint::COMPUTE;
        // SAFETY: recording with live objects.
        unsafe {
            device.cmd_bind_pipeline(commands, point, self.pipeline);
            device.cmd_bind_descriptor_sets(commands, point, self.layout, 0, &[self.set], &[]);
            device.cmd_push_constants(commands, self.layout, COMPUTE, 0, &count.to_ne_bytes());
            device.cmd_dispatch(commands, count.div_ceil(GROUP), 1, 1);
        }
    }
}

impl Drop for Shader {
    fn drop(&mut self) {
        let device = &self.device;
        // SAFETY: this value's own objects, which no queue uses any more.
        unsafe {
            device.destroy_descriptor_pool(self.descriptors, None);
            device.destroy_pipeline(self.pipeline, None);
            device.destroy_pipeline_layout(self.layout, None);
            device.destroy_descriptor_set_layout(self.set_layout, None);
            device.destroy_shader_module(self.module, None);
        }
    }
}
