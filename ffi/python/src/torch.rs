//! The C functions of PyTorch's `CUDAPluggableAllocator`, for `vkgdr.torch`: one that allocates for each kind, one that frees.
//!
//! They never wait for the interpreter's lock: PyTorch calls them under a lock of its own, which a thread that has the
//! interpreter's may be waiting for.
#![expect(unsafe_code, reason = "exports C functions")]

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

use vkgdr::{Error, MemoryKind};

use crate::error::{Failure, Result};
use crate::logging::without_python;
use crate::source::Source;

static SOURCES: LazyLock<[Source; 3]> =
    LazyLock::new(|| MemoryKind::ALL.map(|kind| Source::of(kind, Vec::new(), false)));

/// Runs `work` without Python. Errors other than a shortage of memory are written to the error output.
fn quietly<T: Default>(operation: &str, work: impl FnOnce() -> Result<T>) -> T {
    let result = without_python(|| {
        let result = catch_unwind(AssertUnwindSafe(work));
        match &result {
            Ok(Ok(_) | Err(Failure::Driver(Error::Allocation { .. }))) => {}
            Ok(Err(error)) => log::warn!("{operation} for PyTorch: {error}"),
            Err(_) => log::error!("{operation} for PyTorch: a panic"),
        }
        result
    });
    result.ok().and_then(Result::ok).unwrap_or_default()
}

fn allocate(kind: MemoryKind, size: isize, device: c_int) -> *mut c_void {
    let address = quietly("allocating", || {
        let len = usize::try_from(size).map_err(|_| Failure::Invalid(format!("{size} is not a number of bytes")))?;
        SOURCES[kind as usize].allocate_at(len, Some(device), None)
    });
    std::ptr::with_exposed_provenance_mut(crate::raw_stream::as_address(address))
}

/// Allocates mapped memory; null if that fails.
#[unsafe(no_mangle)]
extern "C" fn vkgdr_torch_alloc_mapped(size: isize, device: c_int, _stream: *mut c_void) -> *mut c_void {
    allocate(MemoryKind::Mapped, size, device)
}

/// Allocates host memory; null if that fails.
#[unsafe(no_mangle)]
extern "C" fn vkgdr_torch_alloc_host(size: isize, device: c_int, _stream: *mut c_void) -> *mut c_void {
    allocate(MemoryKind::Host, size, device)
}

/// Allocates device memory; null if that fails.
#[unsafe(no_mangle)]
extern "C" fn vkgdr_torch_alloc_device(size: isize, device: c_int, _stream: *mut c_void) -> *mut c_void {
    allocate(MemoryKind::Device, size, device)
}

/// Frees memory of any of the functions above, after the earlier work of a stream.
#[unsafe(no_mangle)]
extern "C" fn vkgdr_torch_free(pointer: *mut c_void, _size: usize, _device: c_int, stream: *mut c_void) {
    quietly("freeing", || find(pointer).free_at(pointer.addr() as u64, Some(stream.addr() as u64)));
}

/// Records that a stream uses memory: its release waits for that use.
#[unsafe(no_mangle)]
extern "C" fn vkgdr_torch_record_stream(pointer: *mut c_void, stream: *mut c_void) {
    quietly("recording a stream", || find(pointer).record_at(pointer.addr() as u64, stream.addr() as u64));
}

/// The source that allocated the memory; the first one for other addresses, whose error it then is.
fn find(pointer: *mut c_void) -> &'static Source {
    let [first, ..] = &*SOURCES;
    SOURCES.iter().find(|source| source.has(pointer.addr() as u64)).unwrap_or(first)
}
