//! [`Failure`], the error type of this library, and this thread's last error, with its exports.
#![expect(unsafe_code, reason = "exports C symbols, and memory that C frees")]

use std::cell::{Cell, RefCell};
use std::ffi::{CString, c_char};
use std::fmt::{Display, Formatter, Result as FmtResult};
use std::ptr::null_mut;

use vkgdr_rs::Error;

use crate::boundary;
use crate::status::{vkgdr_status as Status, vkgdr_status_string};

/// The text of this thread's last error: what failed, with its numbers and, where there is one, the remedy.
///
/// A function sets it that returns an error status, or that opens, creates or allocates and returns NULL. It is NULL before,
/// and again once a function succeeds that opens, creates, allocates, maps, sends or receives, vkgdr_memory_get_dma_buf()
/// included. Once a thread's destructors have run, as in handlers of atexit(), it is the text of the status alone.
///
/// @return A string that the caller frees with `free()`. Calling this again gives another copy.
#[unsafe(no_mangle)]
pub extern "C" fn vkgdr_last_error() -> *mut c_char {
    boundary::value(null_mut(), || {
        let text = with_last(|last| CString::new(last.to_string().replace('\0', "")).unwrap_or_default());
        let status = CODES.get()[0];
        let text = match &text {
            Some(text) => text.as_ptr(),
            None if status == Status::VKGDR_SUCCESS as i32 => return Ok(null_mut()),
            None => vkgdr_status_string(status),
        };
        // SAFETY: the string ends with a zero byte; the copy comes from libc's own malloc.
        Ok(unsafe { libc::strdup(text) })
    })
}

/// The codes of this thread's last error, whose text vkgdr_last_error() returns. Without an error, all are 0.
///
/// @param status  A `vkgdr_status`.
/// @param cuda    The `CUresult`, if a CUDA driver call failed, else 0.
/// @param vulkan  The `VkResult`, if a Vulkan call failed or a size was refused, else 0.
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// The pointers must be NULL or good for writing; NULL is skipped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_last_error_codes(status: *mut i32, cuda: *mut i32, vulkan: *mut i32) -> i32 {
    boundary::status(|| {
        for (pointer, value) in [status, cuda, vulkan].into_iter().zip(CODES.get()) {
            if !pointer.is_null() {
                // SAFETY: not null, so good for writing by this function's contract.
                unsafe { pointer.write(value) };
            }
        }
        Ok(())
    })
}

/// Why an export failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A null pointer where null is not allowed; the name of the parameter.
    Null(&'static str),
    /// A size of 0 where that is not allowed; what it is of.
    Empty(&'static str),
    /// More bytes than any object has.
    TooLong(usize),
    NullHandle,
    /// Options of a size that no version of this library's header has.
    OptionsSize(usize),
    /// An unknown copy policy.
    CopyPolicy(u32),
    /// A region, or a mapping of others' memory, where whole memory is required.
    NotWhole,
    /// Memory that Vulkan did not allocate, where that is required.
    NotOfVulkan,
    /// An address in no memory of this library.
    NotFound,
    /// An error of the crate.
    Library(Error),
    /// A panic: a defect of this library.
    Panic,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

impl Failure {
    /// The error number of a system call that failed.
    pub(crate) const fn errno(&self) -> Option<i32> {
        match self {
            Self::Library(Error::System { code, .. }) => Some(*code),
            _ => None,
        }
    }

    /// The status, CUDA's code and Vulkan's code.
    pub(crate) fn codes(&self) -> [i32; 3] {
        let of = |code: fn(&Error) -> Option<i32>| match self {
            Self::Library(error) => code(error).unwrap_or(0),
            _ => 0,
        };
        [self.status() as i32, of(Error::cuda_code), of(Error::vulkan_code)]
    }

    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Null(_)
            | Self::Empty(_)
            | Self::NullHandle
            | Self::OptionsSize(_)
            | Self::CopyPolicy(_)
            | Self::NotWhole => Status::VKGDR_ERROR_INVALID_ARGUMENT,
            Self::TooLong(_) => Status::VKGDR_ERROR_OUT_OF_RANGE,
            Self::NotOfVulkan => Status::VKGDR_ERROR_NOT_SUPPORTED,
            Self::NotFound => Status::VKGDR_ERROR_NOT_FOUND,
            Self::Library(error) => error.into(),
            Self::Panic => Status::VKGDR_ERROR_INTERNAL,
        }
    }
}

impl Display for Failure {
    fn fmt(&self, text: &mut Formatter<'_>) -> FmtResult {
        match self {
            Self::Null(what) => write!(text, "{what} is NULL"),
            Self::Empty(what) => write!(text, "the {what} has a size of 0"),
            Self::TooLong(len) => write!(text, "no object has {len} bytes"),
            Self::NullHandle => text.write_str("the handle is NULL: closed or freed, or in C++ moved from"),
            Self::OptionsSize(size) => write!(text, "this library knows no options of {size} bytes"),
            Self::CopyPolicy(value) => write!(text, "unknown copy policy {value}"),
            Self::NotWhole => {
                text.write_str("whole memory of this library is required, not a region or a mapping of others' memory")
            }
            Self::NotOfVulkan => text.write_str("CUDA or the system allocated this memory, not Vulkan"),
            Self::NotFound => text.write_str("no memory of vkgdr contains the address"),
            Self::Library(error) => error.fmt(text),
            Self::Panic => text.write_str("internal error in vkgdr: see stderr"),
        }
    }
}

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

thread_local! {
    static LAST: RefCell<Option<Failure>> = const { RefCell::new(None) };
    /// Its codes, which an exiting thread has, too.
    static CODES: Cell<[i32; 3]> = const { Cell::new([0; 3]) };
}

/// Sets this thread's last error, and returns its status. Its text is made when it is asked for: a poll may fail often.
#[cold]
pub(crate) fn set_last(failure: Failure) -> Status {
    let status = failure.status();
    replace(Some(failure));
    status
}

/// Clears this thread's last error.
#[inline]
pub(crate) fn clear_last() {
    if CODES.get() != [0; 3] {
        replace(None);
    }
}

#[cold]
fn replace(last: Option<Failure>) {
    CODES.set(last.as_ref().map(Failure::codes).unwrap_or_default());
    // A thread that is exiting keeps the codes alone.
    let _ = LAST.try_with(|slot| *slot.borrow_mut() = last);
}

/// Passes this thread's last error to `read`. Returns `None` without an error, and while the thread exits.
pub(crate) fn with_last<T>(read: impl FnOnce(&Failure) -> T) -> Option<T> {
    LAST.try_with(|slot| slot.borrow().as_ref().map(read)).ok().flatten()
}
