//! Views of memory and of its slices in cudarc's copies and as kernel arguments.
#![expect(unsafe_code, reason = "launches a kernel")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use support::cuda::{Context, PrimaryContext, current, no_context};
use support::{Result, device_read, host_read, host_write, pattern, refused, supported};
use vkgdr::cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg};
use vkgdr::cudarc::nvrtc::Ptx;
use vkgdr::{DropPolicy, Error, Memory, MemoryKind, OpenFlags, Pool, PoolOptions, Vkgdr};

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
            stream.memcpy_htod(&floats(), &mut memory.view_mut(&stream)?)?;
            let mut back = vec![0_f32; N];
            stream.memcpy_dtoh(&memory.view(&stream)?, &mut back)?;
            stream.synchronize()?;
            assert_eq!(back, floats(), "{kind}");
            if kind.has_host_view() {
                assert_eq!(host_read(&memory, 0, N * 4)?, bytemuck::cast_slice::<f32, u8>(&floats()), "{kind}");
            }
        }
    }
    Ok(())
}

#[test]
fn cudarc_copies_from_memory_to_memory_and_to_its_own_slices() -> Result {
    let (_primary, context, gpu) = open()?;
    let stream = context.new_stream()?;
    let source = Memory::allocate(&gpu, N * 4, MAPPED)?;
    let mut target = Pool::new(&gpu, PoolOptions::new(MAPPED))?.allocate(N * 4)?;
    host_write(&source, 0, bytemuck::cast_slice(&floats()))?;

    let mut slice = stream.alloc_zeros::<f32>(N)?;
    stream.memcpy_dtod(&source.view(&stream)?, &mut slice)?;
    assert_eq!(stream.clone_dtoh(&slice)?, floats());
    stream.memcpy_dtod(&slice, &mut target.view_mut(&stream)?)?;
    stream.synchronize()?;
    assert_eq!(host_read(&target, 0, N * 4)?, bytemuck::cast_slice::<f32, u8>(&floats()));
    Ok(())
}

#[test]
fn views_of_slices_and_cudarcs_parts_of_views_cover_their_range_alone() -> Result {
    let (_primary, context, gpu) = open()?;
    let stream = context.default_stream();
    let memory = Memory::allocate(&gpu, 4097, MAPPED)?;
    let mut expected = pattern(4097, 2);
    host_write(&memory, 0, &expected)?;
    let source = memory.slice(1001..1101)?;
    let mut target = memory.slice(3000..=3099)?;

    assert_eq!(stream.clone_dtoh(&source.view::<u8>(&stream)?)?, expected[1001..1101]);
    stream.memcpy_dtod(&source.view::<u8>(&stream)?, &mut target.view_mut(&stream)?)?;
    stream.synchronize()?;
    expected.copy_within(1001..1101, 3000);
    assert!(host_read(&memory, 0, 4097)? == expected);

    let mut view = target.view_mut::<u8>(&stream)?;
    let (mut head, mut tail) = view.split_at_mut(60);
    stream.memcpy_htod(&[9_u8; 60], &mut head)?;
    stream.memcpy_htod(&[8_u8; 40], &mut tail)?;
    stream.synchronize()?;
    expected[3000..3060].fill(9);
    expected[3060..3100].fill(8);
    assert!(host_read(&memory, 0, 4097)? == expected);
    Ok(())
}

#[test]
fn lengths_are_whole_elements_and_the_rest_is_left_alone() -> Result {
    let (_primary, context, gpu) = open()?;
    let stream = context.default_stream();
    let mut memory = Memory::allocate(&gpu, 4099, MAPPED)?;
    host_write(&memory, 0, &[0x11; 4099])?;
    assert_eq!((memory.view::<u8>(&stream)?.len(), memory.view::<f32>(&stream)?.len()), (4099, 1024));
    assert_eq!(memory.slice(8..15)?.view::<u64>(&stream)?.len(), 0);
    stream.memset_zeros(&mut memory.view_mut::<u32>(&stream)?)?;
    stream.synchronize()?;
    let seen = host_read(&memory, 0, 4099)?;
    assert_eq!((&seen[..4096], &seen[4096..]), (&[0; 4096][..], &[0x11; 3][..]));
    Ok(())
}

