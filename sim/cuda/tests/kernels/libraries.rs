//! Libraries, whose kernels are independent of contexts, and the linker.

use cudarc::driver::sys::{CUfunction_attribute, CUjitInputType, CUpointer_attribute};
use std::ffi::{c_char, c_int, c_uint};
use std::ptr::null;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::driver::{Buffer, Call, Function, Module, Shape, c_string, call, given, synchronize};
use crate::{KERNELS, Result, bytes_of, device_words, good, kernels, open};
use support::codes;
use support::cuda::{self, Context};
use support::{simcuda, skip};

struct Library(usize);

impl Drop for Library {
    fn drop(&mut self) {
        let _ = call!(cuLibraryUnload(self.0 => usize));
    }
}

impl Library {
    fn load(text: &str) -> Call<Self> {
        let text = c_string(text);
        let load = |out| {
            call!(cuLibraryLoadData(
                out => *mut usize, text.as_ptr() => *const c_char,
                null() => *const c_uint, null() => *const usize, 0 => c_uint,
                null() => *const c_uint, null() => *const usize, 0 => c_uint,
            ))
        };
        given(load).map(Self)
    }

    fn kernel(&self, name: &str) -> Call<usize> {
        let name = c_string(name);
        given(|out| call!(cuLibraryGetKernel(out => *mut usize, self.0 => usize, name.as_ptr() => *const c_char)))
    }

    fn variable(&self, name: &str) -> Call<(u64, usize)> {
        let name = c_string(name);
        let mut size = 0;
        let address = given(|out| {
            call!(cuLibraryGetGlobal(
                out => *mut u64, &raw mut size => *mut usize, self.0 => usize, name.as_ptr() => *const c_char,
            ))
        })?;
        Ok((address, size))
    }
}

const MANAGED: &str = "
.version 6.3
.target sm_60
.address_size 64
.visible .global .align 4 .u32 plain = 1;
.visible .global .attribute(.managed) .align 4 .u32 shared = 5;
.visible .entry triple()
{
    .reg .b32 %r<3>;
    ld.global.u32 %r1, [shared];
    mul.lo.u32 %r2, %r1, 3;
    st.global.u32 [shared], %r2;
    ret;
}
";

fn function_of(kernel: usize) -> Call<Function> {
    given(|out| call!(cuKernelGetFunction(out => *mut usize, kernel => usize))).map(Function)
}

#[test]
fn a_librarys_kernel_runs_in_the_context_that_is_current() -> Result {
    let _context = open();
    let library = good(Library::load(KERNELS))?;
    let add_one = good(library.kernel("add_one"))?;
    assert_eq!(library.kernel("add_two"), Err(codes::NOT_FOUND));
    let launch_twice = || -> Result {
        let values = good(Buffer::new(400))?;
        cuda::memset_d8(values.0, 0, 400);
        good(Function(add_one).launch(Shape::threads(100), 0, &[values.0, 100]))?;
        good(good(function_of(add_one))?.launch(Shape::threads(50), 0, &[values.0, 50]))?;
        let expected: Vec<u32> = (0..100).map(|i| if i < 50 { 2 } else { 1 }).collect();
        assert_eq!(device_words(values.0, 100), expected);
        Ok(())
    };
    launch_twice()?;
    let other = Context::create(0);
    launch_twice()?;
    let there = good(function_of(add_one))?;
    other.destroy();
    assert_ne!(good(function_of(add_one))?, there, "each context has its own function");
    launch_twice()
}

#[test]
fn a_librarys_variables_are_another_in_each_context() -> Result {
    let _context = open();
    let library = good(Library::load(KERNELS))?;
    let (here, size) = good(library.variable("factors"))?;
    assert_eq!((device_words(here, 4), size), (vec![1, 10, 100, 1000], 16));
    assert_eq!(library.variable("factor").map(drop), Err(codes::NOT_FOUND));
    cuda::memcpy_htod(here, &bytes_of(&[9, 9, 9, 9]));
    let other = Context::create(0);
    let (there, _) = good(library.variable("factors"))?;
    assert_eq!(device_words(there, 4), [1, 10, 100, 1000]);
    other.destroy();
    assert_eq!(good(library.variable("factors"))?.0, here);
    Ok(())
}

