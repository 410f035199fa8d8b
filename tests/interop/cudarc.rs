//! Memory and regions in cudarc's copies and as kernel arguments.
#![expect(unsafe_code, reason = "launches a kernel and fills memory without initialising it")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use support::cuda::{Context, PrimaryContext, current};
use support::ledger::{Calls, Live};
use support::{HOST_VIEWS, Result, device_read, host_read, host_write, pattern, supported};
use vkgdr::cudarc::driver::{CudaContext, CudaStream, DevicePtr, DeviceSlice, LaunchConfig, PushKernelArg};
use vkgdr::cudarc::nvrtc::Ptx;
use vkgdr::{DropPolicy, Memory, MemoryKind, OpenFlags, Pool, PoolOptions, Region, Vkgdr};

const NONE: OpenFlags = OpenFlags::empty();
const MAPPED: MemoryKind = MemoryKind::Mapped;
const N: usize = 1000;

/// Device 0 in cudarc's and in this crate's types, in the primary context. Drop the context last.
fn open() -> Result<(PrimaryContext, Arc<CudaContext>, Vkgdr)> {
    let (primary, gpu) = support::open(NONE)?;
    Ok((primary, CudaContext::new(0)?, gpu))
}

fn floats() -> Vec<f32> {
    (0_u16..).map(|i| f32::from(i) * 0.5 - 7.0).take(N).collect()
}

#[test]
fn cudarc_copies_floats_from_the_host_into_memory_and_back() -> Result {
    let (_primary, context, gpu) = open()?;
    for stream in [context.default_stream(), context.new_stream()?] {
        for kind in supported(&gpu, &MemoryKind::ALL) {
            let mut memory = Memory::allocate(&gpu, N * 4, kind)?;
            stream.memcpy_htod(&floats(), &mut memory)?;
            let mut back = vec![0_f32; N];
            stream.memcpy_dtoh(&memory, &mut back)?;
            stream.synchronize()?;
            assert_eq!(back, floats(), "{kind}");
            if kind.has_host_view() {
                let mut seen = vec![0_f32; N];
                memory.invalidate(..)?;
                memory.read(0, &mut seen)?;
                assert_eq!(seen, floats(), "{kind}");
            }
        }
    }
    Ok(())
}

#[test]
fn cudarc_copies_bytes_that_the_host_wrote() -> Result {
    let (_primary, context, gpu) = open()?;
    let stream = context.default_stream();
    for kind in supported(&gpu, &HOST_VIEWS) {
        let memory = Memory::allocate(&gpu, 4097, kind)?;
        host_write(&memory, 0, &pattern(4097, 1))?;
        let mut seen = vec![0_u8; 4097];
        stream.memcpy_dtoh(&memory, &mut seen)?;
        stream.synchronize()?;
        assert_eq!(seen, pattern(4097, 1), "{kind}");
        assert_eq!(stream.clone_dtoh::<u8, _>(&memory)?, pattern(4097, 1), "{kind}");
    }
    Ok(())
}

#[test]
fn cudarc_copies_from_memory_to_memory_and_to_its_own_slices() -> Result {
    let (_primary, context, gpu) = open()?;
    let stream = context.new_stream()?;
    let source = Memory::allocate(&gpu, N * 4, MAPPED)?;
    let mut target = Memory::allocate(&gpu, N * 4, MAPPED)?;
    source.write(0, &floats())?;
    source.flush(..)?;

    let mut slice = stream.alloc_zeros::<f32>(N)?;
    stream.memcpy_dtod(&source, &mut slice)?;
    assert_eq!(stream.clone_dtoh(&slice)?, floats());
    stream.memcpy_dtod(&slice, &mut target)?;
    stream.synchronize()?;
    assert_eq!(host_read(&target, 0, N * 4)?, bytemuck::cast_slice::<f32, u8>(&floats()));

    let mut third = Memory::allocate(&gpu, N * 4, MAPPED)?;
    stream.memcpy_dtod::<u8, _, _>(&source, &mut third)?;
    stream.synchronize()?;
    assert_eq!(host_read(&third, 0, N * 4)?, bytemuck::cast_slice::<f32, u8>(&floats()));
    Ok(())
}

