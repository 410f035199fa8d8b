//! Launches: results in each kind of memory, forms of parameters, and refused launches.

use std::ffi::c_uint;

use cudarc::driver::sys::CUfunction_attribute;
use support::codes;
use support::cuda::{self, CudaMemory, Stream};
use support::vulkan::Vulkan;
use support::{driver, simcuda, simulated};

use crate::driver::{BUFFER_SIZE, Buffer, Call, Function, Module, PARAMETERS_END, Pinned, Shape};
use crate::driver::{call, handle, synchronize};
use crate::{KERNELS, Result, bytes_of, device_words, good, open, words_of};

fn kernel(module: &Module, name: &str) -> Result<Function> {
    good(module.function(name))
}

#[test]
fn a_kernel_changes_memory_of_every_kind_as_the_cpu_would() -> Result {
    let _context = open();
    let module = good(Module::load(KERNELS))?;
    let add_one = kernel(&module, "add_one")?;
    let vulkan = Vulkan::open(0)?;
    for n in [1_u32, 127, 128, 129, 5000] {
        let words: Vec<u32> = (0..n + 3).map(|i| i.wrapping_mul(0x9e37_79b9)).collect();
        let changed: Vec<u32> = words.iter().zip(0..).map(|(word, i)| word.wrapping_add(u32::from(i < n))).collect();
        let len = words.len() * 4;
        let run = |address: u64, kind: &str| -> Result {
            cuda::memcpy_htod(address, &bytes_of(&words));
            good(add_one.launch(Shape::threads(n), 0, &[address, u64::from(n)]))?;
            good(synchronize(0))?;
            assert_eq!(device_words(address, words.len()), changed, "{kind}, {n} threads, by a copy");
            Ok(())
        };
        run(CudaMemory::device(len).address(), "device")?;
        for (memory, kind) in [(CudaMemory::managed(len), "managed"), (CudaMemory::host(len), "host")] {
            run(memory.address(), kind)?;
            assert_eq!(words_of(&memory.read().ok_or("no view")?), changed, "{kind}, {n} threads, by the CPU");
        }
        let memory = vulkan.memory(len)?;
        run(memory.address(), "imported")?;
        assert_eq!(memory.read(), changed, "imported, {n} threads, by the CPU");
    }
    Ok(())
}

#[test]
fn a_kernel_reaches_the_drivers_own_memory_and_page_locked_host_memory() -> Result {
    let _context = open();
    let module = good(Module::load(KERNELS))?;
    let (sum, values, pinned) = (good(Buffer::new(4))?, good(Buffer::new(4000))?, good(Pinned::new(0))?);
    let words: Vec<u32> = (1..=1000).collect();
    cuda::memcpy_htod(values.0, &bytes_of(&words));
    cuda::memset_d8(sum.0, 0, 4);
    let total = kernel(&module, "total")?;
    good(total.launch(Shape::threads(1000), 0, &[sum.0, values.0, 1000]))?;
    assert_eq!(device_words(sum.0, 1), [500_500]);
    // Into host memory, by a device atomic.
    good(total.launch(Shape::threads(1000), 0, &[good(pinned.device())?, values.0, 1000]))?;
    good(synchronize(0))?;
    assert_eq!(pinned.word().load(std::sync::atomic::Ordering::Acquire), 500_500);
    Ok(())
}

#[test]
fn every_device_runs_kernels() -> Result {
    for device in 0..driver::device_count() {
        let context = cuda::Context::create(device);
        let module = good(Module::load(KERNELS))?;
        let target = good(Buffer::new(4))?;
        let value = 100 + u32::try_from(device)?;
        good(kernel(&module, "store")?.launch(Shape::ONE, 0, &[target.0, u64::from(value)]))?;
        assert_eq!(device_words(target.0, 1), [value], "device {device}");
        drop((target, module));
        context.destroy();
    }
    Ok(())
}

#[test]
fn a_part_of_memory_goes_to_a_kernel_by_its_own_address() -> Result {
    let _context = open();
    let module = good(Module::load(KERNELS))?;
    let vulkan = Vulkan::open(0)?;
    let memory = vulkan.memory(4096)?;
    memory.fill(0);
    good(kernel(&module, "add_one")?.launch(Shape::threads(100), 0, &[memory.address() + 400, 100]))?;
    let expected: Vec<u32> = (0..1024).map(|i| u32::from((100..200).contains(&i))).collect();
    assert_eq!(device_words(memory.address(), 1024), expected);
    Ok(())
}

