//! Single functions of the driver: their order with others, their memory, and what they say when they are refused.
#![expect(unsafe_code, reason = "calls the driver's functions")]

mod any_nodes;
mod captures;
mod dma_buf;
mod forks;
mod graphs;
mod ipc;
mod kernels;
mod memory;
mod missing;
mod peers;
mod pools;
mod primaries;
mod proc_address;
mod profiler;
mod semaphores;
mod settings;
mod streams;
mod virtual_memory;
mod visible;
mod vulkan;

use std::ffi::CStr;

use support::cuda::memcpy_dtoh;

/// The kernel `put`, which stores a word at an address.
const PUT: &CStr = c"
.version 7.0
.target sm_70
.address_size 64
.visible .entry put(.param .u64 out, .param .u32 value)
{
    .reg .b64 %rd;
    .reg .b32 %r;
    ld.param.u64 %rd, [out];
    ld.param.u32 %r, [value];
    st.global.u32 [%rd], %r;
    ret;
}
";

/// Calls a function of the driver by name and returns its code: `call!(cuEventQuery(event => usize))`. Handles and
/// addresses are integers.
macro_rules! call {
    ($name:ident($($argument:expr => $type:ty),* $(,)?)) => {{
        type Function = unsafe extern "C" fn($($type),*) -> i32;
        // SAFETY: the signature is the one in cuda.h.
        let function = unsafe { support::driver::function::<Function>(stringify!($name)) };
        // SAFETY: pointers are to live values, handles and device addresses are checked by the driver.
        unsafe { function($($argument),*) }
    }};
}
use call;

/// A library with that kernel.
fn library() -> usize {
    given(|out| {
        call!(cuLibraryLoadData(
            out => *mut usize, PUT.as_ptr() => *const i8, 0 => usize, 0 => usize, 0 => u32, 0 => usize, 0 => usize,
            0 => u32
        ))
    })
}

/// The kernel of that library.
fn put_of(library: usize) -> usize {
    given(|out| call!(cuLibraryGetKernel(out => *mut usize, library => usize, c"put".as_ptr() => *const i8)))
}

/// Panics with the driver's name of the code, unless it is success.
#[track_caller]
fn good(code: i32) {
    assert_eq!(code, 0, "{}", support::driver::error_name(code));
}

/// The value that a call writes through its output pointer.
#[track_caller]
fn given<T: Default>(call: impl FnOnce(*mut T) -> i32) -> T {
    let mut value = T::default();
    good(call(&raw mut value));
    value
}

fn allocate(len: usize) -> u64 {
    given(|out| call!(cuMemAlloc_v2(out => *mut u64, len => usize)))
}

fn free(address: u64) {
    good(call!(cuMemFree_v2(address => u64)));
}

fn fill(address: u64, byte: u8, len: usize) {
    good(call!(cuMemsetD8_v2(address => u64, byte => u8, len => usize)));
    // Fills of device memory are asynchronous to the host.
    good(call!(cuCtxSynchronize()));
}

fn read(address: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    memcpy_dtoh(&mut bytes, address);
    bytes
}

fn word(address: u64) -> u32 {
    let mut bytes = [0; 4];
    memcpy_dtoh(&mut bytes, address);
    u32::from_le_bytes(bytes)
}

/// A module and its kernel of that name.
fn load(text: &CStr, kernel: &CStr) -> [usize; 2] {
    let module: usize = given(|out| call!(cuModuleLoadData(out => *mut usize, text.as_ptr() => *const i8)));
    [module, given(|out| call!(cuModuleGetFunction(out => *mut usize, module => usize, kernel.as_ptr() => *const i8)))]
}

/// Launches one thread of a kernel; returns the code.
fn launch(kernel: usize, shared: u32, stream: usize, arguments: &[*const u8]) -> i32 {
    call!(cuLaunchKernel(
        kernel => usize, 1 => u32, 1 => u32, 1 => u32, 1 => u32, 1 => u32, 1 => u32, shared => u32, stream => usize,
        arguments.as_ptr() => *const *const u8, 0 => usize
    ))
}

/// Runs the kernel [`PUT`] on the legacy stream, and waits for all of the context's work; returns the error.
fn put(address: u64) -> i32 {
    let [module, function] = load(PUT, c"put");
    let value = 0x0707_0707_u32;
    good(launch(function, 0, 0, &[(&raw const address).cast(), (&raw const value).cast()]));
    let code = call!(cuCtxSynchronize());
    call!(cuModuleUnload(module => usize));
    code
}

/// An address that no kernel may access, where a store fails the context.
const NOWHERE: u64 = 64;