#[test]
fn cudarc_copies_regions_and_nothing_beside_them() -> Result {
    let (_primary, context, gpu) = open()?;
    let stream = context.default_stream();
    let memory = Memory::allocate(&gpu, 4097, MAPPED)?;
    let mut expected = pattern(4097, 2);
    host_write(&memory, 0, &expected)?;
    let source = memory.region(1001..1101)?;
    let mut target = memory.region(3000..=3099)?;

    assert_eq!(stream.clone_dtoh::<u8, _>(&source)?, expected[1001..1101]);
    stream.memcpy_dtod::<u8, _, _>(&source, &mut target)?;
    stream.synchronize()?;
    expected.copy_within(1001..1101, 3000);
    assert!(host_read(&memory, 0, 4097)? == expected);

    stream.memcpy_htod(&[9_u8; 100], &mut target)?;
    stream.synchronize()?;
    expected[3000..3100].fill(9);
    assert!(host_read(&memory, 0, 4097)? == expected);
    Ok(())
}

#[test]
fn lengths_are_whole_elements() -> Result {
    let (_primary, _context, gpu) = open()?;
    let memory = Memory::allocate(&gpu, 4097, MAPPED)?;
    assert_eq!(DeviceSlice::<u8>::len(&memory), 4097);
    assert_eq!(DeviceSlice::<f32>::len(&memory), 1024);
    assert_eq!(DeviceSlice::<u64>::num_bytes(&memory), 4096);
    let region = memory.region(1..8)?;
    assert_eq!(DeviceSlice::<u32>::len(&region), 1);
    assert_eq!(DeviceSlice::<u64>::len(&region), 0);
    Ok(())
}

#[test]
fn bytes_that_make_no_whole_element_are_left_alone() -> Result {
    let (_primary, context, gpu) = open()?;
    let stream = context.default_stream();
    let mut memory = Memory::allocate(&gpu, 4099, MAPPED)?;
    host_write(&memory, 0, &[0x11; 4099])?;
    let source = stream.alloc_zeros::<u32>(1024)?;
    stream.memcpy_dtod(&source, &mut memory)?;
    stream.synchronize()?;
    let seen = host_read(&memory, 0, 4099)?;
    assert_eq!((&seen[..4096], &seen[4096..]), (&[0; 4096][..], &[0x11; 3][..]));
    Ok(())
}

#[test]
fn the_stream_of_memory_is_of_its_own_context() -> Result {
    let (_primary, context, gpu) = open()?;
    let memory = Memory::allocate(&gpu, 4096, MAPPED)?;
    let stream = DeviceSlice::<u8>::stream(&memory);
    assert_eq!(stream.context().cu_ctx(), memory.context());
    assert_eq!(**stream.context(), *context);
    let region = memory.region(3..7)?;
    assert_eq!(DeviceSlice::<u8>::stream(&region).context().cu_ctx(), memory.context());
    Ok(())
}

#[test]
fn asking_for_the_stream_leaves_the_current_context_alone() -> Result {
    let gpu = Vkgdr::open_primary_context(0, NONE)?;
    let memory = Memory::allocate(&gpu, 4096, MAPPED)?;
    let other = Context::create(0);
    let stream = DeviceSlice::<u8>::stream(&memory);
    assert_eq!(stream.context().cu_ctx(), memory.context());
    assert_eq!(current(), other.raw());
    Ok(())
}

#[test]
fn memory_of_a_context_that_cudarc_did_not_make_is_copied_too() -> Result {
    let gpu = Vkgdr::open(0, NONE)?;
    let owner = Context::create(0);
    let before = Live::now();
    let memory = Memory::allocate(&gpu, N * 4, MAPPED)?;
    memory.write(0, &floats())?;
    memory.flush(..)?;
    let stream = DeviceSlice::<f32>::stream(&memory).clone();
    assert_eq!(stream.clone_dtoh::<f32, _>(&memory)?, floats());
    drop(stream);
    drop(memory);
    // Dropping cudarc's context object does not destroy the context.
    assert_eq!(current(), owner.raw());
    assert_eq!(Live::now(), before);
    owner.destroy();
    Ok(())
}

