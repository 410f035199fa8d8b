//! Sweeps: each call of the driver within a use, or within a drop, fails in turn.

use std::sync::Arc;

use support::blocking::while_shut;
use support::codes::UNKNOWN;
use support::cuda::current;
use support::{Result, SimCuda, simcuda, skip};
use vkgdr::Memory;
use vkgdr::cudarc::driver::{CudaFunction, CudaStream, DriverError, PushKernelArg};

use super::let_run_briefly;
use crate::kernels::{add, assert_floats, floats, set_floats, vector_add};
use crate::order::{Setup, filled, hold};

const NO_SIMULATOR: &str = "only the simulated driver's calls can be made to fail";
/// An upper bound of the calls of any operation.
const ENDLESS: u64 = 200;

/// Fails the first call of an operation, then the second, and so on to the last. The operation clears the fault, which it
/// may set as late as it likes, and returns the function that failed.
fn sweep(operation: impl Fn(&SimCuda, u64) -> Result<Option<String>>) -> Result {
    let Some(sim) = simcuda() else { return skip(NO_SIMULATOR) };
    for nth in 1..ENDLESS {
        if operation(sim, nth)?.is_none() {
            assert!(nth > 1, "no call failed");
            return Ok(());
        }
    }
    panic!("{ENDLESS} calls are too many")
}

/// Clears the fault. Returns the function that failed.
fn fired(sim: &SimCuda) -> Option<String> {
    let function = sim.last_fault();
    sim.clear_faults();
    function
}

/// Waits for all streams, without the error that cudarc may keep of the call that failed.
fn settle(setup: &Setup) -> std::result::Result<(), DriverError> {
    let _kept = setup.context.check_err();
    setup.context.synchronize()
}

/// A use of the first memory, which holds fives. `seen` holds ones.
type Use = fn(&Setup, &CudaFunction, &Arc<CudaStream>, &mut Memory, &mut Memory) -> Result;

const COPY_READS: Use = |_, _, stream, memory, target| Ok(stream.memcpy_dtod::<u8, _, _>(memory, target)?);
const FILL_WRITES_ZEROS: Use = |_, _, stream, memory, _| Ok(stream.memset_zeros::<u8, _>(memory)?);
const KERNEL_READS_AND_ADDS_ONE: Use =
    |setup, kernel, stream, memory, sum| add(stream, kernel, memory, &setup.seen, sum);
const KERNEL_WRITES_TWOS: Use =
    |setup, kernel, stream, memory, _| add(stream, kernel, &setup.seen, &setup.seen, memory);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Failing {
    Earlier,
    Later,
}

/// The memory before the uses.
#[derive(Clone, Copy, Debug)]
enum Before {
    New,
    /// There is a region of it, and a third stream has read it.
    Shared,
}

/// Makes a call of one of two uses fail.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    before: Before,
    failing: Failing,
    nth: u64,
}

/// Two uses that must keep their order.
struct Pair {
    earlier: Use,
    later: Use,
    /// The target's values at the end.
    expected: f32,
}

impl Pair {
    /// Runs both uses while a gate holds the first, and makes one of their calls fail.
    fn run(&self, setup: &Setup, kernel: &CudaFunction, sim: &SimCuda, attempt: Attempt) -> Result<Option<String>> {
        let [first, second, third] = &setup.streams;
        let (mut memory, mut target) = (floats(&setup.gpu, 5.0)?, floats(&setup.gpu, 9.0)?);
        let shared = match attempt.before {
            Before::New => None,
            Before::Shared => {
                third.memcpy_dtod::<u8, _, _>(&memory, &mut floats(&setup.gpu, 0.0)?)?;
                third.synchronize()?;
                Some(memory.region(..)?)
            }
        };
        let mut function = None;
        let gate = hold(first)?;
        let succeeded = while_shut(gate, || {
            let mut perform = |which, call: Use, stream| {
                if attempt.failing == which {
                    sim.fail("*", attempt.nth, UNKNOWN);
                }
                let result = call(setup, kernel, stream, &mut memory, &mut target);
                if attempt.failing == which {
                    function = fired(sim);
                }
                result.is_ok()
            };
            let succeeded =
                perform(Failing::Earlier, self.earlier, first) & perform(Failing::Later, self.later, second);
            // Else it has returned the error that cudarc kept.
            if let Ok(done) = second.record_event(None) {
                let_run_briefly(|| done.is_complete());
            }
            Ok(succeeded)
        })?;
        settle(setup)?;
        drop(shared);
        if succeeded {
            assert_floats(&target, self.expected, &format!("{function:?} failed silently in {attempt:?}"))?;
        }
        Ok(function)
    }

