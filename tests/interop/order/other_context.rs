//! Reads by streams of another context.

use support::blocking::while_shut;
use support::codes::OUT_OF_MEMORY;
use support::cuda::{Context, CudaMemory, Stream};
use support::{Result, simcuda, skip};
use vkgdr::cudarc::driver::{CudaContext, DevicePtr, DeviceSlice, result};
use vkgdr::{OpenFlags, Vkgdr};

use super::{LEN, Setup, assert_all, filled, finish, hold};

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

#[test]
fn a_write_waits_for_another_context_where_the_driver_refuses_events() -> Result {
    let Some(sim) = simcuda() else { return skip("only the simulated driver refuses events") };
    let setup = Setup::new()?;
    let mut memory = filled(&setup.gpu, 1)?;
    let (first, own) = (&setup.streams[0], DeviceSlice::<u8>::stream(&memory).clone());
    let other = Context::create(0);
    let (stream, copied) = (Stream::create(), CudaMemory::device(LEN));
    let gate = stream.hold();
    {
        let (from, _guard) = DevicePtr::<u8>::device_ptr(&memory, &own);
        // SAFETY: both have this length, and outlive the copy.
        unsafe { result::memcpy_dtod_async(copied.address(), from, LEN, stream.raw()) }?;
    }
    setup.context.bind_to_thread()?;
    // The order is tried to be made twice.
    for nth in [1, 2] {
        sim.fail("cuEventCreate", nth, OUT_OF_MEMORY);
    }
    while_shut(gate, || Ok(first.memset_zeros::<u8, _>(&mut memory)?))?;
    assert_eq!(sim.last_fault().as_deref(), Some("cuEventCreate"));
    sim.clear_faults();
    setup.context.synchronize()?;
    other.with_current(|| -> Result {
        stream.synchronize();
        assert!(support::device_read(copied.address(), LEN) == [1; LEN], "the write got ahead of the read before it");
        drop((copied, stream));
        Ok(())
    })?;
    assert_all(&memory, 0, "the write")?;
    drop(memory);
    other.destroy();
    Ok(())
}
