//! Kernels of libraries in several contexts and on several devices, and the limits of launches.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use support::codes::{INVALID_HANDLE, INVALID_VALUE};
use support::cuda::{Context, PrimaryContext, Stream};
use support::{Result, child, simulated};

use crate::{PUT, allocate, call, given, good, library, load, put_of, word};

const INVALID_DEVICE: i32 = 101;
/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const MAX_DYNAMIC_SHARED: u32 = 8;

/// Launches `put`.
fn launch(function: usize, address: u64, shared: u32, stream: usize) -> i32 {
    let value = 7_u32;
    crate::launch(function, shared, stream, &[(&raw const address).cast(), (&raw const value).cast()])
}

#[test]
fn a_librarys_kernel_runs_in_the_context_of_the_stream() {
    let _context = PrimaryContext::retain_and_push(0);
    let (library, address, own) = (library(), allocate(64), Stream::create());
    let put = put_of(library);
    let other = Context::create(0);
    let stream: usize = given(|out| call!(cuStreamCreate(out => *mut usize, 0 => u32)));
    let function: usize = given(|out| call!(cuKernelGetFunction(out => *mut usize, put => usize)));
    good(call!(cuCtxPopCurrent_v2(0 => usize)));
    good(launch(put, address, 0, stream));
    good(call!(cuStreamSynchronize(stream => usize)));
    assert_eq!(word(address), 7);
    good(launch(put, address, 0, own.raw().expose_provenance()));
    // A function is of one context.
    good(launch(function, address, 0, stream));
    assert_eq!(launch(function, address, 0, 0), INVALID_HANDLE);
    own.synchronize();
    other.destroy();
    good(call!(cuLibraryUnload(library => usize)));
}

#[test]
fn dynamic_shared_memory_is_limited_by_the_functions_attribute() {
    let _context = PrimaryContext::retain_and_push(0);
    let [module, put] = load(PUT, c"put");
    let address = allocate(64);
    let limit = |bytes: i32| good(call!(cuFuncSetAttribute(put => usize, MAX_DYNAMIC_SHARED => u32, bytes => i32)));
    assert_eq!([launch(put, address, 48 << 10, 0), launch(put, address, (48 << 10) + 1, 0)], [0, INVALID_VALUE]);
    limit(1000);
    assert_eq!([launch(put, address, 1000, 0), launch(put, address, 1001, 0)], [0, INVALID_VALUE]);
    limit(64 << 10);
    assert_eq!(launch(put, address, 64 << 10, 0), 0);
    good(call!(cuCtxSynchronize()));
    good(call!(cuModuleUnload(module => usize)));
}

#[test]
fn attributes_of_a_kernel_are_of_one_device() -> Result {
    simulated!("the number of a machine's GPUs is its own");
    if child::role().is_none() {
        let mut command = child::command("check")?;
        command.env("SIMCUDA_DEVICES", "2").env_remove("CUDA_VISIBLE_DEVICES");
        assert_eq!(child::run(command)?, ["done"]);
        return Ok(());
    }
    let contexts = [0, 1].map(PrimaryContext::retain_and_push);
    let library = library();
    let put = put_of(library);
    let set = |value: i32, device: i32| call!(cuKernelSetAttribute(MAX_DYNAMIC_SHARED => u32, value => i32, put => usize, device => i32));
    let get = |device: i32| -> i32 {
        given(
            |out| call!(cuKernelGetAttribute(out => *mut i32, MAX_DYNAMIC_SHARED => u32, put => usize, device => i32)),
        )
    };
    let usual = get(0);
    good(set(60_000, 1));
    assert_eq!((get(0), get(1)), (usual, 60_000));
    assert_eq!((set(60_000, 2), set(60_000, -1)), (INVALID_DEVICE, INVALID_DEVICE));
    let of_function = |context: &PrimaryContext| -> i32 {
        good(call!(cuCtxPushCurrent_v2(context.raw().expose_provenance() => usize)));
        let function: usize = given(|out| call!(cuKernelGetFunction(out => *mut usize, put => usize)));
        let value =
            given(|out| call!(cuFuncGetAttribute(out => *mut i32, MAX_DYNAMIC_SHARED => u32, function => usize)));
        good(call!(cuCtxPopCurrent_v2(0 => usize)));
        value
    };
    assert_eq!([of_function(&contexts[0]), of_function(&contexts[1])], [usual, 60_000]);
    good(call!(cuLibraryUnload(library => usize)));
    child::say("done");
    Ok(())
}

#[test]
fn all_outputs_of_a_linker_live_until_it_is_destroyed() {
    const PTX: u32 = 1;
    const TEXT: &[u8] = b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing()\n{\n    ret;\n}\n\0";
    let _context = PrimaryContext::retain_and_push(0);
    let linker: usize = given(|out| call!(cuLinkCreate_v2(0 => u32, 0 => usize, 0 => usize, out => *mut usize)));
    good(call!(cuLinkAddData_v2(
        linker => usize, PTX => u32, TEXT.as_ptr() => *const u8, TEXT.len() => usize, c"text".as_ptr() => *const i8,
        0 => u32, 0 => usize, 0 => usize
    )));
    let complete = || -> usize { given(|out| call!(cuLinkComplete(linker => usize, out => *mut usize, 0 => usize))) };
    let outputs = [complete(), complete(), complete()];
    assert!(outputs[0] != outputs[1] && outputs[1] != outputs[2] && outputs[0] != outputs[2]);
    for output in outputs {
        let module: usize = given(|out| call!(cuModuleLoadData(out => *mut usize, output => usize)));
        good(call!(cuModuleUnload(module => usize)));
    }
    good(call!(cuLinkDestroy(linker => usize)));
}

#[test]
fn no_module_of_a_library_outlives_it() {
    const ROUNDS: usize = 3000;
    let _context = PrimaryContext::retain_and_push(0);
    for _ in 0..ROUNDS {
        let (library, arrived) = (library(), AtomicUsize::new(0));
        let meet = || {
            arrived.fetch_add(1, Ordering::AcqRel);
            while arrived.load(Ordering::Acquire) < 2 {
                thread::yield_now();
            }
        };
        let module = thread::scope(|scope| {
            let loading = scope.spawn(|| {
                let _context = PrimaryContext::retain_and_push(0);
                meet();
                let mut module = 0_usize;
                let code = call!(cuLibraryGetModule(&raw mut module => *mut usize, library => usize));
                (code == 0).then_some(module)
            });
            meet();
            good(call!(cuLibraryUnload(library => usize)));
            loading.join().unwrap_or_else(|_| panic!("the other thread panicked"))
        });
        let mut function = 0_usize;
        if let Some(module) = module {
            let code = call!(cuModuleGetFunction(
                &raw mut function => *mut usize, module => usize, c"put".as_ptr() => *const i8
            ));
            assert_eq!(code, INVALID_HANDLE);
        }
    }
}
