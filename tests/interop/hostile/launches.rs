//! Arguments and launches.
#![expect(unsafe_code, reason = "launches kernels")]

use support::cuda::Gate;
use support::{Result, host_write};
use vkgdr::cudarc::driver::{CudaContext, CudaFunction, LaunchConfig, PushKernelArg};
use vkgdr::{Memory, Region};

use super::{drop_under_a_kernel, new_pool};
use crate::kernels::{add, assert_floats, floats, vector_add};
use crate::order::{LEN, Setup, assert_all, filled, finish, hold};

/// Of a context value without other streams, so that cudarc records nothing.
#[test]
fn a_kernel_waits_for_the_unrecorded_write_of_a_default_stream() -> Result {
    let setup = Setup::new()?;
    let kernel = vector_add(&setup.context)?;
    let (default, other) = (CudaContext::new(0)?.default_stream(), &setup.streams[0]);
    let hundred = floats(&setup.gpu, 100.0)?;
    let (mut a, b, mut sum) = (floats(&setup.gpu, 1.0)?, floats(&setup.gpu, 2.0)?, floats(&setup.gpu, 0.0)?);
    let gate = hold(&default)?;
    default.memcpy_dtod::<u8, _, _>(&hundred, &mut a)?;
    add(other, &kernel, &a, &b, &mut sum)?;
    finish(&setup, other, gate)?;
    assert_floats(&sum, 102.0, "the kernel got ahead of the write")
}

#[test]
fn an_argument_that_is_not_launched_does_not_end_an_earlier_read() -> Result {
    let mut setup = Setup::new()?;
    let kernel = vector_add(&setup.context)?;
    let [first, second, third] = setup.streams.clone();
    let mut memory = filled(&setup.gpu, 0)?;
    let gate = hold(&first)?;
    first.memcpy_dtod::<u8, _, _>(&memory, &mut setup.seen)?;
    third.launch_builder(&kernel).arg(&mut memory);
    second.memcpy_dtod::<u8, _, _>(&setup.ones, &mut memory)?;
    finish(&setup, &second, gate)?;
    assert_all(&setup.seen, 0, "a write got ahead of the read before it")
}

#[test]
fn a_refused_launch_does_not_end_an_earlier_read() -> Result {
    let mut setup = Setup::new()?;
    let kernel = vector_add(&setup.context)?;
    let [first, second, third] = setup.streams.clone();
    let mut memory = filled(&setup.gpu, 0)?;
    let gate = hold(&first)?;
    first.memcpy_dtod::<u8, _, _>(&memory, &mut setup.seen)?;
    // A block has at most 1024 threads (CUDA Programming Guide, "Compute Capabilities").
    let too_large = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (4096, 1, 1), shared_mem_bytes: 0 };
    let mut launch = third.launch_builder(&kernel);
    launch.arg(&setup.ones).arg(&setup.ones).arg(&mut memory).arg(&1_u32);
    // SAFETY: the kernel takes three vectors and their length, and stays within them.
    assert!(unsafe { launch.launch(too_large) }.is_err(), "the driver launched a block of 4096 threads");
    second.memcpy_dtod::<u8, _, _>(&setup.ones, &mut memory)?;
    finish(&setup, &second, gate)?;
    assert_all(&setup.seen, 0, "a write got ahead of the read before it")
}

/// The launch succeeds, but cudarc does not record it.
#[test]
fn an_unrecorded_launch_does_not_end_an_earlier_read() -> Result {
    let mut setup = Setup::new()?;
    let default = CudaContext::new(0)?.default_stream();
    let kernel = vector_add(default.context())?;
    let [first, second, _] = setup.streams.clone();
    let (mut memory, zero) = (filled(&setup.gpu, 0)?, floats(&setup.gpu, 0.0)?);
    let gate = hold(&first)?;
    first.memcpy_dtod::<u8, _, _>(&memory, &mut setup.seen)?;
    // Leaves the bytes as they are.
    add(&default, &kernel, &zero, &zero, &mut memory)?;
    default.synchronize()?;
    second.memcpy_dtod::<u8, _, _>(&setup.ones, &mut memory)?;
    finish(&setup, &second, gate)?;
    assert_all(&setup.seen, 0, "a write got ahead of the read before it")
}

#[test]
fn bound_memory_stays_until_a_kernel_ends_that_an_unlaunched_argument_followed() -> Result {
    let setup = Setup::new()?;
    let kernel = vector_add(&setup.context)?;
    let [first, second, third] = setup.streams.clone();
    let (mut a, b, mut sum) = (floats(&setup.gpu, 1.0)?, floats(&setup.gpu, 2.0)?, floats(&setup.gpu, 0.0)?);
    a.bind_stream(&second)?;
    let gate = hold(&first)?;
    add(&first, &kernel, &a, &b, &mut sum)?;
    third.launch_builder(&kernel).arg(&mut a);
    drop_under_a_kernel(&setup, a, gate)?;
    assert_floats(&sum, 3.0, "the kernel")
}

