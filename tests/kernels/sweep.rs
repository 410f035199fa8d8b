//! Failures on request: every function of modules and launches fails with the code that was asked for.

use support::simcuda;

use crate::driver::{Module, Shape, outcome, symbol, synchronize};
use crate::{KERNELS, Result, good, open};

const UNKNOWN: i32 = 999;

/// Every function, by one of its symbols.
const FUNCTIONS: [&str; 61] = [
    "cuFuncGetAttribute\0",
    "cuFuncGetModule\0",
    "cuFuncGetName\0",
    "cuFuncGetParamCount\0",
    "cuFuncGetParamInfo\0",
    "cuFuncIsLoaded\0",
    "cuFuncLoad\0",
    "cuFuncSetAttribute\0",
    "cuFuncSetBlockShape\0",
    "cuFuncSetCacheConfig\0",
    "cuFuncSetSharedMemConfig\0",
    "cuFuncSetSharedSize\0",
    "cuKernelGetAttribute\0",
    "cuKernelGetFunction\0",
    "cuKernelGetLibrary\0",
    "cuKernelGetName\0",
    "cuKernelGetParamCount\0",
    "cuKernelGetParamInfo\0",
    "cuKernelSetAttribute\0",
    "cuKernelSetCacheConfig\0",
    "cuLaunch\0",
    "cuLaunchCooperativeKernel\0",
    "cuLaunchGrid\0",
    "cuLaunchGridAsync\0",
    "cuLaunchKernel\0",
    "cuLaunchKernelEx\0",
    "cuLibraryEnumerateKernels\0",
    "cuLibraryGetGlobal\0",
    "cuLibraryGetKernel\0",
    "cuLibraryGetKernelCount\0",
    "cuLibraryGetManaged\0",
    "cuLibraryGetModule\0",
    "cuLibraryLoadData\0",
    "cuLibraryLoadFromFile\0",
    "cuLibraryUnload\0",
    "cuLinkAddData_v2\0",
    "cuLinkAddFile_v2\0",
    "cuLinkComplete\0",
    "cuLinkCreate_v2\0",
    "cuLinkDestroy\0",
    "cuModuleEnumerateFunctions\0",
    "cuModuleGetFunction\0",
    "cuModuleGetFunctionCount\0",
    "cuModuleGetGlobal_v2\0",
    "cuModuleGetLoadingMode\0",
    "cuModuleLoad\0",
    "cuModuleLoadData\0",
    "cuModuleLoadDataEx\0",
    "cuModuleLoadFatBinary\0",
    "cuModuleUnload\0",
    "cuOccupancyAvailableDynamicSMemPerBlock\0",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor\0",
    "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags\0",
    "cuOccupancyMaxActiveClusters\0",
    "cuOccupancyMaxPotentialBlockSize\0",
    "cuOccupancyMaxPotentialBlockSizeWithFlags\0",
    "cuOccupancyMaxPotentialClusterSize\0",
    "cuParamSetSize\0",
    "cuParamSetf\0",
    "cuParamSeti\0",
    "cuParamSetv\0",
];

#[test]
fn every_function_of_modules_and_launches_can_be_made_to_fail() -> Result {
    let (_context, _gpu) = open()?;
    let Some(sim) = simcuda() else {
        eprintln!("skipped: a real driver does not fail on request");
        return Ok(());
    };
    let before = sim.live_objects();
    for name in FUNCTIONS {
        let plain = name.trim_end_matches('\0');
        // With as many zeros as the longest has arguments.
        type Function =
            unsafe extern "C" fn(usize, usize, usize, usize, usize, usize, usize, usize, usize, usize) -> i32;
        // SAFETY: no driver function but those with a float has other arguments than integers and pointers.
        let function = unsafe { symbol::<Function>(name) };
        sim.clear_faults();
        sim.fail(plain, 1, UNKNOWN);
        // SAFETY: a function that fails on request does nothing, or finds that 0 is no handle.
        let code = outcome(unsafe { function(0, 0, 0, 0, 0, 0, 0, 0, 0, 0) });
        assert_eq!(code, Err(UNKNOWN), "{plain}");
        let base = sim.last_fault().unwrap_or_default();
        assert!(plain.starts_with(&base) && !base.is_empty(), "{plain}: {base:?}");
    }
    sim.clear_faults();
    assert_eq!(sim.live_objects(), before);
    Ok(())
}

#[test]
fn a_module_is_unloaded_though_its_unloading_is_made_to_fail() -> Result {
    let (_context, _gpu) = open()?;
    let Some(sim) = simcuda() else {
        eprintln!("skipped: a real driver does not fail on request");
        return Ok(());
    };
    let module = good(Module::load(KERNELS))?;
    sim.fail("cuModuleUnload", 1, UNKNOWN);
    assert_eq!(module.unload(), Err(UNKNOWN));
    assert_eq!(sim.live_objects_of("module"), 0);
    Ok(())
}

#[test]
fn a_launch_that_is_made_to_fail_does_nothing() -> Result {
    let (_context, _gpu) = open()?;
    let Some(sim) = simcuda() else {
        eprintln!("skipped: a real driver does not fail on request");
        return Ok(());
    };
    let module = good(Module::load(KERNELS))?;
    let stop = good(module.function("stop"))?;
    sim.fail("cuLaunchKernel", 1, UNKNOWN);
    assert_eq!(stop.launch(Shape::ONE, 0, &[]), Err(UNKNOWN));
    good(synchronize(0))
}
