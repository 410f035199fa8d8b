//! The primitives that [`handover`](super::handover) is built from, in the shape that loom's have.
//!
//! Between a store and a load of another place the processor may change the order, unless there is a fence between
//! them. The owner's side of a handover is used all the time and the visitors' hardly ever, so that the visitors' fence
//! does the work of both: `membarrier` runs a fence on every thread of the process (Linux, membarrier(2)). Where the
//! system does not have it, both sides run one.
#![expect(unsafe_code, reason = "a system call that libc has no function for")]

pub(super) use std::sync::atomic::{AtomicBool, Ordering};
pub(super) use std::sync::{Arc, Mutex};

use std::sync::atomic::{AtomicU8, compiler_fence, fence};

/// A cell whose content is reached through a pointer only.
#[derive(Debug, Default)]
pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(super) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline]
    pub(super) fn with_mut<R>(&self, work: impl FnOnce(*mut T) -> R) -> R {
        work(self.0.get())
    }
}

/// Not asked yet; the owner's side needs no fence; it needs one.
const UNKNOWN: u8 = 0;
const HEAVY: u8 = 1;
const LIGHT: u8 = 2;
static SYSTEM: AtomicU8 = AtomicU8::new(UNKNOWN);

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` and `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED` (linux/membarrier.h).
const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const REGISTER: libc::c_int = 1 << 4;

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: takes numbers only, and reaches no memory of ours.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, command, 0_u32, 0_i32) };
    result == 0
}

/// Finds out what the system can do. To be called before a handover is made.
pub(super) fn prepare() {
    if SYSTEM.load(Ordering::Relaxed) == UNKNOWN {
        let found = if membarrier(REGISTER) { HEAVY } else { LIGHT };
        SYSTEM.store(found, Ordering::Relaxed);
    }
}

/// The owner's fence: for the compiler alone, where the system runs the other on this thread.
#[inline]
pub(super) fn light_fence() {
    if SYSTEM.load(Ordering::Relaxed) == HEAVY {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// The visitor's fence.
pub(super) fn heavy_fence() {
    fence(Ordering::SeqCst);
    if SYSTEM.load(Ordering::Relaxed) == HEAVY && !membarrier(PRIVATE_EXPEDITED) {
        // What was registered cannot fail (membarrier(2), "ERRORS"): whatever this system is, it cannot be relied on.
        SYSTEM.store(LIGHT, Ordering::SeqCst);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Lets another thread go first.
pub(super) fn pause() {
    std::thread::yield_now();
}
