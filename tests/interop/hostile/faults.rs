//! Single calls of the driver that fail.
#![expect(unsafe_code, reason = "launches kernels")]

use std::panic;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use support::blocking::{let_run, while_shut};
use support::codes::{OUT_OF_MEMORY, UNKNOWN};
use support::cuda::{Context, Gate};
use support::ledger::Calls;
use support::{Result, host_write, simcuda, skip};
use vkgdr::cudarc::driver::{CudaFunction, DevicePtr, DeviceSlice, LaunchConfig, PushKernelArg};
use vkgdr::{Memory, OpenFlags, Vkgdr};

use super::drop_under_a_kernel;
use crate::kernels::{add, assert_floats, floats, vector_add};
use crate::order::{LEN, Setup, assert_all, filled, finish, hold};

const NO_SIMULATOR: &str = "only the simulated driver's calls can be made to fail";

/// The fault that has fired; clears it, and the errors that cudarc keeps for the program.
fn fired(setup: &Setup) -> Option<String> {
    let sim = simcuda()?;
    let function = sim.last_fault();
    sim.clear_faults();
    let _kept = setup.context.check_err();
    function
}

#[test]
fn a_failure_of_one_memory_does_not_undo_the_order_of_another() -> Result {
    let Some(sim) = simcuda() else { return skip(NO_SIMULATOR) };
    let mut setup = Setup::new()?;
    let [first, second, _] = setup.streams.clone();
    let (mut gone, mut memory) = (filled(&setup.gpu, 0)?, filled(&setup.gpu, 0)?);
    // Creates all events.
    first.memset_zeros::<u8, _>(&mut memory)?;
    first.memset_zeros::<u8, _>(&mut gone)?;
    setup.context.synchronize()?;
    host_write(&memory, 0, &[7; LEN])?;
    sim.fail("cuEventDestroy", 1, UNKNOWN);
    drop(gone);
    assert_eq!(fired(&setup).as_deref(), Some("cuEventDestroy"));
    let gate = hold(&first)?;
    first.memset_zeros::<u8, _>(&mut memory)?;
    second.memcpy_dtod::<u8, _, _>(&memory, &mut setup.seen)?;
    finish(&setup, &second, gate)?;
    assert_all(&setup.seen, 0, "a read got ahead of the write before it")
}

/// A kernel behind a gate, which reads `a` without an event.
fn lose_launch(setup: &Setup, kernel: &CudaFunction, a: &Memory, b: &Memory, sum: &mut Memory) -> Result<Gate> {
    let Some(sim) = simcuda() else { return Err(NO_SIMULATOR.into()) };
    let (first, n) = (&setup.streams[0], u32::try_from(LEN / 4)?);
    let mut launch = first.launch_builder(kernel);
    (1..=2).for_each(|nth| sim.fail("cuEventCreate", nth, OUT_OF_MEMORY));
    // Waits for all work of the context.
    launch.arg(a);
    assert_eq!(fired(setup).as_deref(), Some("cuEventCreate"));
    launch.arg(b).arg(sum).arg(&n);
    let gate = hold(first)?;
    // SAFETY: the kernel takes three vectors of `n` floats and `n`, and stays within them.
    unsafe { launch.launch(LaunchConfig::for_num_elems(n)) }?;
    Ok(gate)
}

#[test]
fn bound_memory_stays_until_a_kernel_ends_whose_argument_has_no_event() -> Result {
    if simcuda().is_none() {
        return skip(NO_SIMULATOR);
    }
    let setup = Setup::new()?;
    let kernel = vector_add(&setup.context)?;
    let (a, b, mut sum) = (floats(&setup.gpu, 1.0)?, floats(&setup.gpu, 2.0)?, floats(&setup.gpu, 0.0)?);
    a.bind_stream(&setup.streams[1])?;
    let gate = lose_launch(&setup, &kernel, &a, &b, &mut sum)?;
    drop_under_a_kernel(&setup, a, gate)?;
    assert_floats(&sum, 3.0, "the kernel")
}

