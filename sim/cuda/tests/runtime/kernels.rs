//! Kernels and variables that a program registers, as nvcc makes it.

mod graphs;
mod nodes;

use std::ffi::c_char;
use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use support::cuda::{Context, Stream};
use support::fork::{End, end_of};
use support::{Result, child, simcuda, skip};

use crate::{HOST_TO_DEVICE, INVALID_HANDLE, INVALID_VALUE, Runtime, call, good, with_each};

const PTX: &[u8] = b"
.version 7.0
.target sm_70
.address_size 64
.global .align 4 .u32 step = 3;
.visible .entry add(.param .u64 out, .param .u32 amount)
{
    .reg .b64 %rd<4>;
    .reg .b32 %r<6>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [amount];
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %rd2, %r2, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.u32 %r3, [step];
    mad.lo.u32 %r4, %r2, %r3, %r1;
    st.global.u32 [%rd3], %r4;
    ret;
}
\0";

// The start of a cubin.
const CUBIN: &[u8] = b"\x7fELF\x02\x01\x01\x33\x07\0\0\0\0\0\0\0";

const ADD: &[u8] = b"add\0";
const STEP: &[u8] = b"step\0";
// Their addresses stand for a kernel and a variable of the program.
static KERNEL: u64 = 0;
static OTHER: u64 = 1;
static VARIABLE: u64 = 2;
static THIRD: u64 = 3;

