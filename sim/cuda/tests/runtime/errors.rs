//! The last error of each thread, the names of errors, and functions that are not simulated.

use std::ffi::{CStr, c_char};
use std::thread;

use support::{Result, child, simulated};

use crate::{INVALID_DEVICE, INVALID_VALUE, NOT_SUPPORTED, Runtime, call, good, with_each};

fn text(cuda: Runtime, name: &str, code: i32) -> String {
    // SAFETY: the type of cudaGetErrorName and cudaGetErrorString.
    let function = unsafe { cuda.symbol::<unsafe extern "C" fn(i32) -> *const c_char>(name) };
    // SAFETY: takes any number.
    let text = unsafe { function(code) };
    // SAFETY: the functions return texts that are never freed.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[test]
fn a_failure_is_the_last_error_until_it_is_asked_for() {
    with_each(|cuda| {
        assert_eq!(call!(cuda, cudaPeekAtLastError()), 0);
        assert_eq!(call!(cuda, cudaSetDevice(99 => i32)), INVALID_DEVICE);
        // A success in between leaves it.
        good!(cuda, cudaDeviceSynchronize());
        assert_eq!(call!(cuda, cudaPeekAtLastError()), INVALID_DEVICE);
        thread::scope(|scope| {
            let other = scope.spawn(|| assert_eq!(cuda.last_error(), 0, "each thread has its own"));
            other.join().unwrap_or_else(|_| panic!("other thread"));
        });
        assert_eq!(cuda.last_error(), INVALID_DEVICE);
        assert_eq!(cuda.last_error(), 0);
        let mut pointer = 0_usize;
        assert_eq!(call!(cuda, cudaMalloc(&raw mut pointer => *mut usize, usize::MAX => usize)), 2);
        assert_eq!((cuda.last_error(), pointer), (2, 0));
    });
}

#[test]
fn errors_have_names_and_texts() {
    with_each(|cuda| {
        for (code, name, description) in [
            (0, "cudaSuccess", "no error"),
            (2, "cudaErrorMemoryAllocation", "out of memory"),
            (98, "cudaErrorInvalidDeviceFunction", "invalid device function"),
            (209, "cudaErrorNoKernelImageForDevice", "no kernel image is available for execution on the device"),
            (-7, "unrecognized error code", "unrecognized error code"),
        ] {
            assert_eq!(text(cuda, "cudaGetErrorName", code), name);
            assert_eq!(text(cuda, "cudaGetErrorString", code), description);
        }
    });
}

fn probe() {
    with_each(|cuda| {
        for _ in 0..2 {
            let mut array = 0_usize;
            let code = call!(
                cuda,
                cudaMallocArray(&raw mut array => *mut usize, 0 => usize, 1 => usize, 1 => usize, 0 => u32)
            );
            assert_eq!((code, cuda.last_error()), (NOT_SUPPORTED, NOT_SUPPORTED));
        }
    });
}

#[test]
fn a_function_that_is_not_simulated_is_named_once() -> Result {
    simulated!("the runtime is the simulator's");
    if child::role().is_some() {
        probe();
        return Ok(());
    }
    let line = "simcuda: cudaMallocArray is not simulated: cudaErrorNotSupported";
    // Once for each of the two libraries.
    assert_eq!(child::simulator_lines("probe", "0")?, [line, line]);
    assert_eq!(child::simulator_lines("probe", "1")?, [""; 0]);
    Ok(())
}

#[test]
fn nonsense_is_refused() {
    with_each(|cuda| {
        for handle in [1_usize << 44, 0xdead_bee0, usize::MAX] {
            for code in [
                call!(cuda, cudaStreamDestroy(handle => usize)),
                call!(cuda, cudaStreamSynchronize(handle => usize)),
                call!(cuda, cudaStreamQuery_ptsz(handle => usize)),
                call!(cuda, cudaEventDestroy(handle => usize)),
                call!(cuda, cudaEventRecord(handle => usize, 0 => usize)),
                call!(cuda, cudaEventQuery(handle => usize)),
                call!(cuda, cudaStreamWaitEvent(0 => usize, handle => usize, 0 => u32)),
                call!(cuda, cudaFree(handle => usize)),
                call!(cuda, cudaFreeAsync(handle => usize, 0 => usize)),
                call!(cuda, cudaFreeHost(handle => usize)),
                call!(cuda, cudaHostUnregister(handle => usize)),
                call!(cuda, cudaMemPoolDestroy(handle => usize)),
                call!(cuda, cudaMemPoolTrimTo(handle => usize, 0 => usize)),
                call!(cuda, cudaLibraryUnload(handle => usize)),
                call!(cuda, cudaDestroyExternalMemory(handle => usize)),
                call!(cuda, cudaMemset(handle => usize, 0 => i32, 1 => usize)),
            ] {
                assert_ne!(code, 0);
            }
        }
        for code in [
            call!(cuda, cudaMalloc(0 => usize, 1 => usize)),
            call!(cuda, cudaMallocHost(0 => usize, 1 => usize)),
            call!(cuda, cudaMallocPitch(0 => usize, 0 => usize, 1 => usize, 1 => usize)),
            call!(cuda, cudaMallocAsync(0 => usize, 1 => usize, 0 => usize)),
            call!(cuda, cudaStreamCreate(0 => usize)),
            call!(cuda, cudaEventCreate(0 => usize)),
            call!(cuda, cudaGetDeviceCount(0 => usize)),
            call!(cuda, cudaPointerGetAttributes(0 => usize, 0 => usize)),
            call!(cuda, cudaMemGetInfo(0 => usize, 0 => usize)),
            call!(cuda, cudaMemcpy3D(0 => usize)),
            call!(cuda, cudaLaunchKernelExC(0 => usize, 0 => usize, 0 => usize)),
            call!(cuda, cudaFuncGetAttributes(0 => usize, 0 => usize)),
            call!(cuda, cudaImportExternalMemory(0 => usize, 0 => usize)),
            call!(cuda, cudaGetDriverEntryPoint(0 => usize, 0 => usize, 0 => u64, 0 => usize)),
            call!(cuda, cudaGetSymbolAddress(0 => usize, 0 => usize)),
        ] {
            assert!(matches!(code, INVALID_VALUE | 98), "{code}");
        }
    });
}
