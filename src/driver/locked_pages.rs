//! Page-locked memory of this process for a copy engine.
#![expect(unsafe_code, reason = "maps pages and hands them to the driver")]

use std::ptr::{self, NonNull};

use super::cuda::cuda;
use super::{Handle, process};
use crate::error::CudaCode;
use crate::report::report;
use crate::{Error, Result};

/// Page-locked memory, registered with the context that was current when it was created.
///
/// The pages are mapped here and not by the driver (`cuMemHostAlloc`), so that they stay mapped when the context is
/// destroyed while the CPU copies to them. Forked children do not inherit them: after a fork a copy-on-write would move
/// the parent's page to a frame that the copy engine does not use (madvise(2), `MADV_DONTFORK`).
#[derive(Debug)]
pub(crate) struct LockedPages {
    // The order of teardown: unregistered, then unmapped.
    registration: Registration,
    pages: Pages,
}

impl LockedPages {
    /// `len` bytes, a multiple of the page size, in the current context.
    ///
    /// The driver may still have a stale registration at the new address: of pages that were unmapped without being
    /// unregistered, or of a context that another thread is destroying. Then this takes other pages.
    pub(crate) fn new(len: usize) -> Result<Self> {
        // Kept mapped, so that the next pages are different ones.
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

    /// The first byte. Valid while this value lives.
    pub(crate) fn start(&self) -> NonNull<u8> {
        NonNull::new(self.pages.start.0).unwrap_or(NonNull::dangling())
    }

    /// Leaks the pages, still locked: a copy engine may still use them.
    pub(crate) fn leave(&mut self) {
        self.registration.0 = None;
        self.pages.left = true;
    }

    /// Forgets the registration, which CUDA removed with the context.
    pub(crate) fn abandon(&mut self) {
        self.registration.0 = None;
    }
}

/// Unregisters the pages when dropped.
#[derive(Debug)]
struct Registration(Option<Handle<*mut u8>>);

impl Drop for Registration {
    fn drop(&mut self) {
        let Some(pages) = self.0.take() else { return };
        if process::is_forked() {
            return;
        }
        // SAFETY: registered when this value was created, and no copy uses the pages: see `leave`.
        if let Err(error) = cuda().and_then(|cuda| unsafe { cuda.host_unregister(pages.0) }) {
            report!(Warn, "releasing locked pages: {error}");
        }
    }
}

/// Anonymous private pages.
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
        // SAFETY: a new mapping at an address that the system chooses.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(last_error("mmap"));
        }
        let pages = Self { start: Handle(start.cast()), len, left: false };
        // SAFETY: the pages were just mapped.
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
        // A forked child does not have these pages, and may have mapped others there.
        if process::is_forked() || self.left {
            return;
        }
        // SAFETY: mapped when this value was created, which is their only owner.
        unsafe { libc::munmap(self.start.0.cast(), self.len) };
    }
}

fn last_error(operation: &'static str) -> Error {
    Error::System { operation, code: std::io::Error::last_os_error().raw_os_error().unwrap_or_default() }
}
