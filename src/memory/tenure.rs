//! What a lease tells of the bytes that it keeps: who has them, and what else may use them.
#![expect(unsafe_code, reason = "binds streams that somebody else keeps alive")]

use std::sync::Arc;

use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUstream;

use super::binding::{Binding, DropPolicy};
use super::piece::Lease;
use super::release::Held;
use crate::Result;
use crate::allocation::Allocation;
use crate::driver::context::Context;
use crate::driver::process;

impl Lease {
    #[inline]
    fn held(&self) -> &Held {
        self.piece().held()
    }

    #[inline]
    pub(super) fn allocation(&self) -> &Allocation {
        self.held().allocation()
    }

    pub(super) fn is_lent(&self) -> bool {
        !self.piece().is_own()
    }

    pub(crate) fn context(&self) -> Context {
        self.held().context()
    }

    /// Notes that the device may use the bytes from now on.
    #[inline]
    pub(super) fn expose(&self) {
        self.piece().expose();
    }

    pub(super) fn policy(&self) -> DropPolicy {
        self.piece().bound().unwrap_or_default().policy()
    }

    pub(super) fn release_immediately(&self) {
        self.change(Binding::release_immediately);
    }

    pub(super) fn bind(&self, stream: &Arc<CudaStream>) -> Result<()> {
        process::check()?;
        self.piece().binding().bind(stream, self.context())
    }

    /// # Safety
    ///
    /// `stream` must be live, and stay so until the bytes are released or bound to another stream.
    pub(super) unsafe fn bind_raw(&self, stream: CUstream) -> Result<()> {
        process::check()?;
        // SAFETY: by this method's contract.
        unsafe { self.piece().binding().bind_raw(stream, self.context()) }
    }

    #[inline]
    pub(super) fn bound_stream(&self) -> Option<CUstream> {
        if self.piece().may_be_bound() { self.known_stream() } else { None }
    }

    fn known_stream(&self) -> Option<CUstream> {
        self.piece().bound()?.stream()
    }

    /// Waits for the bound stream, and ends the binding.
    pub(super) fn unbind(&self) -> Result<()> {
        process::check()?;
        self.piece().binding().unbind(self.context())
    }

    /// Notes that `stream` is about to use the bytes.
    pub(crate) fn note_use(&self, stream: CUstream) {
        self.expose();
        self.change(|binding| binding.note_use(stream));
    }

    /// Notes that a copy of ours may still be under way.
    pub(super) fn note_stray(&self) {
        self.expose();
        self.change(Binding::note_stray);
    }

    /// Changes the binding. In a process that was forked off, nothing: a thread that is not there may have its lock.
    pub(super) fn change(&self, change: impl FnOnce(&mut Binding)) {
        if !process::is_forked() {
            self.piece().binding().change(change);
        }
    }

    /// Waits for the bound stream, if there is one.
    pub(super) fn wait_for_stream(&self) -> Result<()> {
        process::check()?;
        self.piece().bound().map_or(Ok(()), |binding| binding.synchronize(self.context()))
    }
}