#[test]
fn asking_for_the_stream_of_memory_whose_context_is_gone_panics_with_the_reason() -> Result {
    let gpu = Vkgdr::open(0, NONE)?;
    let context = Context::create(0);
    let memory = Memory::allocate(&gpu, 4096, MAPPED)?;
    context.destroy();
    let panic = catch_unwind(AssertUnwindSafe(|| DeviceSlice::<u8>::stream(&memory).cu_stream()));
    let text = panic.err().and_then(|panic| panic.downcast::<String>().ok()).ok_or("it did not panic with a text")?;
    assert!(text.contains("cudarc cannot use the memory's CUDA context"), "{text}");
    // Other memory still works.
    let _other = Context::create(0);
    let memory = Memory::allocate(&gpu, 4096, MAPPED)?;
    assert_eq!(DeviceSlice::<u8>::stream(&memory).context().cu_ctx(), memory.context());
    Ok(())
}

/// A copy by cudarc on a stream, with its name.
type Use = (&'static str, fn(&Arc<CudaStream>, &mut Memory) -> Result);

fn uses() -> [Use; 4] {
    [
        ("memcpy_htod", |stream, memory| Ok(stream.memcpy_htod(&[1_u8; 16], memory)?)),
        ("memcpy_dtoh", |stream, memory| Ok(stream.memcpy_dtoh(&*memory, &mut [0_u8; 4096])?)),
        ("memcpy_dtoh of a region", |stream, memory| Ok(stream.memcpy_dtoh(&memory.region(1..9)?, &mut [0_u8; 8])?)),
        ("memcpy_htod to a region", |stream, memory| Ok(stream.memcpy_htod(&[7_u8; 8], &mut memory.region(1..9)?)?)),
    ]
}

#[test]
fn a_copy_on_another_stream_than_the_bound_one_makes_the_drop_wait_for_the_context() -> Result {
    let (_primary, context, gpu) = open()?;
    let (bound, other) = (context.new_stream()?, context.new_stream()?);
    for (name, copy) in uses() {
        let mut memory = Memory::allocate(&gpu, 4096, MAPPED)?;
        memory.bind_stream(&bound)?;
        copy(&bound, &mut memory)?;
        assert_eq!(memory.drop_policy(), DropPolicy::WaitForStream, "{name} on the bound stream");
        copy(&other, &mut memory)?;
        assert_eq!(memory.drop_policy(), DropPolicy::WaitForContext, "{name} on another stream");
        // A new binding does not clear the use by the other stream.
        memory.bind_stream(&bound)?;
        memory.bind_stream(&other)?;
        assert_eq!(memory.drop_policy(), DropPolicy::WaitForContext, "{name}, bound again");
    }
    Ok(())
}

#[test]
fn a_copy_before_the_binding_makes_the_drop_wait_for_the_context() -> Result {
    let (_primary, context, gpu) = open()?;
    let (bound, other) = (context.new_stream()?, context.new_stream()?);
    for (name, copy) in uses() {
        let mut memory = Memory::allocate(&gpu, 4096, MAPPED)?;
        copy(&other, &mut memory)?;
        memory.bind_stream(&bound)?;
        assert_eq!(memory.drop_policy(), DropPolicy::WaitForContext, "{name}");
    }
    Ok(())
}

#[test]
fn a_copy_on_a_stream_of_another_context_has_finished_when_it_returns() -> Result {
    let gpu = Vkgdr::open(0, NONE)?;
    let _owner = Context::create(0);
    let mut memory = Memory::allocate(&gpu, 4096, MAPPED)?;
    let stream = CudaContext::new(0)?.new_stream()?;
    let waits = Calls::of("cuStreamSynchronize");
    stream.memcpy_htod(&pattern(4096, 3), &mut memory)?;
    assert!(waits.count().is_none_or(|count| count > 0), "the release would not wait for that context");
    assert_eq!(host_read(&memory, 0, 4096)?, pattern(4096, 3));
    Ok(())
}

#[test]
fn a_copy_of_memory_whose_context_is_gone_is_refused_by_the_driver() -> Result {
    let gpu = Vkgdr::open(0, NONE)?;
    let lost = Context::create(0);
    let mut memory = Memory::allocate(&gpu, 4096, MAPPED)?;
    lost.destroy();
    let (_primary, context, _gpu) = open()?;
    let stream = context.new_stream()?;
    // Its address may belong to other memory by now.
    assert_eq!(DevicePtr::<u8>::device_ptr(&memory, &stream).0, 0);
    assert!(stream.memcpy_htod(&[1_u8; 16], &mut memory).is_err());
    assert!(stream.memcpy_dtoh(&memory, &mut vec![0_u8; 4096]).is_err());
    stream.synchronize()?;
    Ok(())
}

#[test]
fn copies_leave_the_other_policies_as_they_are() -> Result {
    let (_primary, context, gpu) = open()?;
    let stream = context.new_stream()?;
    for (name, copy) in uses() {
        let mut memory = Memory::allocate(&gpu, 4096, MAPPED)?;
        copy(&stream, &mut memory)?;
        assert_eq!(memory.drop_policy(), DropPolicy::WaitForContext, "{name}");
        // SAFETY: the stream is synchronised before the memory is dropped.
        unsafe { memory.release_immediately() };
        copy(&stream, &mut memory)?;
        assert_eq!(memory.drop_policy(), DropPolicy::Immediate, "{name}");
        stream.synchronize()?;
    }
    Ok(())
}

#[test]
fn a_slice_that_is_too_short_for_the_copy_is_refused_by_cudarc() -> Result {
    let (_primary, context, gpu) = open()?;
    let stream = context.default_stream();
    let mut memory = Memory::allocate(&gpu, 4096, MAPPED)?;
    let too_much = catch_unwind(AssertUnwindSafe(|| stream.memcpy_htod(&[0_u8; 4097], &mut memory)));
    assert!(too_much.is_err(), "cudarc sees the length in bytes");
    let too_much = catch_unwind(AssertUnwindSafe(|| stream.memcpy_htod(&[0_f32; 1025], &mut memory)));
    assert!(too_much.is_err(), "cudarc sees the length in elements");
    Ok(())
}

/// `sum[i] = a[i] + b[i]` by a kernel that takes memory and regions as arguments.
fn add(stream: &Arc<CudaStream>, a: &Memory, b: &Region, sum: &mut Memory) -> Result {
    let n = u32::try_from(N)?;
    let module = stream.context().load_module(Ptx::from_src(include_str!("../../examples/vector_add.ptx")))?;
    let kernel = module.load_function("vector_add")?;
    let mut launch = stream.launch_builder(&kernel);
    launch.arg(a).arg(b).arg(sum).arg(&n);
    // SAFETY: the kernel takes three vectors of `n` floats and `n`, and stays within them.
    unsafe { launch.launch(LaunchConfig::for_num_elems(n)) }?;
    Ok(stream.synchronize()?)
}

#[test]
fn a_kernel_takes_memory_and_regions_as_arguments() -> Result {
    let (_primary, context, gpu) = open()?;
    let stream = context.new_stream()?;
    let a = Memory::allocate(&gpu, N * 4, MAPPED)?;
    let b = Memory::allocate(&gpu, N * 4 + 64, MAPPED)?;
    let b = b.region(64..)?;
    let mut sum = Memory::allocate(&gpu, N * 4, MemoryKind::Host)?;
    for part in [&a as &Region, &b] {
        part.write(0, &floats())?;
        part.flush(..)?;
    }
    add(&stream, &a, &b, &mut sum)?;
    let mut seen = vec![0_f32; N];
    sum.invalidate(..)?;
    sum.read(0, &mut seen)?;
    assert_eq!(seen, floats().iter().map(|x| x + x).collect::<Vec<_>>());
    assert_eq!(device_read(Region::device_ptr(&sum), 4), (-14.0_f32).to_ne_bytes());
    Ok(())
}

#[test]
fn a_device_pointer_needs_no_stream_although_cudarcs_trait_is_in_scope() -> Result {
    let (_primary, gpu) = support::open(OpenFlags::empty())?;
    let memory = Pool::new(&gpu, PoolOptions::default())?.allocate(100)?;
    assert_eq!(memory.device_ptr(), memory.region(..)?.device_ptr());
    Ok(())
}
