//! Failures of opening a GPU that the process has opened before, and of closing it.

use support::cuda::Context;
use vkgdr::{Memory, OpenFlags, Vkgdr};

use crate::Result;
use crate::place::SomeMemory;
use crate::sweep::{Sweep, dropped};

const NOTHING: OpenFlags = OpenFlags::empty();

#[test]
fn a_failed_open_names_the_call_and_leaves_nothing() -> Result {
    let _first = Vkgdr::open(0, NOTHING)?;
    let sweep = Sweep { what: "open", named: &["cuInit", "cuDeviceGetUuid"], ..Sweep::default() };
    sweep.run(|| Ok(()), |()| Vkgdr::open(0, NOTHING), |_| Ok(()))
}

#[test]
fn a_failed_open_of_the_current_context_names_the_call_and_leaves_nothing() -> Result {
    let _context = Context::create(0);
    let named = &["cuInit", "cuCtxGetDevice", "cuDeviceGetUuid"];
    let sweep = Sweep { what: "open_current_context", named, ..Sweep::default() };
    sweep.run(|| Ok(()), |()| Vkgdr::open_current_context(NOTHING), |_| Ok(()))
}

#[test]
fn a_failed_open_of_the_primary_context_names_the_call_and_leaves_nothing() -> Result {
    let named = &["cuInit", "cuDeviceGetUuid", "cuDevicePrimaryCtxRetain", "cuCtxGetId"];
    let sweep = Sweep { what: "open_primary_context", named, ..Sweep::default() };
    sweep.run(|| Ok(()), |()| Vkgdr::open_primary_context(0, NOTHING), |_| Ok(()))
}

#[test]
fn closing_a_handle_survives_every_failure() -> Result {
    // A drop cannot return the error: it is logged.
    let sweep = Sweep { what: "close", survived: &["cuDevicePrimaryCtxRelease"], ..Sweep::default() };
    let open = || Ok(Vkgdr::open_primary_context(0, NOTHING)?);
    sweep.run(open, dropped, |()| Ok(()))
}

#[test]
fn driver_queries_name_the_call_that_failed() -> Result {
    let gpu = Vkgdr::open(0, NOTHING)?;
    let ask = |what: &str, named: &[&str], ask: &dyn Fn() -> vkgdr::Result<()>| {
        Sweep { what, named, ..Sweep::default() }.run(|| Ok(()), |()| ask(), |()| Ok(()))
    };
    ask("pci_bus_id", &["cuDeviceGetPCIBusId"], &|| gpu.pci_bus_id().map(drop))?;
    ask("device_count", &["cuInit", "cuDeviceGetCount"], &|| vkgdr::device_count().map(drop))?;
    ask("driver_version", &["cuDriverGetVersion"], &|| vkgdr::driver_version().map(drop))?;
    let _context = Context::create(0);
    let memory = Memory::allocate(&gpu, 64, SomeMemory::of(&gpu).kind)?;
    ask("pointer_device of our memory", &["cuInit"], &|| vkgdr::pointer_device(memory.device_ptr()).map(drop))?;
    let (foreign, named) = (0_u64, &["cuInit", "cuPointerGetAttributes"]);
    ask("pointer_device", named, &|| vkgdr::pointer_device((&raw const foreign).addr() as u64).map(drop))
}
