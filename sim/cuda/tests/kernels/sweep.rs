//! Fault injection: every function of modules and launches fails with the requested code.

use crate::driver::{Module, Shape, outcome, synchronize};
use crate::{KERNELS, Result, good, open};
use support::driver::function;
use support::{codes, simulated};

/// Every function, by one of its symbols.
const FUNCTIONS: [&str; 53] = [
    "cuFuncGetAttribute",
    "cuFuncGetModule",
    "cuFuncGetName",
    "cuFuncGetParamCount",
    "cuFuncGetParamInfo",
    "cuFuncIsLoaded",
    "cuFuncLoad",
    "cuFuncSetAttribute",
    "cuFuncSetBlockShape",
    "cuFuncSetCacheConfig",
    "cuFuncSetSharedMemConfig",
    "cuKernelGetAttribute",
    "cuKernelGetFunction",
    "cuKernelGetLibrary",
    "cuKernelGetName",
    "cuKernelGetParamCount",
    "cuKernelGetParamInfo",
    "cuKernelSetAttribute",
    "cuKernelSetCacheConfig",
    "cuLaunchCooperativeKernel",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuLibraryEnumerateKernels",
    "cuLibraryGetGlobal",
    "cuLibraryGetKernel",
    "cuLibraryGetKernelCount",
    "cuLibraryGetManaged",
    "cuLibraryGetModule",
    "cuLibraryLoadData",
    "cuLibraryLoadFromFile",
    "cuLibraryUnload",
    "cuLinkAddData_v2",
    "cuLinkAddFile_v2",
    "cuLinkComplete",
    "cuLinkCreate_v2",
    "cuLinkDestroy",
    "cuModuleEnumerateFunctions",
    "cuModuleGetFunction",
    "cuModuleGetFunctionCount",
    "cuModuleGetGlobal_v2",
    "cuModuleGetLoadingMode",
    "cuModuleLoad",
    "cuModuleLoadData",
    "cuModuleLoadDataEx",
    "cuModuleLoadFatBinary",
    "cuModuleUnload",
    "cuOccupancyAvailableDynamicSMemPerBlock",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
    "cuOccupancyMaxActiveClusters",
    "cuOccupancyMaxPotentialBlockSize",
    "cuOccupancyMaxPotentialBlockSizeWithFlags",
    "cuOccupancyMaxPotentialClusterSize",
];

#[test]
fn every_function_of_modules_and_launches_can_be_made_to_fail() -> Result {
    let sim = simulated!("fault injection needs the simulated driver");
    let _context = open();
    let before = sim.live_objects();
    for name in FUNCTIONS {
        // With zeros for the longest list of arguments.
        type Function =
            unsafe extern "C" fn(usize, usize, usize, usize, usize, usize, usize, usize, usize, usize) -> i32;
        // SAFETY: all arguments are integers and pointers.
        let call = unsafe { function::<Function>(name) };
        sim.clear_faults();
        sim.fail(name, 1, codes::UNKNOWN);
        // SAFETY: a function with an injected fault does nothing, or rejects 0 as a handle.
        let code = outcome(unsafe { call(0, 0, 0, 0, 0, 0, 0, 0, 0, 0) });
        assert_eq!(code, Err(codes::UNKNOWN), "{name}");
        let base = sim.last_fault().unwrap_or_default();
        assert!(name.starts_with(&base) && !base.is_empty(), "{name}: {base:?}");
    }
    sim.clear_faults();
    assert_eq!(sim.live_objects(), before);
    Ok(())
}

#[test]
fn a_module_is_unloaded_though_its_unloading_is_made_to_fail() -> Result {
    let sim = simulated!("fault injection needs the simulated driver");
    let _context = open();
    let module = good(Module::load(KERNELS))?;
    sim.fail("cuModuleUnload", 1, codes::UNKNOWN);
    assert_eq!(module.unload(), Err(codes::UNKNOWN));
    assert_eq!(sim.live_objects_of("module"), 0);
    Ok(())
}

#[test]
fn a_launch_that_is_made_to_fail_does_nothing() -> Result {
    let sim = simulated!("fault injection needs the simulated driver");
    let _context = open();
    let module = good(Module::load(KERNELS))?;
    let stop = good(module.function("stop"))?;
    sim.fail("cuLaunchKernel", 1, codes::UNKNOWN);
    assert_eq!(stop.launch(Shape::ONE, 0, &[]), Err(codes::UNKNOWN));
    good(synchronize(0))
}
