//! Modules: kernels, variables and their attributes.

use cudarc::driver::sys::{CUfunc_cache, CUfunction_attribute as Attribute};
use std::ffi::{CStr, c_char, c_int, c_uint};

use crate::driver::{Buffer, Function, Module, Shape, call, given};
use crate::{KERNELS, Result, bytes_of, device_words, good, kernels, open};
use support::codes;
use support::{cuda, simcuda, simulated};

#[test]
fn a_module_finds_its_kernels_by_name_and_counts_them() -> Result {
    let _context = open();
    let module = good(Module::load(KERNELS))?;
    let add_one = good(module.function("add_one"))?;
    assert_eq!(good(module.function("add_one"))?, add_one, "a kernel has one handle");
    assert_eq!(module.function("add_two").map(drop), Err(codes::NOT_FOUND));
    assert_eq!(module.function("counter").map(drop), Err(codes::NOT_FOUND), "a variable is no kernel");

    let count = good(given(|out| call!(cuModuleGetFunctionCount(out => *mut c_uint, module.0 => usize))))?;
    assert_eq!(count as usize, kernels());
    let mut handles = vec![0_usize; kernels() + 1];
    good(call!(cuModuleEnumerateFunctions(
        handles.as_mut_ptr() => *mut usize, count + 1 => c_uint, module.0 => usize,
    )))?;
    assert_eq!(handles.pop(), Some(0));
    assert!(handles.contains(&add_one.0) && !handles.contains(&0));
    Ok(())
}

