//! The state of a context: its flags, its limits, its streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cudarc::driver::sys::CUctx_flags;

use super::limits::Limits;
use crate::code::{INVALID_VALUE, Outcome};
use crate::health::Health;
use crate::memory::kernel_heap::KernelHeap;
use crate::owner::Owner;
use crate::queue::Streams;

const SCHEDULES: [u32; 4] = [
    CUctx_flags::CU_CTX_SCHED_AUTO as u32,
    CUctx_flags::CU_CTX_SCHED_SPIN as u32,
    CUctx_flags::CU_CTX_SCHED_YIELD as u32,
    CUctx_flags::CU_CTX_SCHED_BLOCKING_SYNC as u32,
];
const SCHEDULE_MASK: u32 = CUctx_flags::CU_CTX_SCHED_MASK as u32;
const KNOWN_FLAGS: u32 = CUctx_flags::CU_CTX_FLAGS_MASK as u32;

/// Refuses unknown flags and impossible schedules.
pub(crate) fn check_flags(flags: u32) -> Outcome {
    let schedule = SCHEDULES.contains(&(flags & SCHEDULE_MASK));
    if schedule && flags & !KNOWN_FLAGS == 0 { Ok(()) } else { Err(INVALID_VALUE) }
}

pub(crate) struct Context {
    owner: Owner,
    flags: AtomicU32,
    // The cuCtxAttach and cuCtxCreate calls without a matching cuCtxDetach.
    uses: AtomicU32,
    pub(super) limits: Limits,
    pub(crate) health: Arc<Health>,
    pub(crate) streams: Arc<Streams>,
}

impl Context {
    pub(crate) fn new(handle: usize, device: i32, flags: u32) -> Arc<Context> {
        let owner = Owner::new(handle, device);
        let health = Arc::new(Health::default());
        let streams = Streams::new(owner, &health);
        let (flags, uses, limits) = (AtomicU32::new(flags), AtomicU32::new(1), Limits::default());
        Arc::new(Context { owner, flags, uses, limits, health, streams })
    }

    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }

    pub(crate) fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    pub(crate) fn set_flags(&self, flags: u32) {
        self.flags.store(flags, Ordering::Relaxed);
    }

    /// The heap of `malloc` in its kernels.
    pub(crate) fn kernel_heap(&self) -> Arc<KernelHeap> {
        Arc::clone(self.limits.heap())
    }

    /// Counts one more use.
    pub(crate) fn attach(&self) {
        self.uses.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends a use; whether it was the last.
    pub(crate) fn detach(&self) -> bool {
        self.uses.fetch_sub(1, Ordering::Relaxed) == 1
    }
}