#[test]
fn bound_memory_stays_until_an_unrecorded_kernel_ends() -> Result {
    let setup = Setup::new()?;
    let default = CudaContext::new(0)?.default_stream();
    let kernel = vector_add(default.context())?;
    let (a, b, mut sum) = (floats(&setup.gpu, 1.0)?, floats(&setup.gpu, 2.0)?, floats(&setup.gpu, 0.0)?);
    a.bind_stream(&setup.streams[0])?;
    let gate = hold(&default)?;
    add(&default, &kernel, &a, &b, &mut sum)?;
    drop_under_a_kernel(&setup, a, gate)?;
    assert_floats(&sum, 3.0, "the kernel")
}

#[test]
fn a_kernel_takes_empty_regions() -> Result {
    let setup = Setup::new()?;
    let kernel = vector_add(&setup.context)?;
    let memory = filled(&setup.gpu, 1)?;
    for range in [0..0, 5..5, LEN..LEN] {
        let (a, mut sum) = (memory.region(range.clone())?, memory.region(range)?);
        let mut launch = setup.streams[0].launch_builder(&kernel);
        launch.arg(&a).arg(&a).arg(&mut sum).arg(&0_u32);
        // SAFETY: the kernel takes three vectors and their length, and stays within them.
        unsafe { launch.launch(LaunchConfig::for_num_elems(1)) }?;
    }
    setup.context.synchronize()?;
    assert_all(&memory, 1, "a kernel of no elements wrote")
}

/// Adds `memory` and 2.0 on two streams, behind a gate on the first, by launches whose arguments were given before either
/// was launched. Returns the gate, the sum of the first, and the other memory, whose drop would wait for the gate.
fn launch_two_prepared_at_once(
    setup: &Setup,
    kernel: &CudaFunction,
    memory: &Region,
) -> Result<(Gate, Memory, [Memory; 2])> {
    let [first, second, _] = &setup.streams;
    let twos = floats(&setup.gpu, 2.0)?;
    let (mut sum, mut other) = (floats(&setup.gpu, 0.0)?, floats(&setup.gpu, 0.0)?);
    let n = u32::try_from(LEN / 4)?;
    let gate = hold(first)?;
    let (mut one, mut two) = (first.launch_builder(kernel), second.launch_builder(kernel));
    one.arg(memory).arg(&twos).arg(&mut sum).arg(&n);
    two.arg(memory).arg(&twos).arg(&mut other).arg(&n);
    for mut launch in [one, two] {
        // SAFETY: the kernel takes three vectors of `n` floats and `n`, and stays within them.
        unsafe { launch.launch(LaunchConfig::for_num_elems(n)) }?;
    }
    Ok((gate, sum, [twos, other]))
}

#[test]
fn a_write_waits_for_both_of_two_launches_that_were_prepared_at_once() -> Result {
    let setup = Setup::new()?;
    let kernel = vector_add(&setup.context)?;
    let mut memory = floats(&setup.gpu, 1.0)?;
    let (gate, sum, _others) = launch_two_prepared_at_once(&setup, &kernel, &memory)?;
    let third = &setup.streams[2];
    third.memset_zeros::<u8, _>(&mut memory)?;
    finish(&setup, third, gate)?;
    assert_floats(&sum, 3.0, "a write got ahead of the kernel that reads the memory")
}

#[test]
fn bound_memory_stays_until_both_of_two_launches_end_that_were_prepared_at_once() -> Result {
    let setup = Setup::new()?;
    let kernel = vector_add(&setup.context)?;
    let memory = floats(&setup.gpu, 1.0)?;
    memory.bind_stream(&setup.streams[1])?;
    let (gate, sum, _others) = launch_two_prepared_at_once(&setup, &kernel, &memory)?;
    drop_under_a_kernel(&setup, memory, gate)?;
    assert_floats(&sum, 3.0, "the kernel")
}

#[test]
fn memory_lent_again_is_written_after_both_of_two_launches_that_were_prepared_at_once() -> Result {
    let setup = Setup::new()?;
    let kernel = vector_add(&setup.context)?;
    let second = &setup.streams[1];
    let pool = new_pool(&setup.gpu)?;
    let chunk = pool.allocate_on(LEN, second)?;
    host_write(&chunk, 0, bytemuck::cast_slice(&[1.0_f32; LEN / 4]))?;
    let (gate, sum, _others) = launch_two_prepared_at_once(&setup, &kernel, &chunk)?;
    let address = Region::device_ptr(&chunk);
    drop(chunk);
    let mut chunk = pool.allocate_on(LEN, second)?;
    assert_eq!(Region::device_ptr(&chunk), address, "not reused on its stream");
    second.memset_zeros::<u8, _>(&mut chunk)?;
    finish(&setup, second, gate)?;
    assert_floats(&sum, 3.0, "the next holder wrote while the kernel read the memory")
}
