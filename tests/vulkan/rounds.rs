//! Bytes that the CPU writes, a compute shader changes, then a CUDA kernel, and the CPU reads.

use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use support::{Random, Result};
use vkgdr::{OpenFlags, Vkgdr};

use crate::compute::Compute;
use crate::{VISIBLE, allocator, buffer, open_with, words};

/// `VKGDR_STEPS`: the number of rounds.
fn rounds() -> u64 {
    support::number("VKGDR_STEPS").unwrap_or(150)
}

fn take_turns(gpu: &Vkgdr, rounds: u64) -> Result {
    let compute = Compute::new(&gpu.vulkan_handles()?)?;
    let context = CudaContext::new(0)?;
    let kernel = context.load_module(Ptx::from_src(include_str!("step.ptx")))?.load_function("step")?;
    let stream = context.new_stream()?;
    let allocator = allocator(gpu)?;
    let mut random = Random::new(7);
    // Some buffers stay for a while, so that the blocks are fragmented.
    let mut kept = Vec::new();
    for round in 0..rounds {
        let count = 1 + random.below(if round % 16 == 0 { 300_000 } else { 3000 });
        let location = VISIBLE[random.below(2)];
        let shared = buffer(&allocator, 4 * count, location)?;
        let before = words(&random.bytes(4 * count));
        let (by_vulkan, by_cuda) = (u32::try_from(random.below(1 << 32))?, u32::try_from(random.below(1 << 32))?);
        shared.write(0, &before)?;
        shared.flush(..)?;
        let n = u32::try_from(count)?;
        compute.step(shared.handle(), n, by_vulkan)?;
        let view = shared.view::<u32>(&stream)?;
        let mut launch = stream.launch_builder(&kernel);
        launch.arg(&view).arg(&n).arg(&by_cuda);
        // SAFETY: the kernel stays within `n` words.
        unsafe { launch.launch(LaunchConfig::for_num_elems(n)) }?;
        stream.synchronize()?;
        let mut found = vec![0_u32; count];
        shared.invalidate(..)?;
        shared.read(0, &mut found)?;
        let expected =
            |word: &u32| (word.wrapping_mul(3).wrapping_add(by_vulkan)).wrapping_mul(5).wrapping_add(by_cuda);
        let wrong = before.iter().zip(&found).position(|(word, found)| expected(word) != *found);
        assert_eq!(wrong, None, "round {round}, {count} words, {location:?}");
        if random.below(3) == 0 {
            kept.push(shared);
        }
        if kept.len() > 20 {
            kept.remove(random.below(kept.len()));
        }
    }
    Ok(())
}

#[test]
fn the_cpu_a_shader_and_a_kernel_take_turns_on_one_buffer_also_where_every_flush_reaches_the_driver() -> Result {
    // cudarc finds the context alive in the second round.
    let _context = support::cuda::PrimaryContext::retain_and_push(0);
    for (flags, part) in [(OpenFlags::empty(), 1), (OpenFlags::FORCE_NON_COHERENT, 3)] {
        let Some(gpu) = open_with(flags)? else { return Ok(()) };
        take_turns(&gpu, rounds() / part)?;
    }
    Ok(())
}
