//! Detects children that were forked after the drivers were loaded.
//!
//! Neither driver works in such a child (CUDA C++ Programming Guide, "Initialization"). Everything that it inherited
//! belongs to the parent and must be left alone. Only `fork` is detected, not the bare system calls beneath it.
#![expect(unsafe_code, reason = "registers a handler with the C library")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::{Error, Result};

static FORKED: AtomicBool = AtomicBool::new(false);
/// Threads that are loading the drivers, and one more once these are loaded. Children are marked while it is not 0.
static LOADERS: AtomicUsize = AtomicUsize::new(0);

/// Marks children that are forked from now on, and their descendants. Call before taking the lock under which the drivers are
/// loaded: a child inherits it locked, and must not wait for it.
pub(super) fn watch_forks() -> Result<()> {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    // Two threads may register the handler: marking a child twice does no harm.
    if !REGISTERED.load(Ordering::Relaxed) {
        // SAFETY: the handler is async-signal-safe; the C library removes it when this library is unloaded.
        match unsafe { libc::pthread_atfork(None, None, Some(mark_the_child)) } {
            0 => REGISTERED.store(true, Ordering::Relaxed),
            code => return Err(Error::System { operation: "pthread_atfork", code }),
        }
    }
    LOADERS.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Takes back one [`watch_forks`], of a thread that has loaded nothing, or of a driver that does not start.
pub(super) fn stop_watching_forks() {
    LOADERS.fetch_sub(1, Ordering::Relaxed);
}

extern "C" fn mark_the_child() {
    if LOADERS.load(Ordering::Relaxed) != 0 {
        FORKED.store(true, Ordering::Relaxed);
    }
}

/// Whether this process was forked from one in which this crate was loading or had loaded the CUDA driver. If so, it cannot use
/// anything that it inherited, and every operation of this crate that needs a driver returns [`Error::Forked`]. A driver
/// that only other libraries loaded is not known here: in a child of such a process `cuInit` fails.
///
/// Costs one load from memory.
#[inline]
#[must_use]
pub fn is_forked() -> bool {
    // Relaxed: the child's only thread sets it before `fork` returns.
    FORKED.load(Ordering::Relaxed)
}

/// Fails with [`Error::Forked`] in a child that was forked after the drivers were loaded.
#[inline]
pub(crate) fn check() -> Result<()> {
    if is_forked() { Err(Error::Forked) } else { Ok(()) }
}
