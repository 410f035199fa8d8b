//! Contexts, streams and copies for tests: drops release their objects, and a failed call panics at the caller.

mod context;
mod copy;
mod gate;
mod memory;
mod pinned;
mod stream;

pub use context::{Context, PrimaryContext, current, no_context, reset_primary, synchronize};
pub use copy::{copy_dtod_async, memcpy_dtoh, memcpy_htod, memset_d8};
pub use gate::Gate;
pub use memory::CudaMemory;
pub use pinned::PinnedBytes;
pub use stream::{LEGACY_STREAM, PER_THREAD_STREAM, Stream, hold};
