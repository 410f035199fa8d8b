//! Whose turn it is to make a block, so that threads that run out together do not make one each.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

thread_local! {
    static GROWING: Cell<bool> = const { Cell::new(false) };
}

/// Threads take turns here, but none waits for ever: whoever has the turn may be logging, and the logger be held by a
/// thread that waits here. A thread that has waited for so long makes a block of its own.
const PATIENCE: Duration = Duration::from_secs(1);

/// A pool's turn.
#[derive(Debug, Default)]
pub(super) struct Turn {
    taken: Mutex<bool>,
    free: Condvar,
}

impl Turn {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the turn could be had.
    fn take(&self) -> bool {
        let waited = self.free.wait_timeout_while(self.lock(), PATIENCE, |taken| *taken);
        let (mut taken, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !std::mem::replace(&mut *taken, true)
    }

    fn give(&self) {
        *self.lock() = false;
        self.free.notify_one();
    }
}

/// The turn of a thread that makes a block. A log line of the drivers' side that comes here again does not wait for
/// itself.
pub(super) struct Growing<'a> {
    outermost: bool,
    /// None for a thread that goes without.
    turn: Option<&'a Turn>,
}

impl<'a> Growing<'a> {
    pub(super) fn begin(turn: &'a Turn) -> Self {
        let outermost = !GROWING.replace(true);
        let turn = Some(turn).filter(|turn| outermost && turn.take());
        Self { outermost, turn }
    }
}

impl Drop for Growing<'_> {
    fn drop(&mut self) {
        GROWING.set(!self.outermost);
        if let Some(turn) = self.turn {
            turn.give();
        }
    }
}