    /// A call that fails may change the order of the uses only if one of them returns an error.
    fn keeps_its_order(&self) -> Result {
        let setup = Setup::new()?;
        set_floats(&setup.seen, 1.0)?;
        let kernel = vector_add(&setup.context)?;
        for before in [Before::New, Before::Shared] {
            for failing in [Failing::Earlier, Failing::Later] {
                sweep(|sim, nth| self.run(&setup, &kernel, sim, Attempt { before, failing, nth }))?;
            }
        }
        Ok(())
    }
}

#[test]
fn no_failure_lets_a_read_overtake_a_write_silently() -> Result {
    Pair { earlier: FILL_WRITES_ZEROS, later: COPY_READS, expected: 0.0 }.keeps_its_order()
}

#[test]
fn no_failure_lets_a_write_overtake_a_read_silently() -> Result {
    Pair { earlier: COPY_READS, later: FILL_WRITES_ZEROS, expected: 5.0 }.keeps_its_order()
}

#[test]
fn no_failure_lets_a_kernel_overtake_a_write_silently() -> Result {
    Pair { earlier: FILL_WRITES_ZEROS, later: KERNEL_READS_AND_ADDS_ONE, expected: 1.0 }.keeps_its_order()
}

#[test]
fn no_failure_lets_a_write_overtake_a_kernel_silently() -> Result {
    Pair { earlier: KERNEL_READS_AND_ADDS_ONE, later: FILL_WRITES_ZEROS, expected: 6.0 }.keeps_its_order()
}

#[test]
fn no_failure_lets_a_read_overtake_a_kernel_silently() -> Result {
    Pair { earlier: KERNEL_WRITES_TWOS, later: COPY_READS, expected: 2.0 }.keeps_its_order()
}

#[test]
fn no_failure_lets_a_kernel_overtake_a_read_silently() -> Result {
    Pair { earlier: COPY_READS, later: KERNEL_WRITES_TWOS, expected: 5.0 }.keeps_its_order()
}

#[test]
fn no_failure_of_a_drop_releases_bound_memory_that_a_kernel_reads() -> Result {
    let setup = Setup::new()?;
    let kernel = vector_add(&setup.context)?;
    let [first, bound, _] = &setup.streams;
    sweep(|sim, nth| {
        let (a, b, mut sum) = (floats(&setup.gpu, 1.0)?, floats(&setup.gpu, 2.0)?, floats(&setup.gpu, 0.0)?);
        a.bind_stream(bound)?;
        let gate = hold(first)?;
        add(first, &kernel, &a, &b, &mut sum)?;
        sim.fail("*", nth, UNKNOWN);
        let function = while_shut(gate, || {
            drop(a);
            let function = fired(sim);
            let _kept = setup.context.check_err();
            bound.synchronize()?;
            setup.gpu.collect();
            Ok(function)
        })?;
        settle(&setup)
            .map_err(|error| format!("call {nth}: {function:?} failed, and the memory was released: {error}"))?;
        assert_floats(&sum, 3.0, "the kernel")?;
        Ok(function)
    })
}

#[test]
fn no_failure_of_a_use_leaves_an_object_alive_or_another_context_current() -> Result {
    let setup = Setup::new()?;
    let kernel = vector_add(&setup.context)?;
    let [first, second, third] = &setup.streams;
    sweep(|sim, nth| {
        let count = || ["event", "stream", "external", "context"].map(|kind| (kind, sim.live_objects_of(kind)));
        let (before, here) = (count(), current());
        let (mut memory, mut target) = (filled(&setup.gpu, 0)?, filled(&setup.gpu, 0)?);
        sim.fail("*", nth, UNKNOWN);
        // Copies may return the error.
        let _ = first.memcpy_dtod::<u8, _, _>(&memory, &mut target);
        let _ = second.memcpy_dtod::<u8, _, _>(&memory, &mut target);
        third.launch_builder(&kernel).arg(&memory);
        third.launch_builder(&kernel).arg(&mut memory);
        let _ = third.memset_zeros::<u8, _>(&mut memory);
        let function = fired(sim);
        assert_eq!(current(), here, "call {nth}: {function:?} failed");
        settle(&setup)?;
        drop((memory, target));
        setup.gpu.collect();
        assert_eq!(count(), before, "call {nth}: {function:?} failed");
        Ok(function)
    })
}
