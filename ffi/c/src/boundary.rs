//! The boundary around every export: catches panics, refuses null pointers, stores the last error.
//!
//! Results are written only on success.
#![expect(unsafe_code, reason = "turns C pointers into references")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::failure::{Failure, Outcome};
use crate::last_error;
use crate::status::vkgdr_status as Status;

/// Runs the body of an export. The result is small: bodies reduce an [`Outcome`] first, since copying one costs more
/// than most exports do.
#[inline]
pub(crate) fn catch<T>(body: impl FnOnce() -> T, after_panic: impl FnOnce() -> T) -> T {
    // Unwind-safe: nothing that the body may have left half done is used after a panic, and unwinding releases its
    // locks.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| after_panic())
}

/// For exports that return a status. A failure becomes this thread's last error, a success leaves that as it is.
#[inline]
pub(crate) fn status(body: impl FnOnce() -> Outcome) -> i32 {
    code(catch(|| body().map_err(remember), || Err(remember(Failure::Panic))))
}

/// For exports of vkgdr 0.1 that return a value; on failure it is `otherwise`.
#[inline]
pub(crate) fn value<T>(otherwise: T, body: impl FnOnce() -> Outcome<T>) -> T {
    catch(|| body().ok(), || None).unwrap_or(otherwise)
}

/// For exports that open, create or allocate: a success also clears this thread's last error.
#[inline]
pub(crate) fn remembered<T>(body: impl FnOnce() -> Outcome<T>) -> Result<T, Status> {
    let told = || body().inspect(|_| last_error::clear()).map_err(remember);
    catch(told, || Err(remember(Failure::Panic)))
}

/// As [`remembered`], for exports that return a status.
#[inline]
pub(crate) fn opening(body: impl FnOnce() -> Outcome) -> i32 {
    code(remembered(body))
}

/// Makes a failure this thread's last error, and leaves the error number of a system call in `errno`.
#[cold]
fn remember(failure: Failure) -> Status {
    let errno = failure.errno();
    let status = last_error::set(failure);
    errno.inspect(|&code| set_errno(code));
    status
}

pub(crate) fn set_errno(code: i32) {
    // SAFETY: always succeeds.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: this thread's variable.
    unsafe { errno.write(code) };
}

/// The return value of an export for a status.
#[inline]
fn code(outcome: Result<(), Status>) -> i32 {
    outcome.map_or_else(|status| status as i32, |()| Status::VKGDR_SUCCESS as i32)
}

/// The value that a handle points to.
///
/// # Safety
///
/// `pointer` must be null or a live handle of this library.
#[inline]
pub(crate) unsafe fn handle<'a, T>(pointer: *const T) -> Outcome<&'a T> {
    // SAFETY: by this function's contract.
    unsafe { pointer.as_ref() }.ok_or(Failure::Null("handle"))
}

/// Writes a result.
///
/// # Safety
///
/// `pointer` must be null or good for writing a `T`.
pub(crate) unsafe fn put<T>(pointer: *mut T, value: T) -> Outcome {
    required(pointer)?;
    // SAFETY: by this function's contract.
    unsafe { pointer.write(value) };
    Ok(())
}

/// Fails for a null result pointer, before any work that would have to be undone.
pub(crate) fn required<T>(pointer: *mut T) -> Outcome {
    if pointer.is_null() { Err(Failure::Null("result")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_in_every_form_of_export() {
        assert_eq!(value(7, || panic!("defect")), 7);
        assert_eq!(status(|| panic!("defect")), Status::VKGDR_ERROR_INTERNAL as i32);
        assert!(last_error::with(|_| ()).is_some());
        assert!(remembered(|| Ok(())).is_ok() && last_error::with(|_| ()).is_none());
        let outcome: Result<(), _> = remembered(|| panic!("defect"));
        assert_eq!(outcome.map_err(|status| status as i32), Err(Status::VKGDR_ERROR_INTERNAL as i32));
        let text = last_error::with(|last| last.to_string());
        assert!(text.is_some_and(|text| text.contains("internal error")));
    }

    #[test]
    fn null_is_refused() {
        // SAFETY: null is allowed.
        assert!(matches!(unsafe { handle::<u8>(std::ptr::null()) }, Err(Failure::Null(_))));
        // SAFETY: null is allowed.
        assert!(matches!(unsafe { put(std::ptr::null_mut(), 1) }, Err(Failure::Null(_))));
    }
}
