//! Each thread's own few free pieces of a pool, and where they are found.
//!
//! A thread reaches its cache without waiting for anybody. Others reach it to see or to empty it, by way of the pool's
//! list of caches. What the thread cannot have at the moment it gets from the depot.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::ops::{AddAssign, Neg};
use std::sync::{Arc, Weak};

use super::classes::Classes;
use super::handover::{Owner, Visitor, share};
use super::primitives;
use crate::driver::process;
use crate::memory::piece::Piece;

/// Bytes of a class that a thread keeps at most. Two pieces are kept of classes that have half of it and less.
const KEPT: usize = 512 << 10;
/// Pieces of a class that a thread keeps at most.
const MOST: usize = 64;

/// How many pieces of a size a thread keeps.
const fn capacity(size: usize) -> usize {
    let count = KEPT / size;
    if count < 2 {
        0
    } else if count > MOST {
        MOST
    } else {
        count
    }
}

#[derive(Debug)]
struct Bin {
    pieces: Vec<Arc<Piece>>,
    most: usize,
}

/// How many pieces are lent, and the bytes that were asked for: what this thread has lent, less what it has taken back.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Lent {
    pub(super) pieces: isize,
    pub(super) bytes: isize,
}

impl Lent {
    /// One piece for `len` bytes.
    #[inline]
    pub(super) const fn one(len: usize) -> Self {
        Self { pieces: 1, bytes: len.cast_signed() }
    }
}

impl AddAssign for Lent {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        self.pieces += other.pieces;
        self.bytes += other.bytes;
    }
}

impl Neg for Lent {
    type Output = Self;

    #[inline]
    fn neg(self) -> Self {
        Self { pieces: -self.pieces, bytes: -self.bytes }
    }
}

/// What a thread keeps.
#[derive(Debug)]
struct Bins {
    bins: Box<[Bin]>,
    lent: Lent,
    /// Whether the pool wants free pieces to be kept.
    open: bool,
}

impl Bins {
    #[inline]
    fn take(&mut self, class: usize, len: usize) -> Option<Arc<Piece>> {
        let piece = self.bins.get_mut(class)?.pieces.pop()?;
        piece.set_len(len);
        self.lent += Lent::one(len);
        Some(piece)
    }

    /// Keeps the piece, if there is room for it.
    #[inline]
    fn keep(&mut self, piece: &mut Option<Arc<Piece>>) -> bool {
        let Some(bin) = piece.as_ref().and_then(|piece| self.bins.get_mut(piece.tag().class as usize)) else {
            return false;
        };
        if !self.open || bin.pieces.len() >= bin.most {
            return false;
        }
        bin.pieces.extend(piece.take());
        true
    }
}

/// One thread's free pieces of one pool, as others reach them.
#[derive(Debug, Clone)]
pub(super) struct Cache(Visitor<Padded>);

/// Alone on its cache lines, and on the pair of them that some processors fetch at once.
#[derive(Debug)]
#[repr(align(128))]
struct Padded(Bins);

impl Cache {
    fn new(classes: &Classes) -> (Owner<Padded>, Self) {
        primitives::prepare();
        let bin = |class| Bin { pieces: Vec::new(), most: capacity(classes.size(class)) };
        let bins = (0..classes.count()).map(bin).collect();
        let (owner, visitor) = share(Padded(Bins { bins, lent: Lent::default(), open: true }));
        (owner, Self(visitor))
    }

    /// The number of free pieces, and what is lent.
    pub(super) fn count(&self) -> (usize, Lent) {
        self.0.with(|Padded(bins)| (bins.bins.iter().map(|bin| bin.pieces.len()).sum(), bins.lent))
    }

    /// Takes everything out. A cache that is closed stays empty.
    pub(super) fn drain(&self, close: bool, into: &mut Vec<Arc<Piece>>) -> Lent {
        self.0.with(|Padded(bins)| {
            bins.open &= !close;
            bins.bins.iter_mut().for_each(|bin| into.append(&mut bin.pieces));
            if close { std::mem::take(&mut bins.lent) } else { Lent::default() }
        })
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        self.0.is(&other.0)
    }
}

/// Where caches belong: a pool.
pub(super) trait Home: Send + Sync {
    /// Whether its threads may keep pieces.
    fn is_holding(&self) -> bool;
    /// Takes note of a new cache.
    fn admit(&self, cache: Cache);
    /// Takes what the cache of a thread has, at the thread's end.
    fn retire(&self, cache: &Cache);
}

