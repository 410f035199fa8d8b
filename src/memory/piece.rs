//! A piece of an allocation that somebody lends out, such as a pool: what it is a part of, and how it goes back.
//!
//! Who lends is not known here: a lot carries the function that takes its pieces back. A piece has a place
//! on the heap, and keeps it while it goes from hand to hand.
#![expect(unsafe_code, reason = "takes the piece out of its last lease")]

use std::any::Any;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering, fence};
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys::CUdeviceptr;

use super::binding::{Binding, SharedBinding};
use super::release::Held;
use crate::Result;
use crate::access::view::View;
use crate::driver::{Handle, process};

/// Takes back a piece that nobody holds any more. The piece is the only reference to it.
pub(crate) type TakeBack = fn(Arc<Piece>) -> Result<()>;

/// An allocation that is lent out in pieces.
pub(crate) struct Lot {
    held: Held,
    device_ptr: CUdeviceptr,
    /// Where the CPU sees the first byte, if it copies it in the ordinary way; null otherwise.
    ordinary: Handle<*mut u8>,
    take_back: TakeBack,
    lender_id: u64,
    /// Whose function and number those are.
    lender: Arc<dyn Any + Send + Sync>,
}

impl Lot {
    pub(crate) fn new(held: Held, take_back: TakeBack, lender_id: u64, lender: Arc<dyn Any + Send + Sync>) -> Self {
        let view = View::whole(held.allocation());
        let (device_ptr, ordinary) = (view.device_ptr(), Handle(view.ordinary_ptr()));
        Self { held, device_ptr, ordinary, take_back, lender_id, lender }
    }

    pub(crate) const fn held(&self) -> &Held {
        &self.held
    }

    /// Releases the only piece of a lot and the lot with it, as memory that is bound so. What the device has not had
    /// need not wait for it.
    pub(crate) fn release(piece: Arc<Piece>, exposed: bool, binding: Binding) -> Result<()> {
        let lot = Arc::into_inner(piece).and_then(|piece| Arc::into_inner(piece.lot));
        let Some(mut lot) = lot else { return Ok(()) };
        if exposed {
            lot.held.adopt(binding);
        } else {
            lot.held.is_known_idle();
        }
        lot.held.release()
    }

    /// The lender as what it is.
    pub(crate) fn lender<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.lender.clone().downcast().ok()
    }
}

impl fmt::Debug for Lot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lot").field("held", &self.held).finish_non_exhaustive()
    }
}

/// What the lender needs to know of a piece when it comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) span: u32,
    pub(crate) class: u16,
}

/// What offsets are counted in, in bytes: pieces are aligned to it.
pub(crate) const UNIT: usize = 64;
/// Stands for a piece that is all of its lot.
const WHOLE: u32 = u32::MAX;
/// The largest piece that is not all of its lot, in bytes.
pub(crate) const LARGEST: usize = 1 << 30;

/// A range of a lot. It is lent again and again, each time with a length of its own.
///
/// There are many: with the counts of its `Arc` it has 56 bytes, and what every lease touches comes first.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Piece {
    lot: Arc<Lot>,
    /// The bytes that were asked for.
    len: AtomicU32,
    /// In units.
    offset: u32,
    tag: Tag,
    marks: AtomicU8,
    /// Made when it is first needed.
    binding: OnceLock<Box<SharedBinding>>,
}

/// What has happened to a piece since it was lent, beside the CPU's use: nothing, if there is no mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Mark {
    /// Somebody has asked for its address on the device, so that the device may use it.
    Exposed = 1,
    /// Its binding may not be what it was.
    Bound = 2,
}

impl Piece {
    /// The piece at `offset` of a lot, a multiple of [`UNIT`]. The lot has its bytes there, whenever it is lent.
    pub(crate) fn new(lot: Arc<Lot>, offset: usize, tag: Tag) -> Self {
        // 256 GiB: more than any block has.
        let offset = u32::try_from(offset / UNIT).unwrap_or(u32::MAX);
        let (len, marks, binding) = (AtomicU32::new(0), AtomicU8::new(0), OnceLock::new());
        Self { lot, len, offset, tag, marks, binding }
    }

    pub(crate) const fn lot(&self) -> &Arc<Lot> {
        &self.lot
    }

    /// Who lends it.
    #[inline]
    pub(crate) fn lender_id(&self) -> u64 {
        self.lot.lender_id
    }

    #[inline]
    pub(crate) const fn tag(&self) -> Tag {
        self.tag
    }

