//! Pages of this process that a copy engine may use.
#![expect(unsafe_code, reason = "maps pages and hands them to the driver")]

use std::ptr::{self, NonNull};

use super::cuda::cuda;
use super::{Handle, process};
use crate::error::CudaCode;
use crate::{Error, Result};

/// Pages that are locked into memory, registered with the context that was current when they were made.
///
/// They are our own and not the driver's (`cuMemHostAlloc`), so that they are still there when somebody destroys the
/// context while the CPU copies to them. Children that are forked off do not get them: a copy on write would take the
/// page away from under the copy engine (madvise(2), `MADV_DONTFORK`).
#[derive(Debug)]
pub(crate) struct LockedPages {
    // In this order: unregistered, then unmapped.
    registration: Registration,
    pages: Pages,
}

impl LockedPages {
    /// `len` bytes, a multiple of the page size, in the current context.
    ///
    /// The driver may still have a registration at an address where nothing has been mapped since: of somebody who
    /// unmapped what was registered, or of a context that another thread is destroying. Then other pages are taken.
    pub(crate) fn new(len: usize) -> Result<Self> {
        // Kept, so that the next pages are not the same.
        let mut refused = Vec::new();
        loop {
            let pages = Pages::map(len)?;
            match pages.register() {
                Err(error)
                    if error.cuda_code() == Some(CudaCode::ALREADY_REGISTERED) && refused.len() < Self::TRIES =>
                {
                    refused.push(pages);
                }
                registration => return registration.map(|registration| Self { registration, pages }),
            }
        }
    }

    const TRIES: usize = 4;

    /// The first byte. Valid as long as this value.
    pub(crate) fn start(&self) -> NonNull<u8> {
        NonNull::new(self.pages.start.0).unwrap_or(NonNull::dangling())
    }

    /// Leaves the pages, locked, to the end of the process: a copy engine may still use them.
    pub(crate) fn leave(&mut self) {
        self.registration.0 = None;
        self.pages.left = true;
    }

    /// Forgets the registration, which CUDA ended with the context.
    pub(crate) fn abandon(&mut self) {
        self.registration.0 = None;
    }
}

/// Ends the registration when it goes.
#[derive(Debug)]
struct Registration(Option<Handle<*mut u8>>);

impl Drop for Registration {
    fn drop(&mut self) {
        let Some(pages) = self.0.take() else { return };
        if process::is_forked() {
            return;
        }
        // SAFETY: registered when this value was made, and no copy uses the pages: see `leave`.
        if let Err(error) = cuda().and_then(|cuda| unsafe { cuda.host_unregister(pages.0) }) {
            log::warn!("releasing locked pages: {error}");
        }
    }
}

/// Private pages.
#[derive(Debug)]
struct Pages {
    start: Handle<*mut u8>,
    len: usize,
    left: bool,
}

impl Pages {
    fn map(len: usize) -> Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new pages, at an address that the system chooses.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(last_error("mmap"));
        }
        let pages = Self { start: Handle(start.cast()), len, left: false };
        // SAFETY: the pages that were just mapped.
        if unsafe { libc::madvise(start, len, libc::MADV_DONTFORK) } == 0 {
            Ok(pages)
        } else {
            Err(last_error("madvise"))
        }
    }

    fn register(&self) -> Result<Registration> {
        let start = self.start.0;
        // SAFETY: the pages are mapped, and unregistered before they are unmapped.
        unsafe { cuda()?.host_register(start, self.len) }?;
        Ok(Registration(Some(Handle(start))))
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // In a child that was forked off they are not there, and something else may be.
        if process::is_forked() || self.left {
            return;
        }
        // SAFETY: mapped when this value was made, and nobody uses them after their only owner.
        unsafe { libc::munmap(self.start.0.cast(), self.len) };
    }
}

fn last_error(operation: &'static str) -> Error {
    Error::System { operation, code: std::io::Error::last_os_error().raw_os_error().unwrap_or_default() }
}
