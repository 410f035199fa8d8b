//! The order of kernels among other uses of their arguments, as in `order`.
#![expect(unsafe_code, reason = "launches kernels")]

use std::sync::Arc;

use support::blocking::while_shut;
use support::{Result, host_read, host_write};
use vkgdr::cudarc::driver::{CudaContext, CudaFunction, CudaStream, DevicePtrMut, LaunchConfig, PushKernelArg};
use vkgdr::cudarc::nvrtc::Ptx;
use vkgdr::{Memory, MemoryKind, Pool, PoolOptions, Vkgdr, memory_of};

use crate::order::{LEN, Setup, finish, hold};

pub(crate) fn vector_add(context: &Arc<CudaContext>) -> Result<CudaFunction> {
    let module = context.load_module(Ptx::from_src(include_str!("../../examples/vector_add.ptx")))?;
    Ok(module.load_function("vector_add")?)
}

/// `sum[i] = a[i] + b[i]` on all floats of the memory.
pub(crate) fn add(stream: &CudaStream, kernel: &CudaFunction, a: &Memory, b: &Memory, sum: &mut Memory) -> Result {
    let n = u32::try_from(LEN / 4)?;
    let mut launch = stream.launch_builder(kernel);
    launch.arg(a).arg(b).arg(sum).arg(&n);
    // SAFETY: the kernel takes three vectors of `n` floats and `n`, and stays within them.
    unsafe { launch.launch(LaunchConfig::for_num_elems(n)) }?;
    Ok(())
}

pub(crate) fn floats(gpu: &Vkgdr, value: f32) -> Result<Memory> {
    let memory = Memory::allocate(gpu, LEN, MemoryKind::Mapped)?;
    set_floats(&memory, value)?;
    Ok(memory)
}

pub(crate) fn set_floats(memory: &Memory, value: f32) -> Result {
    host_write(memory, 0, bytemuck::cast_slice(&[value; LEN / 4]))
}

#[track_caller]
pub(crate) fn assert_floats(memory: &Memory, value: f32, what: &str) -> Result {
    let bytes = host_read(memory, 0, LEN)?;
    let wrong = bytes.chunks(4).filter(|bytes| **bytes != value.to_ne_bytes()).count();
    assert_eq!(wrong, 0, "wrong values of {}: {what}", LEN / 4);
    Ok(())
}

#[test]
fn a_kernel_of_memory_that_is_looked_up_during_a_copy_is_waited_for() -> Result {
    let mut setup = Setup::new()?;
    let kernel = vector_add(&setup.context)?;
    let [first, second, third] = setup.streams.clone();
    let (one, mut sum) = (floats(&setup.gpu, 1.0)?, floats(&setup.gpu, 0.0)?);
    let address = sum.device_ptr();
    // A copy by the only reference, whose event is recorded when its guard goes.
    let (_pointer, guard) = DevicePtrMut::<u8>::device_ptr_mut(&mut sum, &first);
    let (mut found, _) = memory_of(address).ok_or("the memory was not found")?;
    let gate = hold(&second)?;
    add(&second, &kernel, &one, &one, &mut found)?;
    drop((guard, found));
    third.memcpy_dtod::<u8, _, _>(&sum, &mut setup.seen)?;
    finish(&setup, &third, gate)?;
    assert_floats(&setup.seen, 2.0, "a read got ahead of the kernel")
}

