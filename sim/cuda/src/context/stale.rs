//! `SIMCUDA_STALE_CONTEXT=abort`: contexts that were destroyed, as the record of real drivers has them.
//!
//! To touch a destroyed context is undefined there: 709 "cannot be used to detect" it (openucx/ucx#10852), and its address
//! may be another context's by then. So a new context gets the address of the one that was destroyed last, and a call that is
//! given a destroyed context, or a stream or an event of one, ends the process with its name. A destroyed context that a
//! thread has current may still be asked without naming it, and popped (CUDA driver API, cuCtxDestroy).

use std::backtrace::{Backtrace, BacktraceStatus};
use std::collections::HashSet;
use std::sync::{LazyLock, Mutex};

use simcommon::stop;

use crate::call;
use crate::code::{Code, INVALID_HANDLE};
use crate::handle::{self, Handles};
use crate::settings::settings;
use crate::sync::lock;

/// The addresses of destroyed contexts, for new ones.
static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());
/// The streams and events that were destroyed with their contexts.
static ORPHANS: LazyLock<Mutex<HashSet<usize>>> = LazyLock::new(Mutex::default);

/// The address of a new context.
pub(crate) fn address() -> usize {
    lock(&FREE).pop().unwrap_or_else(handle::next)
}

/// Lets a later context have the address of one that was destroyed.
pub(crate) fn release(address: usize) {
    if settings().stale_aborts {
        lock(&FREE).push(address);
    }
}

/// Whether the addresses of destroyed contexts are given to others.
pub(crate) fn reuses() -> bool {
    settings().stale_aborts
}

/// Removes the streams or events of a context that is destroyed, and remembers them.
pub(crate) fn orphan<T>(all: &Handles<T>, gone: impl Fn(&T) -> bool) {
    // Dropped with the tables unlocked.
    let orphans = all.remove_where(gone);
    if settings().stale_aborts {
        lock(&ORPHANS).extend(orphans.iter().map(|(handle, _)| *handle));
    }
}

/// Called with a handle that is not a live context's, but may be another object's.
pub(super) fn context(address: usize) {
    if settings().stale_aborts && lock(&FREE).contains(&address) {
        abort("context", address);
    }
}

/// The error for an unknown stream or event.
pub(crate) fn unknown(noun: &str, handle: usize) -> Code {
    if settings().stale_aborts && lock(&ORPHANS).contains(&handle) {
        abort(&format!("{noun} of a context"), handle);
    }
    INVALID_HANDLE
}

fn abort(what: &str, handle: usize) -> ! {
    let call = call::name();
    // With RUST_BACKTRACE=1.
    let place = Backtrace::capture();
    let place = if place.status() == BacktraceStatus::Captured { format!("\n{place}") } else { String::new() };
    stop!("simcuda: {call} was given a {what} that was destroyed, {handle:#x}: undefined in CUDA{place}")
}
