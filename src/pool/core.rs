//! A pool's ways: how a piece is found when this thread has none, how blocks are made, where a piece goes when it comes
//! back.
//!
//! Locks are held for bookkeeping only: no driver is called, nothing is dropped and nothing is logged under one, but for
//! [`Growing`], which a thread may enter again from a log line.
#![expect(unsafe_code, reason = "uses a stream that the caller keeps alive")]

use std::fmt;
use std::sync::atomic::{AtomicIsize, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::CUstream;

use super::classes::Classes;
use super::depot::{Depot, Rubbish};
use super::fences::Fences;
use super::growing::{Growing, Turn};
use super::local::{self, Cache, Lent};
use super::options::PoolOptions;
use crate::driver::context::Context;
use crate::driver::process;
use crate::memory::binding::Binding;
use crate::memory::piece::{FreePiece, Lease, Lot, Tag};
use crate::memory::release::Held;
use crate::memory::slab::Slab;
use crate::{DropPolicy, MemoryKind, Result, StreamRef, Vkgdr};

/// The class of pieces that have an allocation of their own.
const ALONE: u16 = u16::MAX;

pub(super) struct Core {
    id: u32,
    owner: Vkgdr,
    kind: MemoryKind,
    context: Context,
    classes: Classes,
    block_len: usize,
    /// All threads write here now and then; what they all read is above.
    shared: Apart<Shared>,
}

struct Shared {
    depot: Mutex<Depot>,
    fences: Fences,
    caches: Mutex<Vec<Cache>>,
    growing: Turn,
    /// What was lent past the threads' caches, less what came back past them.
    lent_pieces: AtomicIsize,
    lent_bytes: AtomicIsize,
    /// The bytes of allocations of pieces that have one of their own.
    alone_bytes: AtomicIsize,
}

/// On cache lines of its own.
#[repr(align(128))]
struct Apart<T>(T);

/// What a pool lends.
///
/// The class is the piece's. Here it need not be read there, so that an allocation that follows need not wait for a
/// piece that comes back from far away in the CPU's caches.
pub(super) struct Loan {
    pub(super) lease: Lease,
    class: usize,
}

impl Loan {
    /// A loan whose class was forgotten.
    #[inline]
    pub(super) fn of(lease: Lease) -> Self {
        let class = lease.piece().tag().class.into();
        Self { lease, class }
    }

    /// Ends the loan. Gives the piece if nobody else holds it, and somebody has to look at it or this thread has no room
    /// for it.
    #[inline]
    pub(super) fn give_back_near(self) -> Option<FreePiece> {
        let piece = self.lease.give_up()?;
        debug_assert_eq!(usize::from(piece.tag().class), self.class);
        take_back_near(piece, self.class)
    }
}

/// Takes back a piece that nobody holds any more.
fn take_back(piece: FreePiece) -> Result<()> {
    let class = piece.tag().class.into();
    take_back_near(piece, class).map_or(Ok(()), take_back_far)
}

/// Takes back a piece of a class, if nobody has to look at it and this thread has room for it; gives it back if not.
#[inline]
fn take_back_near(piece: FreePiece, class: usize) -> Option<FreePiece> {
    if piece.is_untouched() { local::put(piece, class) } else { Some(piece) }
}

/// As [`take_back`], where all threads find the piece.
#[cold]
pub(super) fn take_back_far(piece: FreePiece) -> Result<()> {
    match piece.lot().lender::<Core>() {
        Some(core) => core.receive(piece),
        None => Ok(()),
    }
}

/// A number for a pool that no other has, but the last.
fn next_id() -> u32 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let next = |last: u32| Some(last.saturating_add(1));
    LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).map_or(local::NOBODY, |last| last.saturating_add(1))
}

impl Core {
    pub(super) fn new(owner: &Vkgdr, options: &PoolOptions) -> Result<Self> {
        process::check()?;
        let kind = options.kind();
        let (classes, block_len) = options.plan(owner.memory_type(kind)?.granule)?;
        let context = match owner.primary_context() {
            Some(context) => context,
            None => owner.current_context()?,
        };
        let id = next_id();
        Ok(Self {
            id,
            owner: owner.clone(),
            kind,
            context,
            classes,
            block_len,
            shared: Apart(Shared {
                depot: Mutex::new(Depot::new(classes)),
                fences: Fences::new(context, classes.size(0)),
                caches: Mutex::default(),
                growing: Turn::default(),
                lent_pieces: AtomicIsize::new(0),
                lent_bytes: AtomicIsize::new(0),
                alone_bytes: AtomicIsize::new(0),
            }),
        })
    }