/// The arguments of `take`, in the layout of its parameters.
fn packed(target: u64) -> Vec<u8> {
    let mut block = vec![0xee_u8; 48];
    block[0] = 0xa1;
    block[2..4].copy_from_slice(&0xb2b1_u16.to_ne_bytes());
    block[4..8].copy_from_slice(&0xc4c3_c2c1_u32.to_ne_bytes());
    block[8..16].copy_from_slice(&0xd8d7_d6d5_d4d3_d2d1_u64.to_ne_bytes());
    block[16..24].copy_from_slice(&(-1.5_f64).to_ne_bytes());
    block[24..36].copy_from_slice(&bytes_of(&[1, 2, 0xf3f2_f1f0]));
    block[40..48].copy_from_slice(&target.to_ne_bytes());
    block
}

fn taken() -> Vec<u64> {
    vec![0xa1, 0xb2b1, 0xc4c3_c2c1, 0xd8d7_d6d5_d4d3_d2d1, (-1.5_f64).to_bits(), 0xf3f2_f1f0]
}

fn doubles(address: u64) -> Vec<u64> {
    let words = device_words(address, 12);
    words.chunks_exact(2).map(|pair| u64::from(pair[0]) | u64::from(pair[1]) << 32).collect()
}

#[test]
fn parameters_of_every_size_arrive_by_pointers_and_in_a_buffer() -> Result {
    let _context = open();
    let module = good(Module::load(KERNELS))?;
    let take = kernel(&module, "take")?;
    let target = good(Buffer::new(48))?;
    let block = packed(target.0);

    good(take.launch_with_buffer(Shape::ONE, 0, &block))?;
    assert_eq!(doubles(target.0), taken(), "in a buffer");

    cuda::memset_d8(target.0, 0, 48);
    // Each at a misaligned address.
    let offsets = [0, 2, 4, 8, 16, 24, 40];
    let shifted: Vec<u8> = [0].into_iter().chain(block.iter().copied()).collect();
    let mut pointers: Vec<*const u8> = offsets.iter().map(|offset| shifted[1 + offset..].as_ptr()).collect();
    good(take.launch_raw(Shape::ONE, 0, pointers.as_mut_ptr().cast(), std::ptr::null_mut()))?;
    assert_eq!(doubles(target.0), taken(), "by pointers");

    // The buffer may have padding at its end.
    cuda::memset_d8(target.0, 0, 48);
    good(take.launch_with_buffer(Shape::ONE, 0, &[block.clone(), vec![7; 8]].concat()))?;
    assert_eq!(doubles(target.0), taken(), "in a larger buffer");
    Ok(())
}

#[test]
fn parameters_that_are_missing_or_given_twice_are_refused() -> Result {
    simulated!("the behaviour of a real driver is not documented");
    let _context = open();
    let module = good(Module::load(KERNELS))?;
    let store = kernel(&module, "store")?;
    let null = std::ptr::null_mut;
    assert_eq!(store.launch_raw(Shape::ONE, 0, null(), null()), Err(codes::INVALID_VALUE), "none");
    assert_eq!(store.launch_with_buffer(Shape::ONE, 0, &[0; 11]), Err(codes::INVALID_VALUE), "a buffer too short");
    let target = good(Buffer::new(4))?;
    let (argument, value, size) = (target.0, 5_u32, 12_usize);
    let mut pointers = [(&raw const argument).cast::<u8>(), (&raw const value).cast()];
    let mut extra = [BUFFER_SIZE, (&raw const size).cast(), PARAMETERS_END];
    let both = store.launch_raw(Shape::ONE, 0, pointers.as_mut_ptr().cast(), extra.as_mut_ptr().cast());
    assert_eq!(both, Err(codes::INVALID_VALUE), "both");
    good(kernel(&module, "nothing")?.launch_raw(Shape::ONE, 0, null(), null()))?;
    good(synchronize(0))
}