#[test]
fn the_cpu_reads_and_writes_managed_variables_which_are_the_same_in_each_context() -> Result {
    let _context = open();
    let library = good(Library::load(MANAGED))?;
    let managed = |name: &str| {
        let (name, mut size) = (c_string(name), 0_usize);
        let address = given(|out| {
            call!(cuLibraryGetManaged(
                out => *mut u64, &raw mut size => *mut usize, library.0 => usize, name.as_ptr() => *const c_char,
            ))
        })?;
        Ok((address, size))
    };
    let (address, size) = good(managed("shared"))?;
    assert_eq!((size, managed("plain"), managed("nothing")), (4, Err(codes::NOT_FOUND), Err(codes::NOT_FOUND)));
    let is_managed = |address: u64| {
        let mut value = 9_u32;
        let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED as c_uint;
        good(call!(cuPointerGetAttribute(&raw mut value => *mut c_uint, attribute => c_uint, address => u64)))?;
        Result::Ok(value & 0xff)
    };
    assert_eq!((is_managed(address)?, is_managed(good(library.variable("plain"))?.0)?), (1, 0));
    let pointer = std::ptr::with_exposed_provenance_mut::<u32>(usize::try_from(address)?);
    // SAFETY: the variable is aligned, lives as long as the library, and only kernels that are waited for use it besides.
    let word = unsafe { AtomicU32::from_ptr(pointer) };
    let triple = || -> Result<u32> {
        good(Function(good(library.kernel("triple"))?).launch(Shape::ONE, 0, &[]))?;
        good(synchronize(0))?;
        Ok(word.load(Ordering::Relaxed))
    };
    assert_eq!((word.load(Ordering::Relaxed), triple()?), (5, 15));
    word.store(7, Ordering::Relaxed);
    assert_eq!(triple()?, 21);
    let other = Context::create(0);
    assert_eq!((good(managed("shared"))?.0, triple()?), (address, 63));
    other.destroy();
    assert_eq!(triple()?, 189);
    Ok(())
}

#[test]
fn a_kernel_of_a_library_says_what_it_is() -> Result {
    let _context = open();
    let library = good(Library::load(KERNELS))?;
    let (take, bounded) = (good(library.kernel("take"))?, good(library.kernel("bounded"))?);
    let owner = given(|out| call!(cuKernelGetLibrary(out => *mut usize, take => usize)));
    assert_eq!(owner, Ok(library.0));
    let (mut offset, mut size) = (0, 0);
    good(call!(cuKernelGetParamInfo(
        take => usize, 5 => usize, &raw mut offset => *mut usize, &raw mut size => *mut usize,
    )))?;
    assert_eq!((offset, size), (24, 12));
    let count = good(given(|out| call!(cuLibraryGetKernelCount(out => *mut c_uint, library.0 => usize))))?;
    assert_eq!(count as usize, kernels());
    let mut handles = vec![0_usize; count as usize];
    good(call!(cuLibraryEnumerateKernels(
        handles.as_mut_ptr() => *mut usize, count => c_uint, library.0 => usize,
    )))?;
    assert!(handles.contains(&take) && handles.contains(&bounded));
    let threads =
        given(|out| call!(cuKernelGetAttribute(out => *mut c_int, 0 => c_uint, bounded => usize, 0 => c_int)));
    assert_eq!(threads, Ok(64));
    let constant = CUfunction_attribute::CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES;
    let of_kernel = given(
        |out| call!(cuKernelGetAttribute(out => *mut c_int, constant as c_uint => c_uint, take => usize, 0 => c_int)),
    );
    assert!(of_kernel.is_ok_and(|bytes| bytes > 0), "the module has constants: {of_kernel:?}");
    assert_eq!(of_kernel, good(function_of(take))?.attribute(constant));
    Ok(())
}

#[test]
fn attributes_set_on_a_librarys_kernel_apply_in_every_context() -> Result {
    const MAX_DYNAMIC_SHARED: CUfunction_attribute =
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    let _context = open();
    let library = good(Library::load(KERNELS))?;
    let reverse = good(library.kernel("reverse"))?;
    let function = good(function_of(reverse))?;
    good(
        call!(cuKernelSetAttribute(MAX_DYNAMIC_SHARED as c_uint => c_uint, 60_000 => c_int, reverse => usize, 0 => c_int)),
    )?;
    assert_eq!(function.attribute(MAX_DYNAMIC_SHARED), Ok(60_000));
    let other = Context::create(0);
    assert_eq!(good(function_of(reverse))?.attribute(MAX_DYNAMIC_SHARED), Ok(60_000));
    other.destroy();
    Ok(())
}

