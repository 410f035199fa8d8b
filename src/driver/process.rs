//! Whether this process was forked off one that had loaded the drivers.
//!
//! Neither driver works in such a child (CUDA C++ Programming Guide, "Initialization"), and what the child inherited
//! is still the parent's: it must be left alone. Only `fork` is noticed, not the bare system calls beneath it.
#![expect(unsafe_code, reason = "registers a handler with the C library")]

use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Error, Result};

static FORKED: AtomicBool = AtomicBool::new(false);

/// Marks the children that are forked off from now on, and theirs. To be called once, when the drivers are loaded.
pub(super) fn watch_forks() -> Result<()> {
    // SAFETY: the handler is async-signal-safe; the C library forgets it when this library is unloaded.
    match unsafe { libc::pthread_atfork(None, None, Some(mark_the_child)) } {
        0 => Ok(()),
        code => Err(Error::System { operation: "pthread_atfork", code }),
    }
}

extern "C" fn mark_the_child() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Whether this process was forked off one that had loaded the CUDA driver. Then nothing that it inherited can be used,
/// and everything here that would reach a driver is [`Error::Forked`].
///
/// One load from memory.
#[inline]
#[must_use]
pub fn is_forked() -> bool {
    // The mark is made before the child's only thread goes on.
    FORKED.load(Ordering::Relaxed)
}

/// Fails with [`Error::Forked`] where the drivers belong to a parent of this process.
#[inline]
pub(crate) fn check() -> Result<()> {
    if is_forked() { Err(Error::Forked) } else { Ok(()) }
}