/// Reads a name owned by the driver.
fn text(pointer: *const c_char) -> String {
    // SAFETY: the driver's names are terminated strings, and their module is loaded.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

#[test]
fn a_kernel_knows_its_name_its_module_and_its_parameters() -> Result {
    let _context = open();
    let module = good(Module::load(KERNELS))?;
    let take = good(module.function("take"))?;
    let mut name: *const c_char = std::ptr::null();
    good(call!(cuFuncGetName(&raw mut name => *mut *const c_char, take.0 => usize)))?;
    assert_eq!(text(name), "take");
    assert_eq!(given(|out| call!(cuFuncGetModule(out => *mut usize, take.0 => usize))), Ok(module.0));
    good(call!(cuFuncLoad(take.0 => usize)))?;
    assert_eq!(given(|out| call!(cuFuncIsLoaded(out => *mut c_uint, take.0 => usize))), Ok(1));

    let info = |index: usize| {
        let (mut offset, mut size) = (usize::MAX, usize::MAX);
        call!(cuFuncGetParamInfo(
            take.0 => usize, index => usize, &raw mut offset => *mut usize, &raw mut size => *mut usize,
        ))
        .map(|()| (offset, size))
    };
    let all: Vec<_> = (0..7).map(info).collect();
    assert_eq!(all, [(0, 1), (2, 2), (4, 4), (8, 8), (16, 8), (24, 12), (40, 8)].map(Ok));
    assert_eq!(info(7), Err(codes::INVALID_VALUE));
    if simcuda().is_some() {
        assert_eq!(given(|out| call!(cuFuncGetParamCount(take.0 => usize, out => *mut usize))), Ok(7));
    }
    Ok(())
}

#[test]
fn a_kernels_attributes_are_those_of_its_code_and_of_the_device() -> Result {
    const CARVEOUT: Attribute = Attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
    let _context = open();
    let module = good(Module::load(KERNELS))?;
    let (bounded, scale) = (good(module.function("bounded"))?, good(module.function("scale"))?);
    assert_eq!(bounded.attribute(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), Ok(64), "threads");
    assert_eq!(scale.attribute(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), Ok(1024), "threads");
    assert_eq!(scale.attribute(Attribute::CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES), Ok(16), "constant bytes");
    assert_eq!(scale.attribute(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES), Ok(0), "local bytes");
    assert_eq!(scale.attribute(Attribute::CU_FUNC_ATTRIBUTE_MAX), Err(codes::INVALID_VALUE), "no attribute");
    assert_eq!(
        scale.set_attribute(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 5),
        Err(codes::INVALID_VALUE),
        "not to be set"
    );
    good(scale.set_attribute(CARVEOUT, 50))?;
    assert_eq!(scale.attribute(CARVEOUT), Ok(50), "carve-out");
    assert_eq!(scale.set_attribute(CARVEOUT, 101), Err(codes::INVALID_VALUE));
    good(call!(cuFuncSetCacheConfig(scale.0 => usize, CUfunc_cache::CU_FUNC_CACHE_PREFER_SHARED as c_uint => c_uint)))
}

#[test]
fn the_host_reads_and_writes_the_variables_that_kernels_use() -> Result {
    let _context = open();
    let module = good(Module::load(KERNELS))?;
    let (counter, counter_size) = good(module.variable("counter"))?;
    let (factors, factors_size) = good(module.variable("factors"))?;
    assert_eq!((counter_size, factors_size), (4, 16));
    assert_eq!(device_words(counter, 1), [3]);
    assert_eq!(device_words(factors, 4), [1, 10, 100, 1000]);
    assert_eq!(module.variable("factor").map(drop), Err(codes::NOT_FOUND));
    assert_eq!(module.variable("scale").map(drop), Err(codes::NOT_FOUND), "a kernel is no variable");

    let (scale, target) = (good(module.function("scale"))?, good(Buffer::new(16))?);
    good(scale.launch(Shape::block(4), 0, &[target.0]))?;
    assert_eq!(device_words(target.0, 4), [3, 30, 300, 3000]);
    cuda::memcpy_htod(factors, &bytes_of(&[2, 3, 5, 7]));
    good(scale.launch(Shape::block(4), 0, &[target.0]))?;
    assert_eq!(device_words(target.0, 4), [8, 12, 20, 28], "the kernel's count times the host's value");
    assert_eq!(device_words(counter, 1), [5]);

    // A second module has its own variables.
    let other = good(Module::load(KERNELS))?;
    assert_eq!(device_words(good(other.variable("counter"))?.0, 1), [3]);
    Ok(())
}

#[test]
fn a_module_that_is_unloaded_is_gone_with_its_handles_and_variables() -> Result {
    let sim = simulated!("a real driver dereferences stale handles");
    let _context = open();
    let before = sim.live_objects();
    let module = good(Module::load(KERNELS))?;
    assert_eq!(sim.live_objects_of("module"), 1);
    assert_eq!(sim.live_objects(), before + 1, "variables are part of the module");
    let (function, (counter, _)) = (good(module.function("scale"))?, good(module.variable("counter"))?);
    good(module.unload())?;
    assert_eq!(sim.live_objects(), before);
    assert_eq!(module.unload(), Err(codes::INVALID_HANDLE));
    assert_eq!(module.function("scale").map(drop), Err(codes::INVALID_HANDLE));
    assert_eq!(function.attribute(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), Err(codes::INVALID_HANDLE));
    assert_eq!(
        Function(module.0).attribute(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
        Err(codes::INVALID_HANDLE),
        "a module is no function"
    );
    let copied = call!(cuMemsetD8_v2(counter => u64, 0 => u8, 4 => usize));
    assert_eq!(copied, Err(codes::INVALID_VALUE), "its variables are freed");
    Ok(())
}

#[test]
fn variables_are_not_freed_as_memory_is() -> Result {
    let _context = open();
    let module = good(Module::load(KERNELS))?;
    let (counter, _) = good(module.variable("counter"))?;
    assert_eq!(call!(cuMemFree_v2(counter => u64)), Err(codes::INVALID_VALUE));
    assert_eq!(device_words(counter, 1), [3]);
    Ok(())
}

#[test]
fn as_many_blocks_fit_on_a_multiprocessor_as_its_limits_say() -> Result {
    let _context = open();
    let module = good(Module::load(KERNELS))?;
    let nothing = good(module.function("nothing"))?;
    let active = |threads: c_int, shared: usize| {
        given(|out| {
            call!(cuOccupancyMaxActiveBlocksPerMultiprocessor(
                out => *mut c_int, nothing.0 => usize, threads => c_int, shared => usize,
            ))
        })
    };
    if simcuda().is_some() {
        assert_eq!(active(1024, 0), Ok(2));
        assert_eq!(active(256, 0), Ok(8));
    }
    assert!(good(active(32, 0))? >= 16);
    assert!(good(active(32, 40 << 10))? < 8, "shared memory is the limit");
    assert_eq!(active(0, 0), Err(codes::INVALID_VALUE));

    let (mut grid, mut block): (c_int, c_int) = (0, 0);
    good(call!(cuOccupancyMaxPotentialBlockSize(
        &raw mut grid => *mut c_int, &raw mut block => *mut c_int, nothing.0 => usize,
        None => Option<unsafe extern "C" fn(c_int) -> usize>, 0 => usize, 0 => c_int,
    )))?;
    assert!(block % 32 == 0 && block >= 256, "{block}");
    assert!(grid > 0 && grid * block >= 2048, "{grid} blocks of {block}");

    let shared = good(given(|out| {
        call!(cuOccupancyAvailableDynamicSMemPerBlock(
            out => *mut usize, nothing.0 => usize, 2 => c_int, 256 => c_int,
        ))
    }))?;
    assert!((32 << 10..=114 << 10).contains(&shared), "{shared}");
    Ok(())
}
