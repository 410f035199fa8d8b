//! A Vulkan pipeline that draws triangles into an image, the image's way into a buffer, and the submission of both.
#![expect(unsafe_code, reason = "Vulkan's functions are unsafe by nature")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "sequences of calls of Vulkan on live objects")]

use std::error::Error;
use std::io::Cursor;
use std::slice;

use ash::vk;
use vkgdr::Vkgdr;
use vkgdr::vulkan::{Handles, Image};

/// The format of the pixels: four bytes, in this order.
pub(crate) const FORMAT: vk::Format = vk::Format::R8G8B8A8_UNORM;
/// Two floats for the position, three for the colour.
const STRIDE: u32 = 20;
const BACKGROUND: [f32; 4] = [0.04, 0.05, 0.09, 1.0];

/// The objects that draw into one image.
pub(crate) struct Canvas {
    device: ash::Device,
    extent: vk::Extent2D,
    image: vk::Image,
    view: vk::ImageView,
    pass: vk::RenderPass,
    frame: vk::Framebuffer,
    shaders: [vk::ShaderModule; 2],
    layout: vk::PipelineLayout,
    pipeline: vk::Pipeline,
}

/// The description of an image to draw into.
pub(crate) fn describe(extent: vk::Extent2D) -> vk::ImageCreateInfo<'static> {
    vk::ImageCreateInfo::default()
        .image_type(vk::ImageType::TYPE_2D)
        .format(FORMAT)
        .extent(vk::Extent3D { width: extent.width, height: extent.height, depth: 1 })
        .mip_levels(1)
        .array_layers(1)
        .samples(vk::SampleCountFlags::TYPE_1)
        .tiling(vk::ImageTiling::OPTIMAL)
        .usage(vk::ImageUsageFlags::COLOR_ATTACHMENT | vk::ImageUsageFlags::TRANSFER_SRC)
}

impl Canvas {
    pub(crate) fn new(handles: &Handles, image: &Image, extent: vk::Extent2D) -> Result<Self, Box<dyn Error>> {
        let device = handles.device.clone();
        let image = image.handle();
        let range =
            vk::ImageSubresourceRange::default().aspect_mask(vk::ImageAspectFlags::COLOR).level_count(1).layer_count(1);
        let view = vk::ImageViewCreateInfo::default()
            .image(image)
            .view_type(vk::ImageViewType::TYPE_2D)
            .format(FORMAT)
            .subresource_range(range);
        let attachment = vk::AttachmentDescription::default()
            .format(FORMAT)
            .samples(vk::SampleCountFlags::TYPE_1)
            .load_op(vk::AttachmentLoadOp::CLEAR)
            .store_op(vk::AttachmentStoreOp::STORE)
            .stencil_load_op(vk::AttachmentLoadOp::DONT_CARE)
            .stencil_store_op(vk::AttachmentStoreOp::DONT_CARE)
            .final_layout(vk::ImageLayout::TRANSFER_SRC_OPTIMAL);
        let colour = vk::AttachmentReference::default().layout(vk::ImageLayout::COLOR_ATTACHMENT_OPTIMAL);
        let subpass = vk::SubpassDescription::default()
            .pipeline_bind_point(vk::PipelineBindPoint::GRAPHICS)
            .color_attachments(slice::from_ref(&colour));
        // The copy that follows reads what was drawn.
        let copied = vk::SubpassDependency::default()
            .dst_subpass(vk::SUBPASS_EXTERNAL)
            .src_stage_mask(vk::PipelineStageFlags::COLOR_ATTACHMENT_OUTPUT)
            .dst_stage_mask(vk::PipelineStageFlags::TRANSFER)
            .src_access_mask(vk::AccessFlags::COLOR_ATTACHMENT_WRITE)
            .dst_access_mask(vk::AccessFlags::TRANSFER_READ);
        let pass = vk::RenderPassCreateInfo::default()
            .attachments(slice::from_ref(&attachment))
            .subpasses(slice::from_ref(&subpass))
            .dependencies(slice::from_ref(&copied));
        let codes = [&include_bytes!("flower.vert.spv")[..], include_bytes!("flower.frag.spv")];
        let codes = codes.map(|code| ash::util::read_spv(&mut Cursor::new(code)));
        // SAFETY: valid descriptions, of a live device and image.
        unsafe {
            let view = device.create_image_view(&view, None)?;
            let pass = device.create_render_pass(&pass, None)?;
            let frame = vk::FramebufferCreateInfo::default()
                .render_pass(pass)
                .attachments(slice::from_ref(&view))
                .width(extent.width)
                .height(extent.height)
                .layers(1);
            let frame = device.create_framebuffer(&frame, None)?;
            let [vertex, fragment] = codes;
            let module =
                |code: &[u32]| device.create_shader_module(&vk::ShaderModuleCreateInfo::default().code(code), None);
            let shaders = [module(&vertex?)?, module(&fragment?)?];
            let layout = device.create_pipeline_layout(&vk::PipelineLayoutCreateInfo::default(), None)?;
            let pipeline = pipeline(&device, extent, shaders, layout, pass)?;
            Ok(Self { device, extent, image, view, pass, frame, shaders, layout, pipeline })
        }
    }