    pub(super) const fn owner(&self) -> &Vkgdr {
        &self.owner
    }

    pub(super) const fn kind(&self) -> MemoryKind {
        self.kind
    }

    pub(super) const fn context(&self) -> Context {
        self.context
    }

    pub(super) const fn classes(&self) -> &Classes {
        &self.classes
    }

    pub(super) const fn block_len(&self) -> usize {
        self.block_len
    }

    /// A piece for `len` bytes.
    #[inline]
    pub(super) fn allocate(self: &Arc<Self>, len: usize) -> Result<Loan> {
        if !process::is_forked()
            && let Some(class) = self.classes.of(len)
            && let Some(piece) = local::take(self.id, class, len)
        {
            return Ok(Loan { lease: Lease::new(piece, len), class });
        }
        self.allocate_far(len)
    }

    /// As [`allocate`](Self::allocate), where this thread has no piece.
    #[cold]
    fn allocate_far(self: &Arc<Self>, len: usize) -> Result<Loan> {
        process::check()?;
        match self.classes.of(len) {
            Some(class) => self.fetch(class, len),
            None => self.allocate_alone(len),
        }
    }

    /// A piece from what all threads share, and some more for this thread's cache.
    fn fetch(self: &Arc<Self>, class: usize, len: usize) -> Result<Loan> {
        let count = local::enrol(self, self.id, &self.classes, class);
        let mut pieces = Vec::with_capacity(count);
        let piece = loop {
            self.gather(class, count, &mut pieces)?;
            if let Some(piece) = pieces.pop() {
                break piece;
            }
        };
        if !pieces.is_empty() {
            local::stock(self.id, class, &mut pieces);
            self.put(pieces);
        }
        Ok(self.lend(piece, len))
    }

    /// Lends a piece, and counts it.
    pub(super) fn lend(&self, piece: FreePiece, len: usize) -> Loan {
        self.count(Lent::one(len));
        Loan::of(Lease::new(piece, len))
    }

    /// A free piece that was bound to this stream before.
    pub(super) fn take_shelved(&self, stream: CUstream, class: usize) -> Option<FreePiece> {
        let piece = self.fences().take_shelved(stream, u16::try_from(class).ok()?)?;
        piece.expose();
        Some(piece)
    }

    /// A free piece that was bound to a stream of this address before. The stream waits for the piece's event.
    ///
    /// # Safety
    ///
    /// The stream must be live.
    pub(super) unsafe fn take_parked(&self, stream: CUstream, class: usize) -> Result<Option<FreePiece>> {
        let Ok(class) = u16::try_from(class) else { return Ok(None) };
        let Some((piece, event)) = self.fences().take_parked(stream, class) else { return Ok(None) };
        // SAFETY: live by this method's contract, and used before it returns only.
        let waiting = unsafe { StreamRef::in_context(stream, self.context) }.and_then(|stream| stream.wait(&event));
        match waiting {
            Ok(()) => {
                piece.expose();
                Ok(Some(piece))
            }
            Err(error) => {
                self.fences().park_again(piece, event, stream);
                Err(error)
            }
        }
    }

    /// Adds free pieces to `into`; makes a block for them if need be.
    fn gather(self: &Arc<Self>, class: usize, count: usize, into: &mut Vec<FreePiece>) -> Result<()> {
        if self.take(class, count, into) {
            return Ok(());
        }
        let _turn = Growing::begin(&self.shared.0.growing);
        if self.take(class, count, into) {
            return Ok(());
        }
        self.put(self.fences().poll(usize::MAX));
        self.fences().fence_shelves();
        if self.fences().unknown_bytes() >= self.block_len / 4 {
            self.put_waited_for();
        }
        if self.take(class, count, into) {
            return Ok(());
        }
        let (lot, len) = match self.make_lot(self.block_len) {
            Err(error) if error.is_exhaustion() => {
                self.free_held();
                if self.take(class, count, into) {
                    return Ok(());
                }
                let least = self.depot().span_len(class).min(self.block_len);
                (self.make_lot(least)?, least)
            }
            lot => (lot?, self.block_len),
        };
        self.depot().add_block(lot, len);
        self.take(class, count, into);
        Ok(())
    }