struct Entry {
    pool: u64,
    owner: Owner<Padded>,
    cache: Cache,
    home: Weak<dyn Home>,
}

/// The caches of a thread, which go back to their pools when it ends.
struct Caches(RefCell<Vec<Entry>>);

impl Drop for Caches {
    fn drop(&mut self) {
        if process::is_forked() {
            return;
        }
        for Entry { cache, home, .. } in std::mem::take(self.0.get_mut()) {
            if let Some(home) = home.upgrade() {
                home.retire(&cache);
            }
        }
    }
}

thread_local! {
    static CACHES: Caches = const { Caches(RefCell::new(Vec::new())) };
}

/// Runs `work` on this thread's cache of a pool; gives none where it has none or somebody else
/// has it at the moment.
#[inline]
fn with<R>(pool: u64, work: impl FnOnce(&mut Bins) -> R) -> Option<R> {
    let find = |caches: &Caches| {
        let caches = caches.0.try_borrow().ok()?;
        let entry = caches.iter().find(|entry| entry.pool == pool)?;
        entry.owner.try_with(|Padded(bins)| work(bins))
    };
    CACHES.try_with(find).ok().flatten()
}

/// Whether this thread has a cache of a pool.
fn is_enrolled(pool: u64) -> bool {
    let find = |caches: &Caches| caches.0.try_borrow().is_ok_and(|list| list.iter().any(|entry| entry.pool == pool));
    CACHES.try_with(find).unwrap_or(true)
}

/// Lends a piece, if this thread has one.
#[inline]
pub(super) fn take(pool: u64, class: usize, len: usize) -> Option<Arc<Piece>> {
    with(pool, |bins| bins.take(class, len)).flatten()
}

/// Takes a piece back that was lent, if this thread has room for it; if not, gives it back.
#[inline]
pub(super) fn put(piece: Arc<Piece>) -> Option<Arc<Piece>> {
    let (pool, len) = (piece.lender_id(), piece.len());
    let mut piece = Some(piece);
    with(pool, |bins| {
        if bins.keep(&mut piece) {
            bins.lent += -Lent::one(len);
        }
    });
    piece
}

/// Counts what is lent; tells whether this thread can.
pub(super) fn count(pool: u64, lent: Lent) -> bool {
    with(pool, |bins| bins.open.then(|| bins.lent += lent)).flatten().is_some()
}

/// Keeps pieces that are not lent, as far as there is room; where one class is full, half of it makes room. What is not
/// kept remains in `pieces`, or is added.
pub(super) fn stock(pool: u64, class: usize, pieces: &mut Vec<Arc<Piece>>) {
    with(pool, |bins| {
        let Some(bin) = bins.bins.get_mut(class).filter(|bin| bins.open && bin.most > 0) else { return };
        let room = bin.most - bin.pieces.len();
        let stay = pieces.len() - pieces.len().min(room.max(1));
        let arrived: Vec<_> = pieces.drain(stay..).collect();
        if room == 0 {
            pieces.extend(bin.pieces.drain(..bin.most.div_ceil(2)));
        }
        bin.pieces.extend(arrived);
    });
}

/// How many pieces of a class to get at once, and whether this thread has a cache for them. Makes the cache.
pub(super) fn enrol(home: &Arc<impl Home + 'static>, pool: u64, classes: &Classes, class: usize) -> usize {
    if !is_enrolled(pool) && home.is_holding() {
        let (owner, cache) = Cache::new(classes);
        let weak: Weak<dyn Home> = Arc::downgrade(home) as Weak<dyn Home>;
        let entry = Entry { pool, owner, cache: cache.clone(), home: weak };
        let entered = CACHES.try_with(|caches| {
            let mut caches = caches.0.try_borrow_mut().ok()?;
            caches.retain(|entry| entry.home.strong_count() > 0);
            caches.push(entry);
            Some(())
        });
        if let Ok(Some(())) = entered {
            home.admit(cache);
        }
    }
    let most = with(pool, |bins| if bins.open { bins.bins[class].most } else { 0 });
    (most.unwrap_or(0) / 2).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_few_large_pieces_and_no_huge_ones() {
        let kept = [256, 4096, 64 << 10, 128 << 10, 256 << 10, (256 << 10) + 1].map(capacity);
        assert_eq!(kept, [64, 64, 8, 4, 2, 0]);
    }
}