#[test]
fn a_write_does_not_overtake_a_kernel_whose_argument_has_no_event() -> Result {
    if simcuda().is_none() {
        return skip(NO_SIMULATOR);
    }
    let setup = Setup::new()?;
    let kernel = vector_add(&setup.context)?;
    let (mut a, b, mut sum) = (floats(&setup.gpu, 1.0)?, floats(&setup.gpu, 2.0)?, floats(&setup.gpu, 0.0)?);
    let gate = lose_launch(&setup, &kernel, &a, &b, &mut sum)?;
    while_shut(gate, || Ok(setup.streams[1].memset_zeros::<u8, _>(&mut a)?))?;
    setup.context.synchronize()?;
    assert_floats(&sum, 3.0, "a write got ahead of the kernel that reads the memory")
}

/// The waits of the next use fail, which then is in no order. The one after it is.
#[test]
fn a_kernel_whose_argument_has_no_event_is_waited_for_until_a_wait_succeeds() -> Result {
    let Some(sim) = simcuda() else { return skip(NO_SIMULATOR) };
    let mut setup = Setup::new()?;
    let kernel = vector_add(&setup.context)?;
    let second = setup.streams[1].clone();
    let (mut a, b, mut sum) = (floats(&setup.gpu, 1.0)?, floats(&setup.gpu, 2.0)?, floats(&setup.gpu, 0.0)?);
    let gate = lose_launch(&setup, &kernel, &a, &b, &mut sum)?;
    (1..=2).for_each(|nth| sim.fail("cuCtxSynchronize", nth, OUT_OF_MEMORY));
    second.memcpy_dtod::<u8, _, _>(&a, &mut setup.seen)?;
    assert_eq!(fired(&setup).as_deref(), Some("cuCtxSynchronize"));
    while_shut(gate, || Ok(second.memset_zeros::<u8, _>(&mut a)?))?;
    setup.context.synchronize()?;
    assert_floats(&sum, 3.0, "a write got ahead of the kernel that reads the memory")
}

#[test]
fn a_kernel_does_not_overtake_one_whose_argument_has_no_event() -> Result {
    if simcuda().is_none() {
        return skip(NO_SIMULATOR);
    }
    let setup = Setup::new()?;
    let kernel = vector_add(&setup.context)?;
    let (mut a, b, mut sum) = (floats(&setup.gpu, 1.0)?, floats(&setup.gpu, 2.0)?, floats(&setup.gpu, 0.0)?);
    let gate = lose_launch(&setup, &kernel, &a, &b, &mut sum)?;
    while_shut(gate, || add(&setup.streams[1], &kernel, &b, &b, &mut a))?;
    setup.context.synchronize()?;
    assert_floats(&sum, 3.0, "a kernel got ahead of the one that reads the memory")
}

/// Two uses on two threads, of which the first waits for the kernel.
#[test]
fn a_kernel_whose_argument_has_no_event_is_waited_for_by_every_thread() -> Result {
    if simcuda().is_none() {
        return skip(NO_SIMULATOR);
    }
    let mut setup = Setup::new()?;
    let kernel = vector_add(&setup.context)?;
    let [_, second, third] = setup.streams.clone();
    let (a, b, mut sum) = (floats(&setup.gpu, 1.0)?, floats(&setup.gpu, 2.0)?, floats(&setup.gpu, 0.0)?);
    let mut region = a.region(..)?;
    let gate = lose_launch(&setup, &kernel, &a, &b, &mut sum)?;
    let (waits, seen) = (Calls::of("cuCtxSynchronize"), &mut setup.seen);
    while_shut(gate, || {
        thread::scope(|scope| {
            scope.spawn(|| second.memcpy_dtod::<u8, _, _>(&a, seen));
            let_run(|| waits.count().is_some_and(|count| count > 0));
            Ok(third.memset_zeros::<u8, _>(&mut region)?)
        })
    })?;
    setup.context.synchronize()?;
    assert_floats(&sum, 3.0, "a write got ahead of the kernel that reads the memory")
}

