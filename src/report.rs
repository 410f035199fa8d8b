//! [`log_failure`], for releases that return no error. A log line comes last, when the state is already right, and with no lock
//! held. A logger may call this library, or wait for a thread that does.
#![forbid(unsafe_code)]

use crate::{Error, Result};

/// Logs why something could not be released, where no caller gets the error.
#[inline]
pub(crate) fn log_failure(what: &str, released: Result<()>) {
    match released {
        // A forked child leaves what it inherited to its parent.
        Ok(()) | Err(Error::Forked) => {}
        Err(error) if !error.is_news() => {}
        Err(error) => log::warn!("releasing {what}: {error}"),
    }
}