#[test]
fn kernels_are_ordered_with_the_copies_of_other_streams() -> Result {
    let mut setup = Setup::new()?;
    let kernel = vector_add(&setup.context)?;
    let [first, second, _] = setup.streams.clone();
    let (mut a, b, mut sum) = (floats(&setup.gpu, 1.0)?, floats(&setup.gpu, 2.0)?, floats(&setup.gpu, 0.0)?);
    let hundred = floats(&setup.gpu, 100.0)?;

    let gate = hold(&first)?;
    first.memcpy_dtod::<u8, _, _>(&hundred, &mut a)?;
    add(&second, &kernel, &a, &b, &mut sum)?;
    finish(&setup, &second, gate)?;
    assert_floats(&sum, 102.0, "a kernel got ahead of the write to its argument")?;

    let gate = hold(&first)?;
    add(&first, &kernel, &a, &b, &mut sum)?;
    second.memset_zeros::<u8, _>(&mut a)?;
    finish(&setup, &second, gate)?;
    assert_floats(&sum, 102.0, "a write got ahead of the kernel that reads the memory")?;

    set_floats(&sum, 0.0)?;
    let gate = hold(&first)?;
    add(&first, &kernel, &hundred, &b, &mut sum)?;
    second.memcpy_dtod::<u8, _, _>(&sum, &mut setup.seen)?;
    finish(&setup, &second, gate)?;
    assert_floats(&setup.seen, 102.0, "a read got ahead of the kernel that writes the memory")?;

    let gate = hold(&first)?;
    first.memcpy_dtod::<u8, _, _>(&sum, &mut setup.seen)?;
    add(&second, &kernel, &hundred, &hundred, &mut sum)?;
    finish(&setup, &second, gate)?;
    assert_floats(&setup.seen, 102.0, "a kernel got ahead of the read of memory that it writes")
}

#[test]
fn a_kernel_does_not_overtake_the_reads_of_two_kernels() -> Result {
    let setup = Setup::new()?;
    let kernel = vector_add(&setup.context)?;
    let [first, second, third] = setup.streams.clone();
    let (mut a, b) = (floats(&setup.gpu, 1.0)?, floats(&setup.gpu, 2.0)?);
    let (mut one, mut other) = (floats(&setup.gpu, 0.0)?, floats(&setup.gpu, 0.0)?);
    let gate = hold(&first)?;
    add(&first, &kernel, &a, &b, &mut one)?;
    add(&second, &kernel, &a, &b, &mut other)?;
    add(&third, &kernel, &b, &b, &mut a)?;
    finish(&setup, &third, gate)?;
    assert_floats(&other, 3.0, "the later kernel")?;
    assert_floats(&one, 3.0, "the earlier kernel")
}

#[test]
fn bound_memory_is_not_released_while_a_kernel_on_another_stream_uses_it() -> Result {
    let setup = Setup::new()?;
    let kernel = vector_add(&setup.context)?;
    let [bound, other, _] = setup.streams.clone();
    let (a, b, mut sum) = (floats(&setup.gpu, 1.0)?, floats(&setup.gpu, 2.0)?, floats(&setup.gpu, 0.0)?);
    a.bind_stream(&bound)?;
    let gate = hold(&other)?;
    add(&other, &kernel, &a, &b, &mut sum)?;
    while_shut(gate, || {
        drop(a);
        bound.synchronize()?;
        setup.gpu.collect();
        Ok(())
    })?;
    setup.context.synchronize().map_err(|error| format!("the kernel failed: {error}"))?;
    setup.gpu.collect();
    assert_floats(&sum, 3.0, "the kernel")
}

#[test]
fn memory_lent_again_on_its_stream_is_used_on_others_after_its_last_holder() -> Result {
    let mut setup = Setup::new()?;
    let [first, second, _] = setup.streams.clone();
    let pool = Pool::new(&setup.gpu, PoolOptions::new(MemoryKind::Mapped))?;
    let mut memory = pool.allocate_on(LEN, &first)?;
    let address = memory.device_ptr();
    let gate = hold(&first)?;
    first.memset_zeros::<u8, _>(&mut memory)?;
    drop(memory);
    let mut memory = pool.allocate_on(LEN, &first)?;
    assert_eq!(memory.device_ptr(), address, "not reused on its stream");
    second.memcpy_dtod::<u8, _, _>(&setup.seen, &mut memory)?;
    finish(&setup, &second, gate)?;
    second.memcpy_dtod::<u8, _, _>(&memory, &mut setup.seen)?;
    second.synchronize()?;
    assert!(host_read(&setup.seen, 0, LEN)?.iter().all(|byte| *byte == 0xee), "the last holder wrote later");
    Ok(())
}