#[test]
fn a_view_that_does_not_fit_is_refused() -> Result {
    let (_primary, context, gpu) = open()?;
    let stream = context.default_stream();
    let mut memory = Memory::allocate(&gpu, 4096, MAPPED)?;
    let error = refused(memory.slice(1..)?.view::<f32>(&stream).map(drop));
    assert!(matches!(error, Error::Misaligned { what: "the device address", unit: 4, .. }), "{error}");
    memory.bind_stream(&stream)?;
    refused(memory.slice(1..)?.view::<f32>(&context.per_thread_stream()).map(drop));
    assert_eq!(memory.drop_policy(), DropPolicy::WaitForStream, "a refused view is a use");
    let plain = Vkgdr::open(0, NONE)?;
    let _owner = Context::create(0);
    let elsewhere = Memory::allocate(&plain, 4096, MAPPED)?;
    let error = refused(elsewhere.view::<u8>(&stream).map(drop));
    assert!(matches!(error, Error::ForeignStream), "{error}");
    // cudarc sees the length of the view.
    let mut view = memory.view_mut::<f32>(&stream)?;
    let too_much = catch_unwind(AssertUnwindSafe(|| stream.memcpy_htod(&[0_f32; 1025], &mut view)));
    assert!(too_much.is_err());
    Ok(())
}

#[test]
fn views_come_and_go_whichever_context_is_current() -> Result {
    let (_primary, context, gpu) = open()?;
    let stream = context.new_stream()?;
    let other = Context::create(0);
    let memory = Memory::allocate(&Vkgdr::open_primary_context(0, NONE)?, 4096, MAPPED)?;
    assert_eq!(memory.view::<u8>(&stream)?.len(), 4096);
    assert_eq!(current(), other.raw());
    drop(memory);
    assert_eq!(current(), other.raw());
    drop(gpu);
    Ok(())
}

/// `sum[i] = a[i] + b[i]` by a kernel that takes memory of a pool and slices.
#[test]
fn a_kernel_takes_views_as_arguments() -> Result {
    let (_primary, context, gpu) = open()?;
    let stream = context.new_stream()?;
    let pool = Pool::new(&gpu, PoolOptions::new(MAPPED))?;
    let (a, b) = (pool.allocate(N * 4)?, Memory::allocate(&gpu, N * 4 + 64, MAPPED)?.slice(64..)?);
    let mut sum = Memory::allocate(&gpu, N * 4, MemoryKind::Host)?;
    for part in [&a, &b] {
        host_write(part, 0, bytemuck::cast_slice(&floats()))?;
    }
    let n = u32::try_from(N)?;
    let module = context.load_module(Ptx::from_src(include_str!("../../examples/vector_add.ptx")))?;
    let kernel = module.load_function("vector_add")?;
    let (a, b) = (a.view::<f32>(&stream)?, b.view::<f32>(&stream)?);
    let mut view = sum.view_mut::<f32>(&stream)?;
    let mut launch = stream.launch_builder(&kernel);
    launch.arg(&a).arg(&b).arg(&mut view).arg(&n);
    // SAFETY: the kernel takes three vectors of `n` floats and `n`, and stays within them.
    unsafe { launch.launch(LaunchConfig::for_num_elems(n)) }?;
    stream.synchronize()?;
    let doubled: Vec<_> = floats().iter().map(|x| x + x).collect();
    assert_eq!(host_read(&sum, 0, N * 4)?, bytemuck::cast_slice::<f32, u8>(&doubled));
    assert_eq!(device_read(sum.device_ptr(), 4), (-14.0_f32).to_ne_bytes());
    Ok(())
}

/// What a view gives away keeps its context alive, not only the handle does.
#[test]
fn a_stream_taken_from_a_view_outlives_the_memory_and_its_handle() -> Result {
    let gpu = Vkgdr::open_primary_context(0, NONE)?;
    let stream = CudaContext::new(0)?.new_stream()?;
    let memory = Memory::allocate(&gpu, 4096, MAPPED)?;
    let kept = {
        use vkgdr::cudarc::driver::DeviceSlice;
        memory.view::<u8>(&stream)?.stream().clone()
    };
    drop((memory, gpu, stream));
    no_context(|| kept.synchronize())?;
    let zeros = kept.alloc_zeros::<u8>(16)?;
    assert_eq!(kept.clone_dtoh(&zeros)?, [0; 16]);
    Ok(())
}
