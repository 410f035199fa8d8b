//! A connection with pinned memory.
#![expect(unsafe_code, reason = "calls C functions")]

use std::ffi::c_void;
use std::ptr::null_mut;

use support::Result;
use support::cuda::PrimaryContext;
use vkgdr_c::{gdr_info_v2_t, gdr_mh_t, gdr_t};
use vkgdr_rs::{Memory, MemoryKind, OpenFlags, Vkgdr};

use crate::api::{call, close, open};

pub(crate) const PAGE: usize = 65536;
pub(crate) const LEN: usize = 3 * PAGE + 100;
pub(crate) const NO_HANDLE: gdr_mh_t = gdr_mh_t { h: 0 };

/// Mapped memory; host memory on a GPU without.
pub(crate) fn kind(gpu: &Vkgdr) -> MemoryKind {
    if gpu.supports(MemoryKind::Mapped) { MemoryKind::Mapped } else { MemoryKind::Host }
}

/// A connection, memory and its handle.
pub(crate) struct Fixture {
    pub(crate) g: gdr_t,
    pub(crate) memory: Memory,
    pub(crate) handle: gdr_mh_t,
    _context: PrimaryContext,
}

impl Fixture {
    pub(crate) fn of(memory: Memory, context: PrimaryContext) -> Result<Self> {
        let g = open();
        assert!(!g.is_null());
        let mut handle = NO_HANDLE;
        assert_eq!(call!(pin(g, memory.device_ptr(), memory.len(), 0, 0, &raw mut handle)), 0);
        assert_ne!(handle, NO_HANDLE);
        Ok(Self { g, memory, handle, _context: context })
    }

    pub(crate) fn new() -> Result<Self> {
        let (context, gpu) = support::open(OpenFlags::empty())?;
        Self::of(Memory::allocate(&gpu, LEN, kind(&gpu))?, context)
    }

    pub(crate) fn info(&self) -> Result<gdr_info_v2_t> {
        let mut info = gdr_info_v2_t::default();
        assert_eq!(call!(info(self.g, self.handle, &raw mut info)), 0);
        Ok(info)
    }

    /// Maps all, and gives the host addresses of the mapping and of the memory in it.
    pub(crate) fn map(&self) -> Result<(*mut c_void, *mut c_void)> {
        let (info, mut va) = (self.info()?.v1, null_mut());
        assert_eq!(call!(map(self.g, self.handle, &raw mut va, usize::try_from(info.mapped_size)?)), 0);
        Ok((va, va.wrapping_byte_add(usize::try_from(self.memory.device_ptr() - info.va)?)))
    }

    pub(crate) fn close(self) -> Result {
        assert_eq!(close(self.g), 0);
        Ok(())
    }
}
