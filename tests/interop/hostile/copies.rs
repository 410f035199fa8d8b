//! Copies, and the guards that cudarc keeps for their duration.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::thread;

use support::blocking::let_run;
use support::{Result, host_write};
use vkgdr::Region;
use vkgdr::cudarc::driver::{CudaContext, CudaStream, DevicePtr, DevicePtrMut, DriverError};

use super::new_pool;
use crate::kernels::{add, assert_floats, floats, vector_add};
use crate::order::{LEN, Setup, assert_all, filled, finish, hold};

#[test]
fn a_forgotten_guard_does_not_end_an_earlier_write() -> Result {
    let mut setup = Setup::new()?;
    let [first, second, third] = setup.streams.clone();
    let mut memory = filled(&setup.gpu, 0)?;
    let gate = hold(&first)?;
    first.memcpy_dtod::<u8, _, _>(&setup.ones, &mut memory)?;
    let _forgotten = ManuallyDrop::new(DevicePtrMut::<u8>::device_ptr_mut(&mut memory, &second).1);
    third.memcpy_dtod::<u8, _, _>(&memory, &mut setup.seen)?;
    finish(&setup, &third, gate)?;
    assert_all(&setup.seen, 1, "a read got ahead of the write before it")
}

#[test]
fn a_forgotten_guard_does_not_end_an_earlier_read() -> Result {
    let mut setup = Setup::new()?;
    let [first, second, third] = setup.streams.clone();
    let mut memory = filled(&setup.gpu, 0)?;
    let gate = hold(&first)?;
    first.memcpy_dtod::<u8, _, _>(&memory, &mut setup.seen)?;
    let _forgotten = ManuallyDrop::new(DevicePtrMut::<u8>::device_ptr_mut(&mut memory, &second).1);
    third.memcpy_dtod::<u8, _, _>(&setup.ones, &mut memory)?;
    finish(&setup, &third, gate)?;
    assert_all(&setup.seen, 0, "a write got ahead of the read before it")
}

/// Two threads that read need no order: the calls of a copy and of a launch may interleave.
#[test]
fn a_guard_held_over_a_launch_does_not_end_the_read_of_its_kernel() -> Result {
    let setup = Setup::new()?;
    let kernel = vector_add(&setup.context)?;
    let [first, second, third] = setup.streams.clone();
    let (mut a, b, mut sum) = (floats(&setup.gpu, 1.0)?, floats(&setup.gpu, 2.0)?, floats(&setup.gpu, 0.0)?);
    let gate = hold(&second)?;
    let (_, guard) = DevicePtr::<u8>::device_ptr(&a, &first);
    add(&second, &kernel, &a, &b, &mut sum)?;
    drop(guard);
    third.memset_zeros::<u8, _>(&mut a)?;
    finish(&setup, &third, gate)?;
    assert_floats(&sum, 3.0, "a write got ahead of the kernel that reads the memory")
}

#[test]
fn memory_lent_again_and_bound_to_another_stream_is_used_after_its_last_holder() -> Result {
    let mut setup = Setup::new()?;
    let [first, second, _] = setup.streams.clone();
    let pool = new_pool(&setup.gpu)?;
    let chunk = pool.allocate_on(LEN, &first)?;
    host_write(&chunk, 0, &[7; LEN])?;
    let address = Region::device_ptr(&chunk);
    let gate = hold(&first)?;
    first.memcpy_dtod::<u8, _, _>(&chunk, &mut setup.seen)?;
    drop(chunk);
    let mut chunk = pool.allocate_on(LEN, &first)?;
    assert_eq!(Region::device_ptr(&chunk), address, "not reused on its stream");
    chunk.bind_stream(&second)?;
    second.memset_zeros::<u8, _>(&mut chunk)?;
    finish(&setup, &second, gate)?;
    assert_all(&setup.seen, 7, "a write got ahead of the last holder's read")
}

/// A wait under a lock panics in debug builds (`src/lock.rs`). The default stream's use has no event: it is waited for.
#[test]
fn no_lock_is_held_over_the_wait_for_a_use_without_an_event() -> Result {
    let setup = Setup::new()?;
    let (mut memory, mut target) = (filled(&setup.gpu, 0)?, filled(&setup.gpu, 0)?);
    // More than the order tells apart.
    let streams: Vec<Arc<CudaStream>> =
        (0..70).map(|_| setup.context.new_stream()).collect::<std::result::Result<_, DriverError>>()?;
    for stream in &streams {
        stream.memcpy_dtod::<u8, _, _>(&memory, &mut target)?;
    }
    CudaContext::new(0)?.default_stream().memcpy_dtod::<u8, _, _>(&setup.ones, &mut memory)?;
    streams[0].memcpy_dtod::<u8, _, _>(&memory, &mut target)?;
    setup.context.synchronize()?;
    assert_all(&target, 1, "the copy of the default stream's bytes")
}

/// The handle of the per-thread default stream stands for another stream in each thread.
#[test]
fn the_per_thread_default_streams_of_two_threads_are_ordered() -> Result {
    let setup = Setup::new()?;
    let (mut memory, mut target) = (filled(&setup.gpu, 0)?, filled(&setup.gpu, 0xee)?);
    let stream = setup.context.per_thread_stream();
    let gate = hold(&stream)?;
    stream.memcpy_dtod::<u8, _, _>(&setup.ones, &mut memory)?;
    let read = || {
        stream.memcpy_dtod::<u8, _, _>(&memory, &mut target)?;
        let done = stream.record_event(None)?;
        let_run(|| done.is_complete());
        Ok::<_, DriverError>(())
    };
    thread::scope(|scope| scope.spawn(read).join()).map_err(|_| "a thread panicked")??;
    gate.open();
    setup.context.synchronize()?;
    assert_all(&target, 1, "a read got ahead of the write of another thread")
}