    /// Records drawing `count` vertices, and the copy of the pixels to a buffer, in rows without gaps.
    pub(crate) fn record(&self, commands: vk::CommandBuffer, vertices: vk::Buffer, count: u32, pixels: vk::Buffer) {
        let clear = [vk::ClearValue { color: vk::ClearColorValue { float32: BACKGROUND } }];
        let begin = vk::RenderPassBeginInfo::default()
            .render_pass(self.pass)
            .framebuffer(self.frame)
            .render_area(self.extent.into())
            .clear_values(&clear);
        let layers = vk::ImageSubresourceLayers::default().aspect_mask(vk::ImageAspectFlags::COLOR).layer_count(1);
        let extent = vk::Extent3D { width: self.extent.width, height: self.extent.height, depth: 1 };
        let all = vk::BufferImageCopy::default().image_subresource(layers).image_extent(extent);
        let source = vk::ImageLayout::TRANSFER_SRC_OPTIMAL;
        let device = &self.device;
        // SAFETY: recording with live objects.
        unsafe {
            device.cmd_begin_render_pass(commands, &begin, vk::SubpassContents::INLINE);
            device.cmd_bind_pipeline(commands, vk::PipelineBindPoint::GRAPHICS, self.pipeline);
            device.cmd_bind_vertex_buffers(commands, 0, &[vertices], &[0]);
            device.cmd_draw(commands, count, 1, 0, 0);
            device.cmd_end_render_pass(commands);
            device.cmd_copy_image_to_buffer(commands, self.image, source, pixels, slice::from_ref(&all));
        }
    }
}

/// # Safety
///
/// The objects must be live.
unsafe fn pipeline(
    device: &ash::Device,
    extent: vk::Extent2D,
    shaders: [vk::ShaderModule; 2],
    layout: vk::PipelineLayout,
    pass: vk::RenderPass,
) -> Result<vk::Pipeline, vk::Result> {
    let stage =
        |(stage, module)| vk::PipelineShaderStageCreateInfo::default().stage(stage).module(module).name(c"main");
    let [vertex, fragment] = shaders;
    let stages = [(vk::ShaderStageFlags::VERTEX, vertex), (vk::ShaderStageFlags::FRAGMENT, fragment)].map(stage);
    let bindings = [vk::VertexInputBindingDescription::default().stride(STRIDE)];
    let attribute = |(location, format, offset)| {
        vk::VertexInputAttributeDescription::default().location(location).format(format).offset(offset)
    };
    let attributes = [(0, vk::Format::R32G32_SFLOAT, 0), (1, vk::Format::R32G32B32_SFLOAT, 8)].map(attribute);
    let input = vk::PipelineVertexInputStateCreateInfo::default()
        .vertex_binding_descriptions(&bindings)
        .vertex_attribute_descriptions(&attributes);
    let triangles = vk::PipelineInputAssemblyStateCreateInfo::default().topology(vk::PrimitiveTopology::TRIANGLE_LIST);
    #[expect(clippy::cast_precision_loss, reason = "pictures have fewer than 2^24 columns and rows")]
    let (width, height) = (extent.width as f32, extent.height as f32);
    let viewports = [vk::Viewport { width, height, max_depth: 1.0, ..vk::Viewport::default() }];
    let scissors = [extent.into()];
    let viewport = vk::PipelineViewportStateCreateInfo::default().viewports(&viewports).scissors(&scissors);
    let raster = vk::PipelineRasterizationStateCreateInfo::default().line_width(1.0);
    let samples = vk::PipelineMultisampleStateCreateInfo::default().rasterization_samples(vk::SampleCountFlags::TYPE_1);
    let blended = [vk::PipelineColorBlendAttachmentState::default().color_write_mask(vk::ColorComponentFlags::RGBA)];
    let blend = vk::PipelineColorBlendStateCreateInfo::default().attachments(&blended);
    let info = vk::GraphicsPipelineCreateInfo::default()
        .stages(&stages)
        .vertex_input_state(&input)
        .input_assembly_state(&triangles)
        .viewport_state(&viewport)
        .rasterization_state(&raster)
        .multisample_state(&samples)
        .color_blend_state(&blend)
        .layout(layout)
        .render_pass(pass);
    // SAFETY: by this function's contract.
    let made = unsafe { device.create_graphics_pipelines(vk::PipelineCache::null(), &[info], None) };
    made.map(|pipelines| pipelines[0]).map_err(|(_, error)| error)
}

impl Drop for Canvas {
    fn drop(&mut self) {
        let device = &self.device;
        // SAFETY: this value's own objects, which no queue uses any more.
        unsafe {
            device.destroy_pipeline(self.pipeline, None);
            device.destroy_pipeline_layout(self.layout, None);
            for shader in self.shaders {
                device.destroy_shader_module(shader, None);
            }
            device.destroy_framebuffer(self.frame, None);
            device.destroy_render_pass(self.pass, None);
            device.destroy_image_view(self.view, None);
        }
    }
}

/// Submits what `record` records, after all writes of the CPU and before its reads, and waits until it is done.
pub(crate) fn run(gpu: &Vkgdr, record: impl FnOnce(vk::CommandBuffer)) -> Result<(), Box<dyn Error>> {
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
        record(commands[0]);
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
