//! Events, streams and imports after the memory that had them is gone.

use std::mem::ManuallyDrop;

use support::{Result, simcuda, skip};
use vkgdr::cudarc::driver::{DevicePtrMut, PushKernelArg};

use super::new_pool;
use crate::kernels::vector_add;
use crate::order::{LEN, Setup, filled};

/// The uses by each stream.
#[derive(Clone, Copy, PartialEq)]
enum Uses {
    Copies,
    CopiesAndArguments,
    ForgottenGuards,
}

/// Memory, its regions and chunks of a pool come and go, and several streams use each.
fn leave_nothing(uses: Uses, streams: usize) -> Result {
    let Some(sim) = simcuda() else { return skip("only the simulated driver counts its objects") };
    let setup = Setup::new()?;
    let kernel = vector_add(&setup.context)?;
    let count = || ["event", "stream", "external"].map(|kind| (kind, sim.live_objects_of(kind)));
    let before = count();
    for own in &setup.streams {
        let pool = new_pool(&setup.gpu)?;
        let mut chunk = pool.allocate_on(LEN, own)?;
        let (ones, mut memory) = (filled(&setup.gpu, 1)?, filled(&setup.gpu, 0)?);
        let mut alive = Vec::new();
        for _ in 0..streams {
            let stream = setup.context.new_stream()?;
            let region = memory.region(..)?;
            stream.memcpy_dtod::<u8, _, _>(&ones, &mut memory)?;
            stream.memcpy_dtod::<u8, _, _>(&region, &mut chunk)?;
            if uses != Uses::Copies {
                stream.launch_builder(&kernel).arg(&region);
                stream.launch_builder(&kernel).arg(&mut memory);
            }
            if uses == Uses::ForgottenGuards {
                let _forgotten = ManuallyDrop::new(DevicePtrMut::<u8>::device_ptr_mut(&mut memory, &stream).1);
            }
            alive.push(stream);
        }
    }
    setup.context.synchronize()?;
    setup.gpu.collect();
    assert_eq!(count(), before);
    Ok(())
}

#[test]
fn copies_on_many_streams_leave_nothing_alive() -> Result {
    // More than the order tells apart.
    leave_nothing(Uses::Copies, 70)
}

#[test]
fn arguments_that_are_not_launched_leave_nothing_alive() -> Result {
    leave_nothing(Uses::CopiesAndArguments, 10)
}

#[test]
fn forgotten_guards_leave_nothing_alive() -> Result {
    leave_nothing(Uses::ForgottenGuards, 10)
}
