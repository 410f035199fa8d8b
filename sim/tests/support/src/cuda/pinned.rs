//! Private memory, parts of which are page-locked.
#![expect(unsafe_code, reason = "calls the CUDA driver")]

use std::ops::{Deref, DerefMut, Range};

use cudarc::driver::sys;

use crate::driver::{call, check};

const PAGE: usize = 4096;

/// Page-aligned bytes. Page-locked parts are unregistered on drop, for which a context must be current.
#[derive(Debug)]
pub struct PinnedBytes {
    /// Never grows or moves.
    storage: Vec<u8>,
    start: usize,
    len: usize,
    /// The start addresses of the page-locked parts.
    pinned: Vec<usize>,
}

impl PinnedBytes {
    /// `len` bytes, all page-locked.
    ///
    /// # Panics
    /// When the driver refuses.
    #[must_use]
    #[track_caller]
    pub fn new(len: usize) -> Self {
        let mut bytes = Self::pageable(len);
        bytes.pin(0..len);
        bytes
    }

    /// `len` bytes, none page-locked.
    #[must_use]
    pub fn pageable(len: usize) -> Self {
        let storage = vec![0; len + PAGE];
        let start = storage.as_ptr().align_offset(PAGE);
        Self { storage, start, len, pinned: Vec::new() }
    }

    /// Page-locks a range.
    ///
    /// # Panics
    /// When the driver refuses, for instance because part of the range is page-locked already.
    #[track_caller]
    pub fn pin(&mut self, range: Range<usize>) {
        let part = &mut self[range.clone()];
        // SAFETY: the bytes do not move before they are unregistered.
        let code = unsafe {
            call::cuMemHostRegister_v2(part.as_mut_ptr().cast(), part.len(), sys::CU_MEMHOSTREGISTER_PORTABLE)
        };
        check("cuMemHostRegister_v2", code);
        self.pinned.push(range.start);
    }
}

impl Deref for PinnedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.storage[self.start..][..self.len]
    }
}

impl DerefMut for PinnedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..][..self.len]
    }
}

impl Drop for PinnedBytes {
    fn drop(&mut self) {
        for start in std::mem::take(&mut self.pinned) {
            let first = self[start..].as_mut_ptr();
            // SAFETY: registered by `pin`. Errors are ignored: the context may have been destroyed.
            let _ = unsafe { call::cuMemHostUnregister(first.cast()) };
        }
    }
}
