//! A CUDA kernel computes triangles, Vulkan draws them, and the CPU reads the pixels through its pointer and writes a PNG file.
//!
//! The triangles are in a `vulkan::Buffer`: CUDA writes them by the buffer's device address, Vulkan reads them as vertices by its
//! `VkBuffer`. No byte is copied between the two. The kernel is `vulkan/flower.cu`, the shaders `vulkan/flower.vert` and
//! `vulkan/flower.frag`. The example also runs on the simulated driver.
//!
//! ```text
//! $ cargo run --example picture -- flower.png
//! GPU: Simulated CUDA device (llvmpipe (LLVM 15.0.6, 256 bits))
//! CUDA computed 1500 triangles
//! Vulkan drew 640 x 640 pixels, 79881 of them coloured
//! wrote flower.png
//! ```
//!
//! The file is FILE, the first argument, or `picture.png` in the system's temporary folder.
#![expect(unsafe_code, reason = "Vulkan's functions and launching a kernel are unsafe by nature")]

#[path = "vulkan/canvas.rs"]
mod canvas;

use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ash::vk;
use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use vkgdr::vulkan::{Allocator, Buffer, MemoryLocation};
use vkgdr::{OpenFlags, Vkgdr};

use crate::canvas::Canvas;

/// The width and height of the picture in pixels.
const SIDE: u32 = 640;
const TRIANGLES: u32 = 1500;
const CORNERS: u32 = 3 * TRIANGLES;
/// Five floats.
const BYTES_OF_CORNER: u32 = 20;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("picture: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let file = std::env::args_os().nth(1).map_or_else(|| std::env::temp_dir().join("picture.png"), PathBuf::from);
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
    let buffer = |bytes: u32, usage, location| -> vkgdr::Result<Buffer> {
        let info = vk::BufferCreateInfo::default().size(bytes.into()).usage(usage);
        // SAFETY: a valid description; the submission is waited for.
        unsafe { allocator.buffer(&info, location) }
    };
    let mut vertices = buffer(CORNERS * BYTES_OF_CORNER, vk::BufferUsageFlags::VERTEX_BUFFER, MemoryLocation::GpuOnly)?;
    let pixels = buffer(SIDE * SIDE * 4, vk::BufferUsageFlags::TRANSFER_DST, MemoryLocation::GpuToCpu)?;
    let extent = vk::Extent2D { width: SIDE, height: SIDE };
    // SAFETY: as above.
    let image = unsafe { allocator.image(&canvas::describe(extent), MemoryLocation::GpuOnly) }?;

    // CUDA.
    let context = CudaContext::new(0)?;
    let kernel = context.load_module(Ptx::from_src(include_str!("vulkan/flower.ptx")))?.load_function("flower")?;
    let stream = context.new_stream()?;
    let mut view = vertices.view_mut::<u8>(&stream)?;
    let mut launch = stream.launch_builder(&kernel);
    launch.arg(&mut view).arg(&TRIANGLES);
    // SAFETY: the kernel writes three corners of 20 bytes for each triangle.
    unsafe { launch.launch(LaunchConfig::for_num_elems(TRIANGLES)) }?;
    stream.synchronize()?;

    // Vulkan.
    let canvas = Canvas::new(&handles, &image, extent)?;
    canvas::run(&gpu, |commands| canvas.record(commands, vertices.handle(), CORNERS, pixels.handle()))?;

    // The CPU.
    pixels.invalidate(..)?;
    let mut picture = vec![0_u8; pixels.len()];
    pixels.read(0, &mut picture)?;
    let background = picture.first_chunk::<4>().copied().ok_or("an empty picture")?;
    let coloured = picture.chunks_exact(4).filter(|pixel| **pixel != background).count();
    println!("CUDA computed {TRIANGLES} triangles");
    println!("Vulkan drew {SIDE} x {SIDE} pixels, {coloured} of them coloured");
    if coloured == 0 {
        return Err("nothing was drawn".into());
    }
    write_png(&file, &picture)?;
    println!("wrote {}", file.display());
    Ok(())
}

fn write_png(file: &Path, picture: &[u8]) -> Result<(), Box<dyn Error>> {
    let name = |error: std::io::Error| format!("{}: {error}", file.display());
    let mut encoder = png::Encoder::new(BufWriter::new(File::create(file).map_err(name)?), SIDE, SIDE);
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(picture)?;
    Ok(writer.finish()?)
}
