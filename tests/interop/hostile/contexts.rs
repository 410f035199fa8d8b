//! Contexts that are current, destroyed or of a forked process.

use std::any::Any;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use support::cuda::{Context, current};
use support::ledger::Calls;
use support::{Result, fork};
use vkgdr::cudarc::driver::{CudaContext, DevicePtr, DevicePtrMut, DeviceSlice, DriverError, PushKernelArg};
use vkgdr::{OpenFlags, Vkgdr};

use crate::kernels::{add, floats, vector_add};
use crate::order::{Setup, filled, hold};

/// Keeps what is destroyed with its context, which its drop would destroy once more.
fn never_dropped<T: Send + Sync + 'static>(value: T) -> &'static T {
    static KEPT: Mutex<Vec<&'static (dyn Any + Send + Sync)>> = Mutex::new(Vec::new());
    let value: &'static T = Box::leak(Box::new(value));
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(value);
    value
}

#[test]
fn arguments_leave_the_current_context_alone() -> Result {
    let setup = Setup::new()?;
    let kernel = vector_add(&setup.context)?;
    let [first, second, third] = setup.streams.clone();
    let (mut memory, mut target) = (filled(&setup.gpu, 0)?, filled(&setup.gpu, 0)?);
    first.memcpy_dtod::<u8, _, _>(&memory, &mut target)?;
    let gate = hold(&second)?;
    second.memcpy_dtod::<u8, _, _>(&memory, &mut target)?;
    let other = Context::create(0);
    third.launch_builder(&kernel).arg(&memory);
    assert_eq!(current(), other.raw(), "after an argument that is read");
    third.launch_builder(&kernel).arg(&mut memory);
    assert_eq!(current(), other.raw(), "after an argument that is written");
    gate.open();
    drop(memory);
    assert_eq!(current(), other.raw(), "after the drop");
    Ok(())
}

#[test]
fn bound_memory_of_a_destroyed_context_is_dropped_without_a_query_of_its_events() -> Result {
    let gpu = Vkgdr::open(0, OpenFlags::empty())?;
    let owner = Context::create(0);
    let (a, b, mut sum) = (floats(&gpu, 1.0)?, floats(&gpu, 2.0)?, floats(&gpu, 0.0)?);
    let context = DeviceSlice::<u8>::stream(&a).context().clone();
    let streams = never_dropped([context.new_stream()?, context.new_stream()?]);
    let kernel = never_dropped(vector_add(&context)?);
    a.bind_stream(&streams[0])?;
    add(&streams[1], kernel, &a, &b, &mut sum)?;
    context.synchronize()?;
    owner.destroy();
    let queries = Calls::of("cuEventQuery");
    drop(a);
    queries.assert(0, "the events were destroyed with their context");
    Ok(())
}

#[test]
fn an_argument_of_a_destroyed_context_is_lent_without_a_query_of_its_events() -> Result {
    let gpu = Vkgdr::open(0, OpenFlags::empty())?;
    let owner = Context::create(0);
    let (mut memory, mut target) = (filled(&gpu, 1)?, filled(&gpu, 2)?);
    let context = DeviceSlice::<u8>::stream(&memory).context().clone();
    let streams = never_dropped([context.new_stream()?, context.new_stream()?]);
    for stream in streams {
        stream.memcpy_dtod::<u8, _, _>(&memory, &mut target)?;
    }
    context.synchronize()?;
    owner.destroy();
    let live = CudaContext::new(0)?;
    let (stream, kernel) = (live.new_stream()?, vector_add(&live)?);
    let queries = Calls::of("cuEventQuery");
    stream.launch_builder(&kernel).arg(&mut memory);
    queries.assert(0, "the events were destroyed with their context");
    Ok(())
}

#[test]
fn a_drop_destroys_nothing_that_a_destroyed_context_took_along() -> Result {
    let gpu = Vkgdr::open(0, OpenFlags::empty())?;
    let owner = Context::create(0);
    let (memory, mut target) = (filled(&gpu, 1)?, filled(&gpu, 2)?);
    let context = DeviceSlice::<u8>::stream(&memory).context().clone();
    let kernel = never_dropped(vector_add(&context)?);
    let streams: Vec<_> = (0..5).map(|_| context.new_stream()).collect::<std::result::Result<_, DriverError>>()?;
    for stream in never_dropped(streams) {
        stream.memcpy_dtod::<u8, _, _>(&memory, &mut target)?;
        stream.launch_builder(kernel).arg(&memory);
    }
    context.synchronize()?;
    owner.destroy();
    let calls = ["cuEventDestroy", "cuStreamDestroy", "cuCtxDestroy", "cuEventQuery"].map(Calls::of);
    drop((memory, target));
    calls.iter().for_each(|calls| calls.assert(0, "the context is gone"));
    Ok(())
}

#[test]
fn a_context_that_a_program_keeps_longer_than_the_memory_is_freed_and_not_destroyed() -> Result {
    let gpu = Vkgdr::open(0, OpenFlags::empty())?;
    let owner = Context::create(0);
    let destroyed = Calls::of("cuCtxDestroy");
    // A later one frees those before it.
    let mut ended = Vec::new();
    for _ in 0..3 {
        let memory = filled(&gpu, 1)?;
        let context = DeviceSlice::<u8>::stream(&memory).context().clone();
        drop(memory);
        context.synchronize()?;
        ended.iter().for_each(|ended: &Weak<CudaContext>| assert_eq!(ended.strong_count(), 0));
        ended.push(Arc::downgrade(&context));
    }
    destroyed.assert(0, "the context is the program's");
    owner.destroy();
    Ok(())
}

#[test]
fn a_forked_child_that_uses_and_drops_memory_calls_no_driver() -> Result {
    let setup = Setup::new()?;
    let kernel = vector_add(&setup.context)?;
    let stream = setup.streams[0].clone();
    let (mut used, mut fresh) = (filled(&setup.gpu, 0)?, filled(&setup.gpu, 0)?);
    stream.memset_zeros::<u8, _>(&mut used)?;
    stream.launch_builder(&kernel).arg(&used);
    setup.context.synchronize()?;
    fork::in_quiet_child(|| {
        for memory in [&mut used, &mut fresh] {
            // cudarc's guards record events when they are dropped.
            let _forgotten = ManuallyDrop::new(DevicePtr::<u8>::device_ptr(&*memory, &stream).1);
            let _forgotten = ManuallyDrop::new(DevicePtrMut::<u8>::device_ptr_mut(memory, &stream).1);
            stream.launch_builder(&kernel).arg(&*memory);
            stream.launch_builder(&kernel).arg(memory);
        }
        drop((used, fresh));
        Ok(())
    })
}

/// A release waits for the contexts that have read, and names none that is gone, to the driver.
#[test]
fn memory_is_freed_after_a_context_that_read_it_was_destroyed() -> Result {
    let gpu = Vkgdr::open(0, OpenFlags::empty())?;
    let owner = Context::create(0);
    let memory = filled(&gpu, 1)?;
    let own = DeviceSlice::<u8>::stream(&memory).context().new_stream()?;
    let mut region = memory.region(..)?;
    let reader = Context::create(0);
    // As cudarc asks for a copy to the current context.
    drop(DevicePtr::<u8>::device_ptr(&memory, DeviceSlice::<u8>::stream(&memory)).1);
    own.memset_zeros::<u8, _>(&mut region)?;
    own.synchronize()?;
    reader.destroy();
    drop(region);
    memory.free()?;
    // The stream before its context.
    drop(own);
    drop(owner);
    Ok(())
}
