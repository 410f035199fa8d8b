//! All calls of CUDA ([`cuda`]), Vulkan ([`vulkan`]) and the system ([`os`]), owners of the objects, and raw [`Handle`]s.
//!
//! Every call is checked here and becomes a [`Result`](crate::Result) that names it. The libraries are loaded
//! on first use and never unloaded. No call reaches them in a child that is forked afterwards ([`fork`]).

pub(crate) mod context;
pub(crate) mod cuda;
pub(crate) mod fork;
pub(crate) mod memory;
pub(crate) mod os;
pub(crate) mod stream;
pub(crate) mod vulkan;

use std::mem::ManuallyDrop;

use libloading::Library;

/// The handle `CU_STREAM_LEGACY`: the current context's legacy default stream, which a null handle means, too. A cast
/// macro in cuda.h, so that cudarc has no constant for it.
pub(crate) const LEGACY_STREAM: usize = 1;
/// The handle `CU_STREAM_PER_THREAD` (cuda.h): a default stream of which each thread has its own.
pub(crate) const PER_THREAD_STREAM: usize = 2;

/// A raw driver pointer that may move between threads.
///
/// The drivers' handles are process-wide: CUDA contexts, streams and events and Vulkan's mapped pointers are
/// valid on every thread (CUDA C++ Programming Guide, "Context"; Vulkan specification, "Threading Behavior").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Handle<P>(pub(crate) P);

#[expect(unsafe_code, reason = "raw handles are plain numbers that every thread may pass to the driver")]
// SAFETY: the type gives no access to what it points at; using the pointer is unsafe in itself.
unsafe impl<T> Send for Handle<*mut T> {}
#[expect(unsafe_code, reason = "as above")]
// SAFETY: as for `Send`: sharing the number shares no data.
unsafe impl<T> Sync for Handle<*mut T> {}

/// Loads a driver's library by its file name, and never unloads it: NVIDIA's libraries exhaust static TLS space when
/// loaded and unloaded repeatedly. Returns the dynamic loader's message if that fails.
#[expect(unsafe_code, reason = "loading a library runs its initialisers")]
pub(crate) fn load_library(name: &str) -> Result<ManuallyDrop<Library>, String> {
    // SAFETY: the initialisers of a driver's library may run in any process that uses the driver.
    let library = unsafe { Library::new(name) }.map_err(|error| {
        let cause = std::error::Error::source(&error);
        cause.map_or_else(|| error.to_string(), ToString::to_string)
    })?;
    Ok(ManuallyDrop::new(library))
}