/// Kernels after a copy are ordered by way of a stream of the order's own, which the driver refuses here.
#[test]
fn kernels_are_ordered_without_the_stream_that_joins_events() -> Result {
    let Some(sim) = simcuda() else { return skip(NO_SIMULATOR) };
    let setup = Setup::new()?;
    let kernel = vector_add(&setup.context)?;
    let [first, second, third] = setup.streams.clone();
    let (mut a, b, mut sum) = (floats(&setup.gpu, 1.0)?, floats(&setup.gpu, 2.0)?, floats(&setup.gpu, 0.0)?);
    let mut seen = floats(&setup.gpu, 0.0)?;
    // Creates the events.
    first.memcpy_dtod::<u8, _, _>(&a, &mut seen)?;
    setup.context.synchronize()?;
    let gate = hold(&third)?;
    third.memcpy_dtod::<u8, _, _>(&a, &mut seen)?;
    sim.fail("cuStreamCreate", 1, OUT_OF_MEMORY);
    while_shut(gate, || {
        add(&first, &kernel, &b, &b, &mut a)?;
        add(&second, &kernel, &a, &b, &mut sum)
    })?;
    assert_eq!(fired(&setup).as_deref(), Some("cuStreamCreate"));
    setup.context.synchronize()?;
    assert_floats(&seen, 1.0, "a kernel got ahead of the read before it")?;
    assert_floats(&sum, 6.0, "a kernel got ahead of the kernel before it")
}

/// A log line under a lock panics in debug builds (`src/lock.rs`).
#[test]
fn no_lock_is_held_over_the_log_line_of_a_context_that_was_not_left() -> Result {
    let Some(sim) = simcuda() else { return skip(NO_SIMULATOR) };
    let gpu = Vkgdr::open(0, OpenFlags::empty())?;
    let owner = Context::create(0);
    let (memory, mut target) = (filled(&gpu, 7)?, filled(&gpu, 0)?);
    let context = DeviceSlice::<u8>::stream(&memory).context().clone();
    context.new_stream()?.memcpy_dtod::<u8, _, _>(&memory, &mut target)?;
    context.synchronize()?;
    let elsewhere = Context::create(0);
    for nth in 1..6 {
        let stream = owner.with_current(|| context.new_stream())?;
        elsewhere.with_current(|| {
            sim.fail("cuCtxPopCurrent", nth, UNKNOWN);
            sim.fail("cuCtxPopCurrent", nth + 1, UNKNOWN);
            drop(DevicePtr::<u8>::device_ptr(&memory, &stream).1);
            sim.clear_faults();
        });
    }
    // Before the other context that reads it.
    drop(memory);
    Ok(())
}

/// A panic that is caught would still end a program with `panic = "abort"`.
#[test]
fn a_copy_without_an_event_does_not_panic_inside() -> Result {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let Some(sim) = simcuda() else { return skip(NO_SIMULATOR) };
    let setup = Setup::new()?;
    let mut memory = filled(&setup.gpu, 1)?;
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        hook(info);
    }));
    sim.fail("cuEventCreate", 1, OUT_OF_MEMORY);
    setup.streams[0].memset_zeros::<u8, _>(&mut memory)?;
    assert_eq!(fired(&setup).as_deref(), Some("cuEventCreate"));
    assert_eq!(PANICS.load(Ordering::SeqCst), 0, "panics within a copy");
    setup.context.synchronize()?;
    assert_all(&memory, 0, "the fill")
}

#[test]
fn the_use_of_other_memory_keeps_the_error_that_cudarc_has_for_the_program() -> Result {
    let Some(sim) = simcuda() else { return skip(NO_SIMULATOR) };
    let setup = Setup::new()?;
    let [first, second, _] = setup.streams.clone();
    let (mut one, mut other) = (filled(&setup.gpu, 0)?, filled(&setup.gpu, 0)?);
    first.memset_zeros::<u8, _>(&mut other)?;
    sim.fail("cuEventRecord", 1, UNKNOWN);
    first.memset_zeros::<u8, _>(&mut one)?;
    assert_eq!(sim.last_fault().as_deref(), Some("cuEventRecord"));
    drop(DevicePtr::<u8>::device_ptr(&other, &second).1);
    assert!(setup.context.check_err().is_err(), "the error of the record is lost");
    Ok(())
}