fn address(of: &'static u64) -> usize {
    std::ptr::from_ref(of).expose_provenance()
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Dim3(u32, u32, u32);

/// A binary with a kernel and a variable of these addresses.
struct Binary(Runtime, usize);

impl Binary {
    fn register(cuda: Runtime, image: &'static [u8], kernel: usize) -> Self {
        type Register = unsafe extern "C" fn(*const u8) -> usize;
        // SAFETY: the type in crt/host_runtime.h.
        let register = unsafe { cuda.symbol::<Register>("__cudaRegisterFatBinary") };
        // SAFETY: the image is static.
        let binary = unsafe { register(image.as_ptr()) };
        call!(
            cuda,
            __cudaRegisterFunction(binary => usize, kernel => usize, 0 => usize, ADD.as_ptr() => *const u8, -1 => i32,
                                   0 => usize, 0 => usize, 0 => usize, 0 => usize, 0 => usize)
        );
        call!(
            cuda,
            __cudaRegisterVar(binary => usize, address(&VARIABLE) => usize, 0 => usize, STEP.as_ptr() => *const u8,
                              0 => i32, 4 => usize, 0 => i32, 0 => i32)
        );
        call!(cuda, __cudaRegisterFatBinaryEnd(binary => usize));
        Binary(cuda, binary)
    }
}

impl Drop for Binary {
    fn drop(&mut self) {
        call!(self.0, __cudaUnregisterFatBinary(self.1 => usize));
    }
}

fn launch(cuda: Runtime, kernel: usize, block: Dim3, out: usize, amount: u32) -> i32 {
    launch_on(cuda, 0, kernel, block, (out, amount))
}

fn launch_on(cuda: Runtime, stream: usize, kernel: usize, block: Dim3, (out, amount): (usize, u32)) -> i32 {
    let arguments = [(&raw const out).cast::<u8>(), (&raw const amount).cast::<u8>()];
    call!(
        cuda,
        cudaLaunchKernel(kernel => usize, Dim3(1, 1, 1) => Dim3, block => Dim3,
                         arguments.as_ptr() => *const *const u8, 0 => usize, stream => usize)
    )
}

fn words(cuda: Runtime, from: usize, count: usize) -> Vec<u32> {
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
    cuda.read(from, 4 * count).chunks(4).map(word).collect()
}

#[test]
fn a_launch_on_a_stream_of_another_context_is_refused() {
    with_each(|cuda| {
        let _binary = Binary::register(cuda, PTX, address(&KERNEL));
        let out = cuda.allocate(4);
        let other = Context::create(0);
        let stream = Stream::create();
        let launch = || launch_on(cuda, stream.raw().addr(), address(&KERNEL), Dim3(1, 1, 1), (out, 5));
        assert_eq!(launch(), 0, "of the current context");
        good!(cuda, cudaSetDevice(0 => i32));
        assert_eq!(launch(), INVALID_HANDLE);
        other.with_current(|| drop(stream));
        cuda.free(out);
    });
}

#[test]
fn a_managed_variable_is_found_before_its_first_use() {
    const PTX: &[u8] = b".version 7.0\n.target sm_70\n.address_size 64
        .global .attribute(.managed) .align 4 .u32 step = 3; .visible .entry add() { ret; }\0";
    with_each(|cuda| {
        let binary = Binary::register(cuda, PTX, address(&KERNEL));
        let mut pointer = 0_usize;
        call!(
            cuda,
            __cudaRegisterManagedVar(binary.1 => usize, &raw mut pointer => *mut usize, 0 => usize,
                                     STEP.as_ptr() => *const u8, 0 => i32, 4 => usize, 0 => i32, 0 => i32)
        );
        for _ in 0..2 {
            call!(cuda, __cudaInitModule(binary.1 => usize));
        }
        // SAFETY: a variable of the library, which is loaded.
        assert_eq!(unsafe { std::ptr::with_exposed_provenance::<u32>(pointer).read() }, 3);
        // nvcc gives its address for the symbol.
        let (mut found, value) = (0_usize, 8_u32);
        good!(cuda, cudaGetSymbolAddress(&raw mut found => *mut usize, pointer => usize));
        assert_eq!(found, pointer);
        good!(
            cuda,
            cudaMemcpyToSymbol(pointer => usize, &raw const value => *const u32, 4 => usize, 0 => usize,
                               HOST_TO_DEVICE => i32)
        );
        // SAFETY: as above.
        assert_eq!(unsafe { std::ptr::with_exposed_provenance::<u32>(pointer).read() }, 8);
        // A reset frees it; the next launch finds it again, which nvcc's code does not ask for.
        good!(cuda, cudaDeviceReset());
        assert_eq!(launch(cuda, address(&KERNEL), Dim3(1, 1, 1), 0, 0), 0);
        good!(cuda, cudaDeviceSynchronize());
        // SAFETY: a variable of the library, which was loaded again.
        assert_eq!(unsafe { std::ptr::with_exposed_provenance::<u32>(pointer).read() }, 3);
        good!(cuda, cudaGetSymbolAddress(&raw mut found => *mut usize, pointer => usize));
        assert_eq!(found, pointer);
    });
}

#[test]
fn a_binary_that_memory_was_too_short_for_is_loaded_later() {
    with_each(|cuda| {
        let Some(controls) = simcuda() else { return };
        let _binary = Binary::register(cuda, PTX, address(&KERNEL));
        let out = cuda.allocate(4);
        controls.fail("cuLibraryLoadData", 1, 2);
        let codes: [i32; 2] = std::array::from_fn(|_| launch(cuda, address(&KERNEL), Dim3(1, 1, 1), out, 9));
        assert_eq!((codes, words(cuda, out, 1)), ([2, 0], vec![9]));
        assert_eq!(cuda.last_error(), 2);
        cuda.free(out);
    });
}

#[test]
fn a_registered_kernel_runs_with_its_variables() {
    with_each(|cuda| {
        let _binary = Binary::register(cuda, PTX, address(&KERNEL));
        let out = cuda.allocate(16);
        assert_eq!(launch(cuda, address(&KERNEL), Dim3(4, 1, 1), out, 10), 0);
        assert_eq!(words(cuda, out, 4), [10, 13, 16, 19]);
        let mut size = 0_usize;
        good!(cuda, cudaGetSymbolSize(&raw mut size => *mut usize, address(&VARIABLE) => usize));
        assert_eq!(size, 4);
        let step = 5_u32;
        let set = |offset: usize| {
            call!(
                cuda,
                cudaMemcpyToSymbol(address(&VARIABLE) => usize, &raw const step => *const u32, 4 => usize,
                                   offset => usize, HOST_TO_DEVICE => i32)
            )
        };
        assert_eq!((set(0), set(1)), (0, INVALID_VALUE));
        // As nvcc's code for <<<>>> does it.
        let (grid, block) = (Dim3(1, 1, 1), Dim3(2, 1, 1));
        let (mut kernel, mut shared, mut stream) = (0_usize, 9_usize, 9_usize);
        let (mut popped_grid, mut popped_block) = (Dim3(0, 0, 0), Dim3(0, 0, 0));
        good!(cuda, __cudaGetKernel(&raw mut kernel => *mut usize, address(&KERNEL) => usize));
        good!(cuda, __cudaPushCallConfiguration(grid => Dim3, block => Dim3, 0 => usize, 0 => usize));
        good!(
            cuda,
            __cudaPopCallConfiguration(&raw mut popped_grid => *mut Dim3, &raw mut popped_block => *mut Dim3,
                                       &raw mut shared => *mut usize, &raw mut stream => *mut usize)
        );
        let amount = 1_u32;
        let arguments = [(&raw const out).cast::<u8>(), (&raw const amount).cast::<u8>()];
        good!(
            cuda,
            __cudaLaunchKernel(kernel => usize, popped_grid => Dim3, popped_block => Dim3,
                               arguments.as_ptr() => *const *const u8, shared => usize, stream => usize)
        );
        assert_eq!(words(cuda, out, 4), [1, 6, 16, 19]);
        // cudaErrorMissingConfiguration
        let empty = call!(
            cuda,
            __cudaPopCallConfiguration(&raw mut popped_grid => *mut Dim3, &raw mut popped_block => *mut Dim3,
                                       &raw mut shared => *mut usize, &raw mut stream => *mut usize)
        );
        assert_eq!(empty, 52);
        cuda.free(out);
    });
}

#[test]
fn kernels_have_attributes_names_and_occupancy() {
    with_each(|cuda| {
        let _binary = Binary::register(cuda, PTX, address(&KERNEL));
        let kernel = address(&KERNEL);
        // cudaFuncAttributes: three sizes, then the most threads, registers and the version of the PTX.
        let mut attributes = [0_u32; 36];
        good!(cuda, cudaFuncGetAttributes(attributes.as_mut_ptr() => *mut u32, kernel => usize));
        assert_eq!((attributes[6], attributes[8]), (1024, 70));
        good!(cuda, cudaFuncSetAttribute(kernel => usize, 8 => i32, 1024 => i32));
        let mut name: *const c_char = std::ptr::null();
        good!(cuda, cudaFuncGetName(&raw mut name => *mut *const c_char, kernel => usize));
        // SAFETY: the name lives as long as the kernel is loaded.
        assert_eq!(unsafe { std::ffi::CStr::from_ptr(name) }, c"add");
        let mut blocks = 0;
        good!(
            cuda,
            cudaOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut blocks => *mut i32, kernel => usize, 256 => i32,
                                                          0 => usize)
        );
        assert!(blocks > 0);
        // A handle of the kernel is as good as the function.
        let mut handle = 0_usize;
        good!(cuda, cudaGetKernel(&raw mut handle => *mut usize, kernel => usize));
        let out = cuda.allocate(4);
        assert_eq!(launch(cuda, handle, Dim3(1, 1, 1), out, 77), 0);
        assert_eq!(words(cuda, out, 1), [77]);
        cuda.free(out);
    });
}

