//! Scopes in which freed memory is kept, to be released together at their end, as numba's `defer_cleanup` does.
#![forbid(unsafe_code)]

use std::mem::take;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use vkgdr::DropPolicy;

use crate::storage::Owned;

#[derive(Default)]
struct Deferral {
    /// The number of open scopes.
    scopes: usize,
    freed: Vec<Owned>,
}

static DEFERRAL: Mutex<Deferral> = Mutex::new(Deferral { scopes: 0, freed: Vec::new() });

/// Keeps freed memory while a scope is open, and returns it otherwise. Never in a forked child, which may have inherited a
/// lock that another thread holds.
///
/// Memory bound to a stream is not kept: its free does not wait, and records the event that the release waits for, since the
/// stream may be destroyed right after.
pub(crate) fn defer(owned: Owned) -> Option<Owned> {
    if vkgdr::is_forked() {
        return Some(owned);
    }
    let mut deferral = DEFERRAL.lock().unwrap_or_else(PoisonError::into_inner);
    if deferral.scopes == 0 || owned.memory.drop_policy() == DropPolicy::WaitForStream {
        return Some(owned);
    }
    deferral.freed.push(owned);
    None
}

/// Opens a scope.
#[pyfunction]
pub(crate) fn deferral_begin() {
    if !vkgdr::is_forked() {
        DEFERRAL.lock().unwrap_or_else(PoisonError::into_inner).scopes += 1;
    }
}

/// Closes a scope, and releases what was freed if it was the last one.
#[pyfunction]
pub(crate) fn deferral_end(py: Python<'_>) {
    if vkgdr::is_forked() {
        return;
    }
    let mut deferral = DEFERRAL.lock().unwrap_or_else(PoisonError::into_inner);
    deferral.scopes = deferral.scopes.saturating_sub(1);
    let freed = if deferral.scopes == 0 { take(&mut deferral.freed) } else { Vec::new() };
    drop(deferral);
    for owned in freed {
        if let Err(error) = owned.free(Some(py)) {
            log::warn!("freeing memory: {error}");
        }
    }
}
