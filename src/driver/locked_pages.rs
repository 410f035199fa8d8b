//! Page-locked memory of this process: private pages for a copy engine, shared pages for `Host` memory.
#![expect(unsafe_code, reason = "maps pages and hands them to the driver")]

use std::ffi::c_void;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use cudarc::driver::sys::CUdeviceptr;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use super::cuda::cuda;
use super::descriptor::system;
use super::{Handle, fork};
use crate::Result;
use crate::error::CudaCode;
use crate::report::report;

/// Page-locked memory, registered with the context that was current when it was created.
///
/// The pages are mapped here and not by the driver (`cuMemHostAlloc`), so that they stay mapped when the context is
/// destroyed while the CPU copies to them.
#[derive(Debug)]
pub(crate) struct LockedPages {
    // The order of teardown: unregistered, then unmapped.
    registration: Registration,
    pages: Pages,
}

impl LockedPages {
    /// `len` private bytes, a multiple of the page size, in the current context. Forked children do not inherit them:
    /// after a fork a copy-on-write would move the parent's page to a frame that the copy engine does not use
    /// (madvise(2), `MADV_DONTFORK`).
    pub(crate) fn new(len: usize) -> Result<Self> {
        Self::lock(false, || Pages::map_private(len))
    }

    /// The first `len` bytes of a file, a multiple of the page size, in the current context. Kernels can access them.
    ///
    /// Forked children inherit the mapping: shared pages are never copied on write, so that both processes and the device
    /// continue to use the same frames.
    pub(crate) fn map_file(file: BorrowedFd<'_>, len: usize) -> Result<Self> {
        Self::lock(true, || Pages::map_shared(file, len))
    }

    /// Maps and registers pages.
    ///
    /// The driver may still have a stale registration at the new address: of pages that were unmapped without being
    /// unregistered, or of a context that another thread is destroying. Then this takes other pages.
    fn lock(mapped: bool, map: impl Fn() -> Result<Pages>) -> Result<Self> {
        // Kept mapped, so that the next pages are different ones.
        let mut refused = Vec::new();
        loop {
            let pages = map()?;
            match pages.register(mapped) {
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
        NonNull::new(self.pages.start.0).expect("a mapping is not at address 0")
    }

    /// The device address of pages that kernels can access, in the current context.
    pub(crate) fn device_ptr(&self) -> Result<CUdeviceptr> {
        cuda()?.host_device_pointer(self.pages.start.0)
    }

    /// Unregisters in the current context, and unmaps. A second call does nothing.
    pub(crate) fn release(&mut self) -> Result<()> {
        let unregistered = self.registration.release();
        self.pages.unmap();
        unregistered
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

impl Registration {
    fn release(&mut self) -> Result<()> {
        let Some(pages) = self.0.take() else { return Ok(()) };
        if fork::is_forked() {
            return Ok(());
        }
        // SAFETY: registered when this value was created, and nothing of the device uses the pages: see `leave`.
        unsafe { cuda()?.host_unregister(pages.0) }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Err(error) = self.release() {
            report!(Warn, "releasing locked pages: {error}");
        }
    }
}

const ACCESS: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Mapped pages.
#[derive(Debug)]
struct Pages {
    start: Handle<*mut u8>,
    len: usize,
    /// Whether they are unmapped, or left to the process.
    left: bool,
}

impl Pages {
    fn map_private(len: usize) -> Result<Self> {
        // SAFETY: a new mapping at an address that the system chooses.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), len, ACCESS, MapFlags::PRIVATE) };
        let pages = Self::new(start.map_err(system("mmap"))?, len);
        // SAFETY: the pages were just mapped.
        unsafe { madvise(pages.start.0.cast(), len, Advice::LinuxDontFork) }.map_err(system("madvise"))?;
        Ok(pages)
    }

    fn map_shared(file: BorrowedFd<'_>, len: usize) -> Result<Self> {
        // SAFETY: a new mapping at an address that the system chooses.
        let start = unsafe { mmap(ptr::null_mut(), len, ACCESS, MapFlags::SHARED, file, 0) };
        Ok(Self::new(start.map_err(system("mmap"))?, len))
    }

    fn new(start: *mut c_void, len: usize) -> Self {
        Self { start: Handle(start.cast()), len, left: false }
    }

    fn register(&self, mapped: bool) -> Result<Registration> {
        let start = self.start.0;
        // SAFETY: the pages are mapped, and unregistered before they are unmapped.
        unsafe { cuda()?.host_register(start, self.len, mapped) }?;
        Ok(Registration(Some(Handle(start))))
    }

    /// Unmaps the pages, once. A forked child leaves them: it has no private pages of the parent's, and may have mapped
    /// others there.
    fn unmap(&mut self) {
        if fork::is_forked() || std::mem::replace(&mut self.left, true) {
            return;
        }
        // SAFETY: mapped when this value was created, which is their only owner, and only once: `left` is set.
        let unmapped = unsafe { munmap(self.start.0.cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.unmap();
    }
}
