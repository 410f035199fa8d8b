//! The boundary around every export: catches panics, refuses null pointers, stores the last error.
//!
//! Results are written only on success.
#![expect(unsafe_code, reason = "turns C pointers into references")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use crate::errors::{Failure, Outcome, clear_last, set_last};
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

/// For exports that open, create, allocate, map, send or receive: a success also clears this thread's last error.
#[inline]
fn remembered<T>(body: impl FnOnce() -> Outcome<T>) -> Result<T, Status> {
    let told = || body().inspect(|_| clear_last()).map_err(remember);
    catch(told, || Err(remember(Failure::Panic)))
}

/// As [`remembered`], for exports that return a handle; null on failure.
#[inline]
pub(crate) fn pointer<T>(body: impl FnOnce() -> Outcome<*mut T>) -> *mut T {
    remembered(body).unwrap_or(null_mut())
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
    let status = set_last(failure);
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

/// For exports that use what a handle points to, and return a status.
///
/// # Safety
///
/// `pointer` must be null or a live handle of this library.
#[inline]
pub(crate) unsafe fn with<H>(pointer: *const H, body: impl FnOnce(&H) -> Outcome) -> i32 {
    // SAFETY: by this function's contract.
    status(|| body(unsafe { handle(pointer) }?))
}

/// As [`with`], for what cannot fail.
///
/// # Safety
///
/// As for [`with`].
pub(crate) unsafe fn run<H>(pointer: *const H, body: impl FnOnce(&H)) -> i32 {
    status(|| {
        // SAFETY: by this function's contract.
        body(unsafe { handle(pointer) }?);
        Ok(())
    })
}

/// As [`with`], and writes a result.
///
/// # Safety
///
/// As for [`with`], and `out` must be null or good for writing.
pub(crate) unsafe fn answer<H, T>(pointer: *const H, out: *mut T, body: impl FnOnce(&H) -> Outcome<T>) -> i32 {
    status(|| {
        // SAFETY: by this function's contract.
        let object = unsafe { handle(pointer) }?;
        required(out)?;
        // SAFETY: by this function's contract.
        unsafe { put(out, body(object)?) }
    })
}

/// For exports that make something and write its handle, as [`opening`].
///
/// # Safety
///
/// `out` must be null or good for writing.
pub(crate) unsafe fn making<T>(out: *mut *mut T, body: impl FnOnce() -> Outcome<*mut T>) -> i32 {
    opening(|| {
        required(out)?;
        // SAFETY: by this function's contract.
        unsafe { put(out, body()?) }
    })
}

/// For exports that close a handle; null does nothing.
///
/// # Safety
///
/// `pointer` must be null or from a box, and not be used again.
pub(crate) unsafe fn close<T>(pointer: *mut T) {
    value((), || {
        if !pointer.is_null() {
            // SAFETY: by this function's contract.
            drop(unsafe { Box::from_raw(pointer) });
        }
        Ok(())
    });
}

/// The value that a handle points to.
///
/// # Safety
///
/// `pointer` must be null or a live handle of this library.
#[inline]
pub(crate) unsafe fn handle<'a, T>(pointer: *const T) -> Outcome<&'a T> {
    // SAFETY: by this function's contract.
    unsafe { pointer.as_ref() }.ok_or(Failure::NullHandle)
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
    if pointer.is_null() { Err(Failure::Null("the result")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errors::with_last;

    #[test]
    fn a_panic_becomes_an_error_in_every_form_of_export() {
        assert_eq!(value(7, || panic!("defect")), 7);
        assert_eq!(status(|| panic!("defect")), Status::VKGDR_ERROR_INTERNAL as i32);
        assert!(with_last(|_| ()).is_some());
        assert!(remembered(|| Ok(())).is_ok() && with_last(|_| ()).is_none());
        let outcome: Result<(), _> = remembered(|| panic!("defect"));
        assert_eq!(outcome.map_err(|status| status as i32), Err(Status::VKGDR_ERROR_INTERNAL as i32));
        let text = with_last(|last| last.to_string());
        assert!(text.is_some_and(|text| text.contains("internal error")));
    }
}
