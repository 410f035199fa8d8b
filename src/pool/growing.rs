//! Whose turn it is to make a block, so that threads that run out together do not make one each.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};

thread_local! {
    static GROWING: Cell<bool> = const { Cell::new(false) };
}

/// The turn of a thread that makes a block. A log line of the drivers' side that comes here again does not wait for
/// itself.
pub(super) struct Growing<'a> {
    outermost: bool,
    _turn: Option<MutexGuard<'a, ()>>,
}

impl<'a> Growing<'a> {
    pub(super) fn begin(turn: &'a Mutex<()>) -> Self {
        let outermost = !GROWING.replace(true);
        let turn = outermost.then(|| turn.lock().unwrap_or_else(PoisonError::into_inner));
        Self { outermost, _turn: turn }
    }
}

impl Drop for Growing<'_> {
    fn drop(&mut self) {
        GROWING.set(!self.outermost);
    }
}
