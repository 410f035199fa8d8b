//! A piece of an allocation: what it is a part of, who holds it, and where it goes when nobody does.
//!
//! A piece is all of an allocation that a [`Memory`](crate::Memory) has for itself, or a part of one that somebody lends
//! out, such as a pool. Who lends is not known here: a lot carries the function that takes its pieces back. A piece has a
//! place on the heap, and keeps it while it goes from hand to hand. Those who hold it have a [`Lease`] each, and see
//! [`Part`]s of it, of which the piece itself keeps the one that is all of it.
//!
//! What a lease and a part can do is in `lease.rs`, `tenure.rs` and `part.rs`.
#![expect(unsafe_code, reason = "shares pieces, and holds a part that nobody has yet")]

use std::any::Any;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use cudarc::driver::sys::CUdeviceptr;

use super::binding::{Binding, SharedBinding};
use super::bindings::Bindings;
use super::release::Held;
use super::shares::Shares;
use super::slab::{Index, Indexed, Slab, Slot};
use crate::Result;
use crate::access::view::View;
use crate::driver::Handle;

/// Takes back a piece that nobody holds any more.
pub(crate) type TakeBack = fn(FreePiece) -> Result<()>;

/// Who lends the pieces of a lot.
struct Lender {
    take_back: TakeBack,
    /// Whose function that is.
    lender: Arc<dyn Any + Send + Sync>,
}

/// An allocation, as its pieces hold it.
pub(crate) struct Lot {
    held: Held,
    bindings: Bindings,
    /// The lender's number; 0 where the only piece is not lent, but somebody's own.
    lender_id: u32,
    lender: Option<Lender>,
}

impl Lot {
    /// A lot whose only piece is somebody's own.
    pub(super) fn own(held: Held) -> Self {
        Self::lent_by(held, 0, None)
    }

    /// A lot to be lent. The lender's number is not 0.
    pub(crate) fn new(held: Held, take_back: TakeBack, lender_id: u32, lender: Arc<dyn Any + Send + Sync>) -> Self {
        Self::lent_by(held, lender_id, Some(Lender { take_back, lender }))
    }

    fn lent_by(held: Held, lender_id: u32, lender: Option<Lender>) -> Self {
        // Found out here for all pieces, which are made under their lender's lock: the first time it may log.
        let _ = View::whole(held.allocation()).is_write_combined();
        Self { held, bindings: Bindings::default(), lender_id, lender }
    }

    pub(crate) const fn held(&self) -> &Held {
        &self.held
    }

    /// Releases the only piece of a lot and the lot with it, as memory that is bound so. What the device has not had
    /// need not wait for it.
    pub(crate) fn release(piece: FreePiece, exposed: bool, binding: Binding) -> Result<()> {
        let Some(mut lot) = Arc::into_inner(piece.into_lot()) else { return Ok(()) };
        if exposed {
            lot.held.adopt(binding);
        } else {
            lot.held.is_known_idle();
        }
        lot.held.release()
    }

    /// The lender as what it is.
    pub(crate) fn lender<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.lender.as_ref()?.lender.clone().downcast().ok()
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

/// A range of a lot. It is lent again and again, each time with a length of its own.
///
/// Each has a line of the CPU's cache for itself, which two threads with a piece each need not pass to and fro. What
/// every lease touches comes first.
#[repr(C, align(64))]
pub(crate) struct Piece {
    /// How many hold it, while it is lent.
    pub(super) shares: Shares,
    span: u32,
    class: u16,
    /// Whether somebody has asked for its address on the device since it was lent, so that the device may use it.
    pub(super) exposed: AtomicBool,
    /// Whether its binding may not be what it was then; always, where it is somebody's own.
    pub(super) bound: AtomicBool,
    /// The number of its binding; 0 until there is one.
    binding: AtomicU32,
    /// Its lot's.
    lender_id: u32,
    index: Index,
    lot: Arc<Lot>,
    /// All of it, as who holds it sees it. Its lease is of this piece, stands for no share, and is never dropped.
    pub(super) whole: ManuallyDrop<Part>,
}

const _: () = assert!(size_of::<Piece>() == 64);

// SAFETY: nothing changes it.
unsafe impl Indexed for Piece {
    fn index(&self) -> Index {
        self.index
    }
}

/// A share in a piece. The last one gives it back.
#[derive(Debug)]
pub(crate) struct Lease(pub(super) NonNull<Piece>);

// SAFETY: a share is an atomic count, and pieces may be sent and shared.
unsafe impl Send for Lease {}
// SAFETY: as for `Send`.
unsafe impl Sync for Lease {}

const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Piece>();
};

/// A range of a piece's bytes, and a share in the piece.
#[derive(Clone)]
#[repr(C)]
pub(crate) struct Part {
    pub(super) len: usize,
    pub(super) lease: Lease,
    pub(super) device_ptr: CUdeviceptr,
    /// The host address of the first byte, if the CPU copies it as cached memory; null otherwise.
    pub(super) cached_ptr: Handle<*mut u8>,
}

