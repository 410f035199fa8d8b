//! Storage for this thread's last error.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::Failure;
use crate::status::vkgdr_status as Status;

/// The text and the codes of an error.
pub(crate) struct LastError {
    text: CString,
    status: Status,
    cuda: i32,
    vulkan: i32,
}

impl LastError {
    pub(crate) fn text(&self) -> &CStr {
        &self.text
    }

    /// The status, CUDA's code and Vulkan's code.
    pub(crate) const fn codes(&self) -> [i32; 3] {
        [self.status as i32, self.cuda, self.vulkan]
    }
}

thread_local! {
    static LAST: RefCell<Option<LastError>> = const { RefCell::new(None) };
}

/// Whether any thread ever had a last error. Checked first: thread-local storage is slow to access in a shared library.
static EVER: AtomicBool = AtomicBool::new(false);

/// Sets this thread's last error, and returns its status.
#[cold]
pub(crate) fn set(failure: &Failure) -> Status {
    EVER.store(true, Ordering::Relaxed);
    replace(Some(describe(failure)));
    failure.status()
}

/// Clears this thread's last error. Most calls find none to clear, which takes nanoseconds.
#[inline]
pub(crate) fn clear() {
    if EVER.load(Ordering::Relaxed) && LAST.try_with(|slot| slot.borrow().is_some()).unwrap_or(false) {
        replace(None);
    }
}

#[cold]
fn replace(last: Option<LastError>) {
    // A thread that is exiting has no last error any more.
    let _ = LAST.try_with(|slot| slot.replace(last));
}

/// Passes this thread's last error to `read`. Returns `None` without an error, and while the thread exits.
pub(crate) fn with<T>(read: impl FnOnce(&LastError) -> T) -> Option<T> {
    LAST.try_with(|slot| slot.borrow().as_ref().map(read)).ok().flatten()
}

fn describe(failure: &Failure) -> LastError {
    let (text, cuda, vulkan) = match failure {
        Failure::Null(what) => (format!("the {what} is NULL"), None, None),
        Failure::OptionsSize(size) => (format!("this library knows no options of {size} bytes"), None, None),
        Failure::CopyPolicy(value) => (format!("unknown copy policy {value}"), None, None),
        Failure::Region => ("a region is given where whole memory is required".to_owned(), None, None),
        Failure::NotFound => ("no memory of vkgdr contains the address".to_owned(), None, None),
        Failure::Library(error) => (error.to_string(), error.cuda_code(), error.vulkan_code()),
        Failure::Panic => ("internal error in vkgdr: see stderr".to_owned(), None, None),
    };
    let text = CString::new(text.replace('\0', "")).unwrap_or_default();
    LastError { text, status: failure.status(), cuda: cuda.unwrap_or(0), vulkan: vulkan.unwrap_or(0) }
}