#[test]
fn what_cannot_run_says_why() {
    with_each(|cuda| {
        let out = cuda.allocate(16);
        // cudaErrorInvalidDeviceFunction, cudaErrorInvalidSymbol, cudaErrorInvalidConfiguration,
        // cudaErrorNoKernelImageForDevice
        assert_eq!(launch(cuda, address(&KERNEL), Dim3(1, 1, 1), out, 0), 98);
        let mut pointer = 0_usize;
        let found = call!(cuda, cudaGetSymbolAddress(&raw mut pointer => *mut usize, address(&VARIABLE) => usize));
        assert_eq!(found, 13);
        let binary = Binary::register(cuda, PTX, address(&KERNEL));
        for block in [Dim3(0, 1, 1), Dim3(1025, 1, 1), Dim3(32, 33, 1), Dim3(1, 1, 65)] {
            assert_eq!(launch(cuda, address(&KERNEL), block, out, 0), 9);
        }
        drop(binary);
        assert_eq!(launch(cuda, address(&KERNEL), Dim3(1, 1, 1), out, 0), 98, "unregistered");
        let _compiled = Binary::register(cuda, CUBIN, address(&OTHER));
        for _ in 0..2 {
            assert_eq!(launch(cuda, address(&OTHER), Dim3(1, 1, 1), out, 0), 209);
            assert_eq!((cuda.last_error(), cuda.last_error()), (209, 0), "not a sticky error");
        }
        cuda.free(out);
    });
}

#[test]
fn a_fault_stays_until_the_device_is_reset() {
    with_each(|cuda| {
        let _binary = Binary::register(cuda, PTX, address(&KERNEL));
        assert_eq!(launch(cuda, address(&KERNEL), Dim3(1, 1, 1), 16, 0), 0);
        // cudaErrorIllegalAddress
        assert_eq!(call!(cuda, cudaDeviceSynchronize()), 700);
        let mut pointer = 0_usize;
        assert_eq!(call!(cuda, cudaMalloc(&raw mut pointer => *mut usize, 4 => usize)), 700);
        assert_eq!((cuda.last_error(), cuda.last_error()), (700, 700));
        good!(cuda, cudaDeviceReset());
        assert_eq!(cuda.last_error(), 0);
        let out = cuda.allocate(4);
        assert_eq!(launch(cuda, address(&KERNEL), Dim3(1, 1, 1), out, 8), 0);
        assert_eq!(words(cuda, out, 1), [8]);
        cuda.free(out);
    });
}

