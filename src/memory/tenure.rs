//! What keeps a region's bytes: an allocation of its own, or a piece that was lent.
#![expect(unsafe_code, reason = "binds streams that somebody else keeps alive")]

use std::sync::Arc;

use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUstream;

use super::binding::{Binding, DropPolicy, SharedBinding};
use super::piece::Lease;
use super::release::Held;
use crate::Result;
use crate::allocation::Allocation;
use crate::driver::context::Context;
use crate::driver::process;

/// A share in an allocation or in a piece of one. With the last share it is released, or goes back.
#[derive(Debug, Clone)]
pub(crate) enum Tenure {
    Own(Arc<Held>),
    Lent(Lease),
}

impl Tenure {
    #[inline]
    pub(super) fn allocation(&self) -> &Allocation {
        self.held().allocation()
    }

    #[inline]
    fn held(&self) -> &Held {
        match self {
            Self::Own(held) => held,
            Self::Lent(lease) => lease.held(),
        }
    }

    pub(super) const fn is_lent(&self) -> bool {
        matches!(self, Self::Lent(_))
    }

    pub(crate) fn context(&self) -> Context {
        self.held().context()
    }

    /// The binding, to be changed.
    fn binding(&self) -> &SharedBinding {
        match self {
            Self::Own(held) => held.binding(),
            Self::Lent(lease) => lease.binding(),
        }
    }

    /// The binding as it is now.
    fn bound(&self) -> Binding {
        match self {
            Self::Own(held) => held.binding().get(),
            Self::Lent(lease) => lease.known_binding().map_or_else(Binding::default, SharedBinding::get),
        }
    }

    /// Notes that the device may use the bytes from now on.
    #[inline]
    pub(super) fn expose(&self) {
        if let Self::Lent(lease) = self {
            lease.expose();
        }
    }

    pub(super) fn policy(&self) -> DropPolicy {
        self.bound().policy()
    }

    pub(super) fn release_immediately(&self) {
        self.binding().change(Binding::release_immediately);
    }

    pub(super) fn bind(&self, stream: &Arc<CudaStream>) -> Result<()> {
        self.binding().bind(stream, self.context())
    }

    /// # Safety
    ///
    /// `stream` must be live, and stay so until the bytes are released or bound to another stream.
    pub(super) unsafe fn bind_raw(&self, stream: CUstream) -> Result<()> {
        // SAFETY: by this method's contract.
        unsafe { self.binding().bind_raw(stream, self.context()) }
    }

    pub(super) fn bound_stream(&self) -> Option<CUstream> {
        self.bound().stream()
    }

    /// Waits for the bound stream, and ends the binding.
    pub(super) fn unbind(&self) -> Result<()> {
        self.binding().unbind(self.context())
    }

    /// Notes that `stream` is about to use the bytes.
    pub(crate) fn note_use(&self, stream: CUstream) {
        self.expose();
        self.binding().change(|binding| binding.note_use(stream));
    }

    /// Notes that a copy of ours may still be under way.
    pub(super) fn note_stray(&self) {
        self.expose();
        self.binding().change(Binding::note_stray);
    }

    /// Waits for the bound stream, if there is one.
    pub(super) fn wait_for_stream(&self) -> Result<()> {
        process::check()?;
        self.bound().synchronize(self.context())
    }

    /// As [`end`](Self::end), and nothing is waited for.
    #[inline]
    pub(super) fn end_idle(self) -> Result<()> {
        match self {
            Self::Lent(lease) => lease.end_idle(),
            Self::Own(_) => {
                self.release_immediately();
                self.end()
            }
        }
    }

    /// Gives this share up, and reports what goes wrong when it is the last.
    pub(super) fn end(self) -> Result<()> {
        match self {
            Self::Own(held) => Arc::into_inner(held).map_or(Ok(()), |mut held| held.release()),
            Self::Lent(lease) => lease.end(),
        }
    }
}