    fn make_lot(self: &Arc<Self>, len: usize) -> Result<Arc<Lot>> {
        let held = Held::allocate(&self.owner, len, self.kind, self.context)?;
        Ok(Arc::new(Lot::new(held, take_back, self.id, self.clone())))
    }

    /// A piece with an allocation of its own.
    fn allocate_alone(self: &Arc<Self>, len: usize) -> Result<Loan> {
        let lot = match self.make_lot(len) {
            Err(error) if error.is_exhaustion() => {
                if !self.free_held() {
                    return Err(error);
                }
                self.make_lot(len)
            }
            lot => lot,
        }?;
        self.count_alone(len.cast_signed());
        let tag = Tag { span: 0, class: ALONE };
        Ok(self.lend(FreePiece::new(&mut Slab::new(1), lot, 0, tag), len))
    }

    /// Takes back a piece that this thread has no room for, or that is to be looked at.
    fn receive(self: &Arc<Self>, piece: FreePiece) -> Result<()> {
        let len = piece.len();
        self.count(-Lent::one(len));
        let (exposed, binding) = piece.settle();
        if piece.tag().class == ALONE {
            self.count_alone(-len.cast_signed());
            return Lot::release(piece, exposed, binding);
        }
        if !exposed || binding.policy() == DropPolicy::Immediate {
            self.put_near(piece);
            return Ok(());
        }
        self.put_behind(piece, binding)
    }

    /// Puts a piece away that the device may still use.
    fn put_behind(&self, piece: FreePiece, binding: Binding) -> Result<()> {
        let holding = self.depot().is_holding();
        match binding.policy() {
            DropPolicy::WaitForStream if binding.keeps_stream() && holding => {
                self.fences().shelve(piece, binding);
                Ok(())
            }
            DropPolicy::WaitForStream => {
                let free = self.fences().park(piece, &binding)?;
                self.put(free);
                Ok(())
            }
            _ => {
                self.fences().keep(piece);
                if !holding {
                    self.put(self.fences().wait()?);
                }
                Ok(())
            }
        }
    }

    /// Puts a free piece into this thread's cache, or where all threads find it.
    fn put_near(self: &Arc<Self>, piece: FreePiece) {
        let class = piece.tag().class.into();
        local::enrol(self, self.id, &self.classes, class);
        let mut pieces = vec![piece];
        local::stock(self.id, class, &mut pieces);
        self.put(pieces);
    }

    fn take(&self, class: usize, count: usize, into: &mut Vec<FreePiece>) -> bool {
        let mut gone = Rubbish::default();
        self.depot().take(class, count, into, &mut gone)
    }

    /// Puts free pieces where all threads find them. What the depot gives up goes unlocked; returns its bytes.
    pub(super) fn put(&self, pieces: Vec<FreePiece>) -> usize {
        if pieces.is_empty() {
            return 0;
        }
        let mut gone = Rubbish::default();
        self.depot().put(pieces, &mut gone)
    }

    pub(super) fn depot(&self) -> MutexGuard<'_, Depot> {
        self.shared.0.depot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn caches(&self) -> MutexGuard<'_, Vec<Cache>> {
        self.shared.0.caches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) const fn fences(&self) -> &Fences {
        &self.shared.0.fences
    }

    /// Counts what is lent, or is no more: in this thread's cache if it has one.
    fn count(&self, lent: Lent) {
        if !local::count(self.id, lent) {
            self.count_here(lent);
        }
    }

    pub(super) fn count_here(&self, lent: Lent) {
        self.shared.0.lent_pieces.fetch_add(lent.pieces, Ordering::Relaxed);
        self.shared.0.lent_bytes.fetch_add(lent.bytes, Ordering::Relaxed);
    }

    /// What was counted past the threads' caches.
    pub(super) fn counted_here(&self) -> Lent {
        let Shared { lent_pieces, lent_bytes, .. } = &self.shared.0;
        Lent { pieces: lent_pieces.load(Ordering::Relaxed), bytes: lent_bytes.load(Ordering::Relaxed) }
    }

    fn count_alone(&self, bytes: isize) {
        self.shared.0.alone_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The bytes of allocations of pieces that have one of their own.
    pub(super) fn alone(&self) -> usize {
        usize::try_from(self.shared.0.alone_bytes.load(Ordering::Relaxed)).unwrap_or(0)
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("id", &self.id).field("kind", &self.kind).finish_non_exhaustive()
    }
}
