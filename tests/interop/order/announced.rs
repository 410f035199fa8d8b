//! Uses that one thread announces, by taking the device pointer, before another thread's use, and submits after it. They are
//! on a default stream on which cudarc records nothing, since its context has no other stream.

use support::Result;
use support::cuda::CudaMemory;
use vkgdr::cudarc::driver::{CudaContext, DevicePtr, DevicePtrMut, result};
use vkgdr::{Memory, MemoryKind};

use super::{LEN, Setup, assert_all, filled, finish, hold};

#[test]
fn a_later_read_sees_a_write_that_was_submitted_after_a_read_of_another_region() -> Result {
    let mut setup = Setup::new()?;
    let [first, second, _] = setup.streams.clone();
    let default = CudaContext::new(0)?.default_stream();
    let memory = Memory::allocate(&setup.gpu, 2 * LEN, MemoryKind::Mapped)?;
    let (mut written, read) = (memory.region(..LEN)?, memory.region(LEN..)?);
    let (to, guard) = DevicePtrMut::<u8>::device_ptr_mut(&mut written, &default);
    first.memcpy_dtod::<u8, _, _>(&read, &mut setup.seen)?;
    first.synchronize()?;
    let gate = hold(&default)?;
    // SAFETY: the region's bytes, on the stream for which the pointer was taken.
    unsafe { result::memset_d8_async(to, 7, LEN, default.cu_stream()) }?;
    drop(guard);
    second.memcpy_dtod::<u8, _, _>(&written, &mut setup.seen)?;
    finish(&setup, &second, gate)?;
    assert_all(&setup.seen, 7, "a read got ahead of the write before it")
}

#[test]
fn a_later_write_waits_for_a_read_that_was_submitted_after_another_read() -> Result {
    let mut setup = Setup::new()?;
    let [first, second, _] = setup.streams.clone();
    let default = CudaContext::new(0)?.default_stream();
    let (mut memory, twos) = (filled(&setup.gpu, 0)?, filled(&setup.gpu, 2)?);
    let copied = CudaMemory::device(LEN);
    default.memcpy_dtod::<u8, _, _>(&setup.ones, &mut memory)?;
    let (from, guard) = DevicePtr::<u8>::device_ptr(&memory, &default);
    first.memcpy_dtod::<u8, _, _>(&memory, &mut setup.seen)?;
    first.synchronize()?;
    let gate = hold(&default)?;
    // SAFETY: both have this length, and the stream is that for which the pointer was taken.
    unsafe { result::memcpy_dtod_async(copied.address(), from, LEN, default.cu_stream()) }?;
    drop(guard);
    second.memcpy_dtod::<u8, _, _>(&twos, &mut memory)?;
    finish(&setup, &second, gate)?;
    assert!(support::device_read(copied.address(), LEN) == [1; LEN], "a write got ahead of the read before it");
    assert_all(&memory, 2, "the write")
}