/// A piece that nobody holds.
#[derive(Debug)]
pub(crate) struct FreePiece(pub(super) Slot<Piece>);

impl FreePiece {
    /// The piece at `offset` of a lot, which has its bytes there whenever it is lent.
    pub(crate) fn new(slab: &mut Slab<Piece>, lot: Arc<Lot>, offset: usize, tag: Tag) -> Self {
        let view = View::whole(lot.held.allocation());
        let view = view.part(offset, 0).unwrap_or(view);
        let (device_ptr, cached_ptr) = (view.device_ptr(), Handle(view.cached_ptr()));
        let (shares, binding) = (Shares::one(), AtomicU32::new(0));
        let (exposed, bound) = (AtomicBool::new(false), AtomicBool::new(lot.lender_id == 0));
        let Tag { span, class } = tag;
        let lender_id = lot.lender_id;
        Self(slab.put(|index, place| {
            let whole = ManuallyDrop::new(Part { len: 0, lease: Lease(place), device_ptr, cached_ptr });
            Piece { shares, span, class, exposed, bound, binding, lender_id, index, lot, whole }
        }))
    }

    /// Goes back to where it came from.
    pub(super) fn go_back(self) -> Result<()> {
        let Some(Lender { take_back, .. }) = &self.lot.lender else {
            return Arc::into_inner(self.into_lot()).map_or(Ok(()), |mut lot| lot.held.release());
        };
        take_back(self)
    }

    /// Ends the piece, but not its lot.
    fn into_lot(self) -> Arc<Lot> {
        self.lot.clone()
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let Some(binding) = self.known_binding() {
            drop(binding.take());
            self.lot.bindings.give(*self.binding.get_mut());
        }
    }
}

impl Deref for FreePiece {
    type Target = Piece;

    #[inline]
    fn deref(&self) -> &Piece {
        &self.0
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Piece").field("tag", &self.tag()).field("lot", &self.lot).finish_non_exhaustive()
    }
}

impl Piece {
    pub(crate) const fn lot(&self) -> &Arc<Lot> {
        &self.lot
    }

    pub(super) fn held(&self) -> &Held {
        &self.lot.held
    }

    #[inline]
    pub(crate) const fn tag(&self) -> Tag {
        Tag { span: self.span, class: self.class }
    }

    /// Who lends it.
    #[inline]
    pub(crate) const fn lender_id(&self) -> u32 {
        self.lender_id
    }

    /// The bytes that were asked for.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.whole.len
    }

    /// Whether it is somebody's own, and not lent.
    #[inline]
    pub(super) fn is_own(&self) -> bool {
        self.lender_id() == 0
    }

    /// Notes that the device may use the piece, as it may from before if it is lent while a stream still does.
    #[inline]
    pub(crate) fn expose(&self) {
        self.exposed.store(true, Ordering::Relaxed);
    }

    /// Whether only the CPU has had the piece, bound to nothing.
    #[inline]
    pub(crate) fn is_untouched(&self) -> bool {
        !self.exposed.load(Ordering::Relaxed) && !self.bound.load(Ordering::Relaxed)
    }

    /// Whether the device may use the piece, and what it was bound to. Afterwards it is as if it was new. For whoever has
    /// the piece alone.
    #[inline]
    pub(crate) fn settle(&self) -> (bool, Binding) {
        let take = |flag: &AtomicBool| {
            let before = flag.load(Ordering::Relaxed);
            flag.store(false, Ordering::Relaxed);
            before
        };
        let bound = take(&self.bound).then(|| self.known_binding().map(SharedBinding::take)).flatten();
        (take(&self.exposed), bound.unwrap_or_default())
    }

    /// The binding, to be changed.
    pub(super) fn binding(&self) -> &SharedBinding {
        if self.is_own() {
            return self.lot.held.binding();
        }
        self.bound.store(true, Ordering::Relaxed);
        let number = match self.binding.load(Ordering::Relaxed) {
            0 => self.take_binding(),
            number => number,
        };
        self.lot.bindings.get(number)
    }

    #[cold]
    fn take_binding(&self) -> u32 {
        let bindings = &self.lot.bindings;
        let mine = bindings.take();
        match self.binding.compare_exchange(0, mine, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => mine,
            // Another thread was faster.
            Err(theirs) => {
                bindings.give(mine);
                theirs
            }
        }
    }

    /// The piece's own binding, if there ever was one.
    fn known_binding(&self) -> Option<&SharedBinding> {
        match self.binding.load(Ordering::Relaxed) {
            0 => None,
            number => Some(self.lot.bindings.get(number)),
        }
    }

    /// Whether there may be a binding.
    #[inline]
    pub(super) fn may_be_bound(&self) -> bool {
        self.bound.load(Ordering::Relaxed)
    }

    /// The binding as it is now; none if there cannot be one.
    pub(super) fn bound(&self) -> Option<Binding> {
        self.may_be_bound().then(|| self.binding().get())
    }
}