#[test]
fn a_librarys_module_is_the_librarys_to_unload() -> Result {
    let _context = open();
    let library = good(Library::load(KERNELS))?;
    let module = good(given(|out| call!(cuLibraryGetModule(out => *mut usize, library.0 => usize))))?;
    assert_eq!(call!(cuModuleUnload(module => usize)), Err(codes::NOT_PERMITTED));
    // What is before this line holds on a real driver too.
    let Some(sim) = simcuda() else {
        return skip("only the simulated driver counts its objects and takes stale handles");
    };
    assert_eq!((sim.live_objects_of("library"), sim.live_objects_of("module")), (1, 0));
    let (kernel, raw) = (good(library.kernel("nothing"))?, library.0);
    let function = good(function_of(kernel))?;
    drop(library);
    assert_eq!(sim.live_objects_of("library"), 0);
    assert_eq!(call!(cuLibraryUnload(raw => usize)), Err(codes::INVALID_HANDLE));
    assert_eq!(function_of(kernel), Err(codes::INVALID_HANDLE));
    assert_eq!(Function(kernel).launch(Shape::ONE, 0, &[]), Err(codes::INVALID_HANDLE));
    assert_eq!(function.launch(Shape::ONE, 0, &[]), Err(codes::INVALID_HANDLE));
    Ok(())
}

#[test]
fn a_library_needs_no_context_to_be_loaded() -> Result {
    let _context = open();
    let library = good(cuda::no_context(|| Library::load(KERNELS)))?;
    good(Function(good(library.kernel("nothing"))?).launch(Shape::ONE, 0, &[]))?;
    good(synchronize(0))
}

/// The linker's output for the inputs, or the error code of the failed call.
pub(crate) fn link(inputs: &[(c_uint, &[u8])]) -> Call<Vec<u8>> {
    let linker: usize = given(
        |out| call!(cuLinkCreate_v2(0 => c_uint, null() => *const c_uint, null() => *const usize, out => *mut usize)),
    )?;
    let result = (|| {
        for (kind, input) in inputs {
            call!(cuLinkAddData_v2(
                linker => usize, *kind => c_uint, input.as_ptr() => *const u8, input.len() => usize,
                c"input".as_ptr() => *const c_char, 0 => c_uint, null() => *const c_uint, null() => *const usize,
            ))?;
        }
        let (mut output, mut size): (*const u8, usize) = (null(), 0);
        call!(cuLinkComplete(linker => usize, &raw mut output => *mut *const u8, &raw mut size => *mut usize))?;
        // SAFETY: the driver keeps this number of bytes until the linker is destroyed.
        Ok(unsafe { std::slice::from_raw_parts(output, size) }.to_vec())
    })();
    call!(cuLinkDestroy(linker => usize))?;
    result
}

#[test]
fn what_the_linker_makes_of_ptx_can_be_loaded() -> Result {
    const PTX: c_uint = CUjitInputType::CU_JIT_INPUT_PTX as c_uint;
    let _context = open();
    let first = [KERNELS.as_bytes(), b"\0"].concat();
    let image = good(link(&[(PTX, &first)]))?;
    let module = good(Module::load_image(&image))?;
    let values = good(Buffer::new(40))?;
    cuda::memset_d8(values.0, 0, 40);
    good(good(module.function("add_one"))?.launch(Shape::threads(10), 0, &[values.0, 10]))?;
    assert_eq!(device_words(values.0, 10), [1; 10]);

    // Two PTX texts, each with its header.
    let second = ".version 6.3\n.target sm_50\n.address_size 64\n.visible .entry second()\n{\n    ret;\n}\n\0";
    let module = good(Module::load_image(&good(link(&[(PTX, &first), (PTX, second.as_bytes())]))?))?;
    for name in ["second", "nothing"] {
        good(good(module.function(name))?.launch(Shape::ONE, 0, &[]))?;
    }
    good(synchronize(0))?;
    assert_eq!(simcuda().map_or(0, |sim| sim.live_objects_of("linker")), 0);
    Ok(())
}

#[test]
fn the_linker_takes_nothing_that_is_compiled() -> Result {
    const CUBIN: c_uint = CUjitInputType::CU_JIT_INPUT_CUBIN as c_uint;
    const LIBRARY: c_uint = CUjitInputType::CU_JIT_INPUT_LIBRARY as c_uint;
    let _context = open();
    assert_eq!(link(&[(1000, b"")]), Err(codes::INVALID_VALUE));
    if simcuda().is_some() {
        assert_eq!(link(&[(CUBIN, b"\x7fELF")]), Err(codes::NO_BINARY_FOR_GPU));
        assert_eq!(link(&[(LIBRARY, b"!<arch>\n")]), Err(codes::NO_BINARY_FOR_GPU));
    }
    Ok(())
}