/// A text with `add` that takes a while to load.
fn long_ptx() -> &'static [u8] {
    let mut text = String::from_utf8_lossy(PTX).trim_end_matches('\0').to_owned();
    for kernel in 0..400 {
        let body = "add.u32 %r1, %r2, %r3;\n".repeat(200);
        let _ = write!(text, ".visible .entry k{kernel}()\n{{\n.reg .b32 %r<4>;\n{body}ret;\n}}\n");
    }
    text.push('\0');
    Box::leak(text.into_boxed_str().into_boxed_bytes())
}

/// Programs unregister their code when they end, also forked children.
#[test]
fn code_is_unregistered_in_a_child_that_was_forked_while_it_was_loaded() {
    with_each(|cuda| {
        let Some(sim) = simcuda() else { return };
        type Unregister = unsafe extern "C" fn(usize);
        let binary = Binary::register(cuda, long_ptx(), address(&KERNEL));
        let out = cuda.allocate(4);
        // SAFETY: the type in crt/host_runtime.h.
        let unregister = unsafe { cuda.symbol::<Unregister>("__cudaUnregisterFatBinary") };
        let loads = || sim.calls(Some("cuLibraryLoadData"));
        let before = loads();
        thread::scope(|scope| {
            scope.spawn(|| assert_eq!(launch(cuda, address(&KERNEL), Dim3(1, 1, 1), out, 7), 0));
            while loads() == before {
                thread::yield_now();
            }
            let end = end_of(|| {
                // SAFETY: async-signal-safe; kills a hanging child.
                unsafe { libc::alarm(5) };
                // SAFETY: a registered binary.
                unsafe { unregister(binary.1) };
                0
            });
            assert_eq!(end.ok(), Some(End::Exit(0)));
        });
        assert_eq!(words(cuda, out, 1), [7]);
        cuda.free(out);
    });
}

// Its `add` waits until the word at `out` is not 0.
const WAITING: &[u8] = b"
.version 7.0
.target sm_70
.address_size 64
.visible .entry add(.param .u64 out, .param .u32 amount)
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    .reg .pred %p;
    ld.param.u64 %rd1, [out];
again:
    ld.volatile.global.u32 %r1, [%rd1];
    setp.eq.u32 %p, %r1, 0;
    @%p bra again;
    ret;
}
\0";

/// Launches loaded code while a kernel waits for it, and while code is loaded, which waits for that kernel.
fn launch_beside_a_load(cuda: Runtime) {
    let [loaded, waiting, new] = [(PTX, &KERNEL), (WAITING, &OTHER), (PTX, &THIRD)]
        .map(|(image, kernel)| (Binary::register(cuda, image, address(kernel)), address(kernel)));
    let (flag, out, one) = (cuda.allocate(4), cuda.allocate(4), Dim3(1, 1, 1));
    cuda.write(flag, &[0; 4]);
    let streams = [0_usize; 3].map(|mut stream| {
        good!(cuda, cudaStreamCreateWithFlags(&raw mut stream => *mut usize, 1 => u32));
        stream
    });
    assert_eq!(launch(cuda, loaded.1, one, out, 1), 0);
    good!(cuda, cudaDeviceSynchronize());
    assert_eq!(launch_on(cuda, streams[0], waiting.1, one, (flag, 0)), 0);
    thread::scope(|scope| {
        let load = scope.spawn(|| launch_on(cuda, streams[1], new.1, one, (out, 5)));
        thread::sleep(Duration::from_millis(100));
        assert!(!load.is_finished());
        let set = scope.spawn(|| launch_on(cuda, streams[2], loaded.1, one, (flag, 1)));
        let start = Instant::now();
        while !set.is_finished() {
            if start.elapsed() > Duration::from_secs(10) {
                child::say("the loaded code waited");
                std::process::exit(1);
            }
            thread::yield_now();
        }
        assert_eq!(set.join().ok(), Some(0));
        assert_eq!(load.join().ok(), Some(0));
    });
    good!(cuda, cudaDeviceSynchronize());
    assert_eq!(words(cuda, out, 1), [5]);
    for stream in streams {
        good!(cuda, cudaStreamDestroy(stream => usize));
    }
    cuda.free(flag);
    cuda.free(out);
}

#[test]
fn loaded_code_is_launched_while_other_code_waits_for_its_load() -> Result {
    if child::role().is_some() {
        with_each(launch_beside_a_load);
        child::say("launched");
        return Ok(());
    }
    if simcuda().is_none() {
        return skip("the runtime is the simulator's");
    }
    assert_eq!(child::run(child::command("launching")?)?, ["launched"]);
    Ok(())
}