#[test]
fn a_launch_of_an_impossible_shape_is_refused() -> Result {
    let _context = open();
    let module = good(Module::load(KERNELS))?;
    let nothing = kernel(&module, "nothing")?;
    let launch = |grid: [c_uint; 3], block: [c_uint; 3]| nothing.launch(Shape { grid, block, shared: 0 }, 0, &[]);
    for axis in 0..3 {
        let with = |size: c_uint| {
            let mut sizes = [1; 3];
            sizes[axis] = size;
            sizes
        };
        assert_eq!(launch(with(0), [1; 3]), Err(codes::INVALID_VALUE), "no blocks, axis {axis}");
        assert_eq!(launch([1; 3], with(0)), Err(codes::INVALID_VALUE), "no threads, axis {axis}");
        assert_eq!(
            launch([1; 3], with([1025, 1025, 65][axis])),
            Err(codes::INVALID_VALUE),
            "a large block, axis {axis}"
        );
        good(launch([1; 3], with([1024, 1024, 64][axis])))?;
        assert_eq!(launch(with([1 << 31, 65_536, 65_536][axis]), [1; 3]), Err(codes::INVALID_VALUE), "a large grid");
    }
    assert_eq!(launch([1; 3], [32, 33, 1]), Err(codes::INVALID_VALUE), "1056 threads");
    good(synchronize(0))?;
    let bounded = kernel(&module, "bounded")?;
    good(bounded.launch(Shape::block(64), 0, &[]))?;
    assert_eq!(bounded.launch(Shape::block(65), 0, &[]), Err(codes::INVALID_VALUE), "more than .maxntid");
    good(synchronize(0))
}

#[test]
fn shared_memory_beyond_48_kib_must_be_requested() -> Result {
    const MAX_DYNAMIC_SHARED: CUfunction_attribute =
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    let _context = open();
    let module = good(Module::load(KERNELS))?;
    let reverse = kernel(&module, "reverse")?;
    let values = good(Buffer::new(400))?;
    let words: Vec<u32> = (0..100).collect();
    let launch = |shared: c_uint| -> Call<Vec<u32>> {
        cuda::memcpy_htod(values.0, &bytes_of(&words));
        reverse.launch(Shape { shared, ..Shape::block(100) }, 0, &[values.0])?;
        synchronize(0)?;
        Ok(device_words(values.0, 100))
    };
    let reversed: Vec<u32> = words.iter().rev().copied().collect();
    assert_eq!(launch(400), Ok(reversed.clone()));
    assert_eq!(launch(48 << 10), Ok(reversed.clone()));
    assert_eq!(launch((48 << 10) + 4), Err(codes::INVALID_VALUE));
    good(reverse.set_attribute(MAX_DYNAMIC_SHARED, 64 << 10))?;
    assert_eq!(reverse.attribute(MAX_DYNAMIC_SHARED), Ok(64 << 10));
    assert_eq!(launch(64 << 10), Ok(reversed));
    assert_eq!(launch((64 << 10) + 4), Err(codes::INVALID_VALUE));
    assert_eq!(
        reverse.set_attribute(MAX_DYNAMIC_SHARED, 1 << 20),
        Err(codes::INVALID_VALUE),
        "more than the device has"
    );
    Ok(())
}

#[test]
fn a_launch_without_a_context_or_with_a_stale_handle_is_refused() -> Result {
    let _context = open();
    let module = good(Module::load(KERNELS))?;
    let nothing = kernel(&module, "nothing")?;
    let without = cuda::no_context(|| nothing.launch(Shape::ONE, 0, &[]));
    assert_eq!(without, Err(codes::INVALID_CONTEXT));
    if simcuda().is_none() {
        // A real driver dereferences stale handles.
        return Ok(());
    }
    drop(module);
    assert_eq!(nothing.launch(Shape::ONE, 0, &[]), Err(codes::INVALID_HANDLE));
    assert_eq!(Function(0).launch(Shape::ONE, 0, &[]), Err(codes::INVALID_HANDLE));
    Ok(())
}

#[test]
fn a_launch_on_a_stream_of_another_context_is_refused() -> Result {
    let _context = open();
    let module = good(Module::load(KERNELS))?;
    let nothing = kernel(&module, "nothing")?;
    let other = cuda::Context::create(0);
    let stream = Stream::create();
    assert_eq!(nothing.launch(Shape::ONE, handle(&stream), &[]), Err(codes::INVALID_HANDLE));
    drop(stream);
    other.destroy();
    Ok(())
}

/// `CUlaunchConfig` with one attribute.
fn launch_extended(function: Function, attribute: c_uint, value: [u32; 3], grid: c_uint) -> Call {
    #[repr(C)]
    struct Attribute {
        id: c_uint,
        pad: c_uint,
        value: [u32; 16],
    }
    #[repr(C)]
    struct Config {
        grid: [c_uint; 3],
        block: [c_uint; 3],
        shared: c_uint,
        stream: usize,
        attributes: *const Attribute,
        count: c_uint,
    }
    let mut whole = [0; 16];
    whole[..3].copy_from_slice(&value);
    let attribute = Attribute { id: attribute, pad: 0, value: whole };
    let config =
        Config { grid: [grid, 1, 1], block: [1; 3], shared: 0, stream: 0, attributes: &raw const attribute, count: 1 };
    call!(cuLaunchKernelEx(
        &raw const config => *const Config, function.0 => usize, 0 => usize, 0 => usize,
    ))?;
    synchronize(0)
}

