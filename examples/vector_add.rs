//! A CUDA kernel adds two vectors that the CPU wrote into GPU memory, and the CPU reads the sum.
//!
//! The kernel is `vector_add.cu`, compiled to `vector_add.ptx`; cudarc launches it on this crate's memory. The example
//! also runs on the simulated driver.
//!
//! ```text
//! $ cargo run --example vector_add
//! GPU: Simulated CUDA device (llvmpipe (LLVM 15.0.6, 256 bits))
//! 10000 sums are right, the last is 14998.5
//! ```
#![expect(unsafe_code, reason = "launching a kernel is unsafe by nature")]

use std::error::Error;
use std::process::ExitCode;

use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use vkgdr::{AllocateOptions, Memory, MemoryKind, OpenFlags, Vkgdr};

/// Elements of each vector.
const N: u16 = 10_000;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vector_add: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
    println!("GPU: {}", gpu.name());
    let context = CudaContext::new(0)?;
    let kernel = context.load_module(Ptx::from_src(include_str!("vector_add.ptx")))?.load_function("vector_add")?;

    let bytes = usize::from(N) * size_of::<f32>();
    // Host memory where the GPU has no mapped memory, as without Vulkan.
    let inputs = AllocateOptions::new(MemoryKind::Mapped).fallback([MemoryKind::Host]);
    let a = Memory::allocate_with(&gpu, bytes, inputs)?;
    let b = Memory::allocate_with(&gpu, bytes, inputs)?;
    // The CPU reads the sum, which is fastest in cached system memory.
    let mut sum = Memory::allocate(&gpu, bytes, MemoryKind::Host)?;
    let first: Vec<f32> = (0..N).map(f32::from).collect();
    let second: Vec<f32> = first.iter().map(|x| 0.5 * x).collect();
    a.write(0, &first)?;
    b.write(0, &second)?;
    a.flush(..)?;
    b.flush(..)?;

    let stream = context.new_stream()?;
    let n = u32::from(N);
    let (a, b, mut c) = (a.view::<f32>(&stream)?, b.view::<f32>(&stream)?, sum.view_mut::<f32>(&stream)?);
    let mut launch = stream.launch_builder(&kernel);
    launch.arg(&a).arg(&b).arg(&mut c).arg(&n);
    // SAFETY: the kernel takes three vectors of `n` floats and `n`, and stays within them.
    unsafe { launch.launch(LaunchConfig::for_num_elems(n)) }?;
    stream.synchronize()?;

    let mut result = vec![0_f32; usize::from(N)];
    sum.invalidate(..)?;
    sum.read(0, &mut result)?;
    let wrong = (0..result.len()).find(|&i| result[i].to_bits() != (first[i] + second[i]).to_bits());
    match wrong {
        Some(i) => Err(format!("element {i} is {}, not {}", result[i], first[i] + second[i]).into()),
        None => {
            println!("{N} sums are right, the last is {}", result[result.len() - 1]);
            Ok(())
        }
    }
}
