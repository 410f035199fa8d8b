//! Failures of opening a GPU that the process has opened before, of closing it, and of queries.

use support::cuda::Context;
use vkgdr::{Memory, Vkgdr};

use crate::place::SomeMemory;
use crate::sweep::Sweep;
use crate::{NONE, Result};

#[test]
fn a_failed_open_names_the_call_and_leaves_nothing() -> Result {
    let _first = Vkgdr::open(0, NONE)?;
    let find = ["cuInit", "cuDeviceGetUuid"];
    Sweep::of("open").named(&find).call(|| Vkgdr::open(0, NONE))?;
    let primary = Sweep::of("open_primary_context").named(&find).named(&["cuDevicePrimaryCtxRetain", "cuCtxGetId"]);
    primary.call(|| Vkgdr::open_primary_context(0, NONE))?;
    let _context = Context::create(0);
    let current = Sweep::of("open_current_context").named(&find).named(&["cuCtxGetDevice"]);
    current.call(|| Vkgdr::open_current_context(NONE))
}

#[test]
fn closing_a_handle_survives_every_failure() -> Result {
    // A drop cannot return the error: it is logged.
    let sweep = Sweep::of("close").survived(&["cuDevicePrimaryCtxRelease"]);
    sweep.drop(|| Ok(Vkgdr::open_primary_context(0, NONE)?))
}

#[test]
fn driver_queries_name_the_call_that_failed() -> Result {
    let gpu = Vkgdr::open(0, NONE)?;
    Sweep::of("pci_bus_id").named(&["cuDeviceGetPCIBusId"]).call(|| gpu.pci_bus_id())?;
    Sweep::of("device_count").named(&["cuInit", "cuDeviceGetCount"]).call(vkgdr::device_count)?;
    Sweep::of("driver_version").named(&["cuDriverGetVersion"]).call(vkgdr::driver_version)?;
    let _context = Context::create(0);
    let memory = Memory::allocate(&gpu, 64, SomeMemory::of(&gpu).kind)?;
    let ours = Sweep::of("pointer_device of our memory").named(&["cuInit"]);
    ours.call(|| vkgdr::pointer_device(memory.device_ptr()))?;
    let (foreign, named) = (0_u64, &["cuInit", "cuPointerGetAttributes"]);
    Sweep::of("pointer_device").named(named).call(|| vkgdr::pointer_device((&raw const foreign).addr() as u64))
}
