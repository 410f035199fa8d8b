//! Detects children that were forked after the drivers were loaded.
//!
//! Neither driver works in such a child (CUDA C++ Programming Guide, "Initialization"), and everything that it
//! inherited belongs to the parent and must be left alone. Only `fork` is detected, not the bare system calls beneath
//! it.
#![expect(unsafe_code, reason = "registers a handler with the C library")]

use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Error, Result};

static FORKED: AtomicBool = AtomicBool::new(false);

/// Marks children that are forked from now on, and their descendants. Call once, when the drivers are loaded.
pub(super) fn watch_forks() -> Result<()> {
    // SAFETY: the handler is async-signal-safe; the C library removes it when this library is unloaded.
    match unsafe { libc::pthread_atfork(None, None, Some(mark_the_child)) } {
        0 => Ok(()),
        code => Err(Error::System { operation: "pthread_atfork", code }),
    }
}

extern "C" fn mark_the_child() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Whether this process was forked from one that had loaded the CUDA driver. If so, it cannot use anything that it
/// inherited, and every operation of this crate that needs a driver returns [`Error::Forked`].
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
