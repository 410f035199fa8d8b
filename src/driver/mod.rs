//! All calls of CUDA ([`cuda`]), Vulkan ([`vulkan`]) and the operating system, owners of the objects, and raw [`Handle`]s.
//!
//! Every call is checked here and becomes a [`Result`](crate::Result) that names it. The libraries are loaded
//! on first use and never unloaded. No call reaches them in a child that is forked afterwards ([`fork`]).

pub(crate) mod context;
pub(crate) mod cuda;
pub(crate) mod descriptor;
pub(crate) mod dma_buf;
pub(crate) mod fork;
pub(crate) mod library;
pub(crate) mod locked_pages;
pub(crate) mod memfd;
pub(crate) mod owned_stream;
pub(crate) mod raw_event;
pub(crate) mod socket;
pub(crate) mod system_memory;
pub(crate) mod vulkan;

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
