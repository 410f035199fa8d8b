//! Reads by streams of another context.

use support::Result;
use support::blocking::while_shut;
use support::cuda::Context;
use vkgdr::cudarc::driver::{CudaContext, DeviceSlice};
use vkgdr::{OpenFlags, Vkgdr};

use super::{Setup, assert_all, filled, finish, hold};

#[test]
fn a_copy_to_another_context_sees_the_write_before_it() -> Result {
    let setup = Setup::new()?;
    let mut memory = filled(&setup.gpu, 0)?;
    let first = setup.streams[0].clone();
    let gpu = Vkgdr::open(0, OpenFlags::empty())?;
    let other = Context::create(0);
    let mut seen = filled(&gpu, 0xee)?;
    let stream = DeviceSlice::<u8>::stream(&seen).context().new_stream()?;
    let gate = hold(&first)?;
    first.memcpy_dtod::<u8, _, _>(&setup.ones, &mut memory)?;
    stream.memcpy_dtod::<u8, _, _>(&memory, &mut seen)?;
    finish(&setup, &stream, gate)?;
    stream.synchronize()?;
    assert_all(&seen, 1, "a copy got ahead of the write before it")?;
    // Before the context that has read it.
    drop(memory);
    drop((seen, stream));
    other.destroy();
    Ok(())
}

#[test]
fn the_default_stream_of_another_context_sees_the_write_before_it() -> Result {
    let setup = Setup::new()?;
    let mut memory = filled(&setup.gpu, 0)?;
    // Of this value there is no other stream, so that cudarc records nothing.
    let first = CudaContext::new(0)?.default_stream();
    let gpu = Vkgdr::open(0, OpenFlags::empty())?;
    let other = Context::create(0);
    let of_other = filled(&gpu, 0)?;
    let second = DeviceSlice::<u8>::stream(&of_other).clone();
    let gate = hold(&first)?;
    first.memcpy_dtod::<u8, _, _>(&setup.ones, &mut memory)?;
    let seen = while_shut(gate, || Ok(second.clone_dtoh::<u8, _>(&memory)?))?;
    assert!(seen.iter().all(|byte| *byte == 1), "a read got ahead of the write before it");
    drop((of_other, second));
    other.destroy();
    Ok(())
}
