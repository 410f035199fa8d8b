//! Shares in a piece, counted: the last one gives it back.
#![expect(unsafe_code, reason = "counts who shares a piece")]

use std::mem::{ManuallyDrop, offset_of};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::binding::Binding;
use super::piece::{FreePiece, Lease, Lot, Part, Piece, Tag};
use super::release::Held;
use super::shares::Shares;
use super::slab::{Slab, Slot};
use crate::Result;
use crate::driver::process;

impl Lease {
    /// All of an allocation, for somebody's own.
    pub(super) fn own(held: Held) -> Self {
        let len = held.allocation().len();
        let lot = Arc::new(Lot::own(held));
        Self::new(FreePiece::new(&mut Slab::new(1), lot, 0, Tag { span: 0, class: 0 }), len)
    }

    /// Lends a piece for `len` bytes.
    #[inline]
    pub(crate) fn new(mut piece: FreePiece, len: usize) -> Self {
        piece.0.shares = Shares::one();
        piece.0.whole.len = len;
        Self(piece.0.into_raw())
    }

    /// Makes a pointer to [`whole`](Self::whole) of it.
    #[inline]
    pub(crate) fn into_raw(self) -> NonNull<Part> {
        let piece = ManuallyDrop::new(self).0;
        // SAFETY: within the piece.
        unsafe { piece.byte_add(offset_of!(Piece, whole)) }.cast()
    }

    /// The share of a pointer.
    ///
    /// # Safety
    ///
    /// The pointer must come from [`into_raw`](Self::into_raw), and stands for one share.
    #[inline]
    pub(crate) unsafe fn from_raw(whole: NonNull<Part>) -> Self {
        // SAFETY: the piece begins there, by this function's contract.
        Self(unsafe { whole.byte_sub(offset_of!(Piece, whole)) }.cast())
    }

    #[inline]
    pub(crate) fn piece(&self) -> &Piece {
        // SAFETY: the piece has a share, and stays in its place until it has none; nobody changes it but through cells.
        unsafe { self.0.as_ref() }
    }

    /// All of the piece, as its holder sees it.
    #[inline]
    pub(crate) fn whole(&self) -> &Part {
        &self.piece().whole
    }

    /// To be called before a share is given up by a holder who knows that the device has finished with the piece: its
    /// lender need not find out, and takes it back as one that only the CPU has had.
    #[inline]
    pub(crate) fn know_idle(&self) {
        let piece = self.piece();
        // The shares first: what others noted before they gave up theirs is seen from there on.
        if !piece.shares.is_one() || piece.may_be_bound() {
            self.know_bound_idle();
        } else if piece.exposed.load(Ordering::Relaxed) {
            piece.exposed.store(false, Ordering::Relaxed);
        }
    }

    fn know_bound_idle(&self) {
        let piece = self.piece();
        if piece.is_own() || !piece.shares.is_one() {
            self.change(Binding::release_immediately);
        } else if !process::is_forked() && !piece.bound().is_some_and(|binding| binding.is_unfinished()) {
            drop(piece.settle());
        }
    }

    /// Gives this share up, and tells what goes wrong when it was the last.
    #[inline]
    pub(crate) fn end(self) -> Result<()> {
        self.give_up().map_or(Ok(()), FreePiece::go_back)
    }

    /// Gives this share up; gives the piece with the last. In a process that was forked off, nothing: it is the parent's.
    #[inline]
    pub(crate) fn give_up(self) -> Option<FreePiece> {
        let this = ManuallyDrop::new(self);
        // SAFETY: it is used no more, and not dropped.
        unsafe { this.resign() }
    }

    /// As [`give_up`](Self::give_up).
    ///
    /// # Safety
    ///
    /// The lease must not be used afterwards.
    #[inline]
    unsafe fn resign(&self) -> Option<FreePiece> {
        if process::is_forked() || !self.piece().shares.give_up() {
            return None;
        }
        // SAFETY: it was a slot when it was lent, and this was the last share: each is given up once, by this method's
        // contract.
        Some(FreePiece(unsafe { Slot::from_raw(self.0) }))
    }
}

impl Clone for Lease {
    fn clone(&self) -> Self {
        self.piece().shares.add();
        Self(self.0)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // SAFETY: nothing uses a lease that was dropped.
        let Some(piece) = (unsafe { self.resign() }) else { return };
        if piece.is_own() {
            // It says by itself what goes wrong.
            return drop(piece);
        }
        if let Err(error) = piece.go_back() {
            log::warn!("giving a piece of memory back: {error}");
        }
    }
}