#[test]
fn attributes_of_a_launch_are_honoured_harmless_or_refused() -> Result {
    let _context = open();
    let module = good(Module::load(KERNELS))?;
    let nothing = kernel(&module, "nothing")?;
    // Ignore, cooperative, priority.
    for (attribute, value) in [(0, 0), (2, 1), (8, 0)] {
        good(launch_extended(nothing, attribute, [value, 0, 0], 1))?;
    }
    good(launch_extended(nothing, 4, [1, 1, 1], 1))?;
    assert_eq!(launch_extended(nothing, 2, [1, 0, 0], 1 << 20), Err(codes::COOPERATIVE_LAUNCH_TOO_LARGE));
    assert_eq!(launch_extended(nothing, 1000, [0; 3], 1), Err(codes::INVALID_VALUE));
    if simcuda().is_some() {
        assert_eq!(launch_extended(nothing, 4, [2, 1, 1], 2), Err(codes::NOT_SUPPORTED), "a cluster");
        assert_eq!(launch_extended(nothing, 12, [0; 3], 1), Err(codes::NOT_SUPPORTED), "an event in the middle");
    }
    Ok(())
}

#[test]
fn the_blocks_of_a_cooperative_launch_wait_for_each_other_and_must_fit_on_the_device() -> Result {
    let _context = open();
    let module = good(Module::load(KERNELS))?;
    let meet = kernel(&module, "meet")?;
    let (count, seen) = (good(Buffer::new(4))?, good(Buffer::new(4000))?);
    let launch = |blocks: u32| {
        cuda::memset_d8(count.0, 0, 4);
        let (count, seen) = (count.0, seen.0);
        let mut pointers = [(&raw const count).cast::<u8>(), (&raw const seen).cast(), (&raw const blocks).cast()];
        call!(cuLaunchCooperativeKernel(
            meet.0 => usize,
            blocks => c_uint, 1 => c_uint, 1 => c_uint,
            1 => c_uint, 1 => c_uint, 1 => c_uint,
            0 => c_uint, 0 => usize, pointers.as_mut_ptr() => *mut *const u8,
        ))
    };
    for blocks in [1, 2, 31, 32, 33, 1000] {
        good(launch(blocks))?;
        assert_eq!(device_words(seen.0, blocks as usize), vec![blocks; blocks as usize]);
    }
    assert_eq!(launch(1 << 20), Err(codes::COOPERATIVE_LAUNCH_TOO_LARGE));
    Ok(())
}

/// pycuda sets a block shape before each launch.
#[test]
fn the_block_shape_is_that_of_the_launch_and_not_one_that_was_set_before() -> Result {
    simulated!("drivers of CUDA 13 may lack it");
    let _context = open();
    let module = good(Module::load(KERNELS))?;
    let add_one = kernel(&module, "add_one")?;
    let values = good(Buffer::new(400))?;
    cuda::memset_d8(values.0, 0, 400);
    let set_block = |x: i32| call!(cuFuncSetBlockShape(add_one.0 => usize, x => i32, 1 => i32, 1 => i32));
    good(set_block(10))?;
    assert_eq!(set_block(0), Err(codes::INVALID_VALUE));
    good(add_one.launch(Shape::block(50), 0, &[values.0, 100]))?;
    assert_eq!(device_words(values.0, 100), (0..100).map(|i| u32::from(i < 50)).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn work_on_a_stream_is_done_in_order_with_kernels_among_it() -> Result {
    let _context = open();
    let module = good(Module::load(KERNELS))?;
    let add_one = kernel(&module, "add_one")?;
    let vulkan = Vulkan::open(0)?;
    let memory = vulkan.memory(4000)?;
    let other = good(Buffer::new(4000))?;
    let stream = Stream::create();
    for round in 0..20_u8 {
        let fill = u32::from_ne_bytes([round; 4]);
        good(call!(cuMemsetD8Async(other.0 => u64, round => u8, 4000 => usize, handle(&stream) => usize)))?;
        good(add_one.launch(Shape::threads(1000), handle(&stream), &[other.0, 1000]))?;
        cuda::copy_dtod_async(memory.address(), other.0, 4000, &stream);
        good(add_one.launch(Shape::threads(1000), handle(&stream), &[memory.address(), 1000]))?;
        stream.synchronize();
        assert_eq!(memory.read(), vec![fill + 2; 1000], "round {round}");
    }
    Ok(())
}