    /// The bytes that were asked for.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self.len.load(Ordering::Relaxed) {
            WHOLE => self.lot.held.allocation().len(),
            len => len as usize,
        }
    }

    /// To be called when the piece is lent: at most [`LARGEST`] bytes, or all of its lot.
    #[inline]
    pub(crate) fn set_len(&self, len: usize) {
        let len = u32::try_from(len).ok().filter(|_| len <= LARGEST).unwrap_or(WHOLE);
        self.len.store(len, Ordering::Relaxed);
    }

    #[inline]
    fn mark(&self, mark: Mark) {
        if self.marks.load(Ordering::Relaxed) & mark as u8 == 0 {
            self.marks.fetch_or(mark as u8, Ordering::Relaxed);
        }
    }

    /// Notes that the device may use the piece, as it may from before if it is lent while a stream still does.
    #[inline]
    pub(crate) fn expose(&self) {
        self.mark(Mark::Exposed);
    }

    /// Whether only the CPU has had the piece, bound to nothing.
    #[inline]
    pub(crate) fn is_untouched(&self) -> bool {
        self.marks.load(Ordering::Relaxed) == 0
    }

    /// Whether the device may use the piece, and what it was bound to. Afterwards it is as if it was new.
    pub(crate) fn settle(&self) -> (bool, Binding) {
        let marks = self.marks.swap(0, Ordering::Relaxed);
        let bound = self.binding.get().filter(|_| marks & Mark::Bound as u8 != 0);
        (marks & Mark::Exposed as u8 != 0, bound.map(|binding| binding.take()).unwrap_or_default())
    }
}

/// A share in a piece that was lent. The last one gives it back.
#[derive(Debug)]
pub(crate) struct Lease {
    piece: ManuallyDrop<Arc<Piece>>,
}

impl Lease {
    /// Lends a piece: the only reference to it.
    #[inline]
    pub(super) const fn new(piece: Arc<Piece>) -> Self {
        Self { piece: ManuallyDrop::new(piece) }
    }

    #[inline]
    pub(super) fn held(&self) -> &Held {
        &self.piece.lot.held
    }

    /// The piece's bytes, its address on the device, and the one at which the CPU copies it in the ordinary way.
    #[inline]
    pub(super) fn range(&self) -> (usize, CUdeviceptr, Handle<*mut u8>) {
        let Piece { lot, offset, .. } = &**self.piece;
        let offset = u64::from(*offset) * UNIT as u64;
        // An allocation fits the address space.
        let place = usize::try_from(offset).unwrap_or(usize::MAX);
        let ordinary = lot.ordinary.0;
        let ordinary = if ordinary.is_null() { ordinary } else { ordinary.wrapping_add(place) };
        (self.piece.len(), lot.device_ptr + offset, Handle(ordinary))
    }

    /// Notes that the device may use the piece.
    #[inline]
    pub(super) fn expose(&self) {
        self.piece.expose();
    }

    /// The binding, to be changed.
    pub(super) fn binding(&self) -> &SharedBinding {
        self.piece.mark(Mark::Bound);
        self.piece.binding.get_or_init(Box::default)
    }

    /// The binding, if there ever was one.
    pub(super) fn known_binding(&self) -> Option<&SharedBinding> {
        self.piece.binding.get().map(Box::as_ref)
    }

    /// As [`end`](Self::end), for a holder who knows that the device has finished with the piece: its lender need not
    /// find out, and takes it back as one that only the CPU has had.
    #[inline]
    pub(super) fn end_idle(self) -> Result<()> {
        if Arc::strong_count(&self.piece) > 1 {
            self.binding().change(Binding::release_immediately);
        } else if !self.piece.is_untouched() && !process::is_forked() && !self.is_unfinished() {
            drop(self.piece.settle());
        }
        self.end()
    }

    /// Whether a copy of ours may still use the piece, of which no holder knows.
    fn is_unfinished(&self) -> bool {
        self.known_binding().is_some_and(|binding| binding.get().is_unfinished())
    }

    /// Gives this share up, and tells what goes wrong when it was the last.
    pub(super) fn end(self) -> Result<()> {
        ManuallyDrop::new(self).give_up()
    }

    /// Gives the share up, and the piece back with the last. In a process that was forked off, nothing: it is the
    /// parent's. To be called once, last.
    #[inline]
    fn give_up(&mut self) -> Result<()> {
        if process::is_forked() {
            return Ok(());
        }
        // SAFETY: this is the only take, and nothing uses the field afterwards, by this method's contract.
        let piece = unsafe { ManuallyDrop::take(&mut self.piece) };
        // There are no weak references, so that nobody can make another of the only one.
        if Arc::strong_count(&piece) == 1 {
            // What the others did to the piece before they went is seen from here on.
            fence(Ordering::Acquire);
            return (piece.lot.take_back)(piece);
        }
        give_up_one_of_several(piece)
    }
}

#[cold]
fn give_up_one_of_several(piece: Arc<Piece>) -> Result<()> {
    match Arc::into_inner(piece) {
        // The others went meanwhile.
        Some(piece) => (piece.lot.take_back)(Arc::new(piece)),
        None => Ok(()),
    }
}

impl Clone for Lease {
    fn clone(&self) -> Self {
        Self { piece: self.piece.clone() }
    }
}

impl Drop for Lease {
    #[inline]
    fn drop(&mut self) {
        if let Err(error) = self.give_up() {
            log::warn!("giving a piece of memory back: {error}");
        }
    }
}
