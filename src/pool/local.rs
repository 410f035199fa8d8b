//! Each thread's own few free pieces of a pool, and where they are found.
//!
//! A thread reaches its cache without waiting for anybody. Others reach it to see or to empty it, by way of the pool's
//! list of caches. What the thread cannot have at the moment it gets from the depot.
#![expect(unsafe_code, reason = "refers to the cache that was used last")]

use std::cell::RefCell;
use std::ops::{AddAssign, Neg};
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use super::classes::Classes;
use super::handover::{Owner, Visitor, share};
use super::latest::Latest;
use super::primitives;
use crate::driver::process;
use crate::memory::piece::FreePiece;

/// Bytes of a class that a thread keeps at most. Two pieces are kept of classes that have half of it and less.
const KEPT: usize = 512 << 10;
/// Pieces of a class that a thread keeps at most.
const MOST: usize = 64;

/// The number of a pool that threads have no cache of.
pub(super) const NOBODY: u32 = u32::MAX;

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

/// A class's pieces.
#[derive(Debug)]
struct Bin {
    /// Has no room before the first ones are stocked, and for `most` from then on.
    pieces: Vec<FreePiece>,
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
///
/// The two numbers that say what is lent are apart: beside each other they would be added up as one vector, whose way
/// through memory from one call to the next takes longer than the calls.
#[derive(Debug)]
#[repr(C)]
struct Bins {
    lent_pieces: isize,
    bins: Box<[Bin]>,
    lent_bytes: isize,
    /// Whether the pool wants free pieces to be kept.
    open: bool,
}

impl Bins {
    fn lent(&self) -> Lent {
        Lent { pieces: self.lent_pieces, bytes: self.lent_bytes }
    }

    #[inline]
    fn count(&mut self, lent: Lent) {
        self.lent_pieces += lent.pieces;
        self.lent_bytes += lent.bytes;
    }

    #[inline]
    fn take(&mut self, class: usize, len: usize) -> Option<FreePiece> {
        let piece = self.bins.get_mut(class)?.pieces.pop()?;
        self.count(Lent::one(len));
        Some(piece)
    }

    /// Takes a piece of a class back that was lent, if there is room for it; gives it back if not.
    #[inline]
    fn keep(&mut self, piece: FreePiece, class: usize) -> Option<FreePiece> {
        match self.bins.get_mut(class) {
            Some(bin) if bin.pieces.len() < bin.pieces.capacity() => {
                self.lent_pieces -= 1;
                self.lent_bytes -= piece.len().cast_signed();
                bin.pieces.push(piece);
                None
            }
            _ => Some(piece),
        }
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
        let (owner, visitor) = share(Padded(Bins { lent_pieces: 0, bins, lent_bytes: 0, open: true }));
        (owner, Self(visitor))
    }

    /// The number of free pieces, and what is lent.
    pub(super) fn count(&self) -> (usize, Lent) {
        self.0.with(|Padded(bins)| (bins.bins.iter().map(|bin| bin.pieces.len()).sum(), bins.lent()))
    }

    /// Takes everything out. A cache that is closed stays empty.
    pub(super) fn drain(&self, close: bool, into: &mut Vec<FreePiece>) -> Lent {
        self.0.with(|Padded(bins)| {
            bins.open &= !close;
            for bin in &mut bins.bins {
                into.append(&mut bin.pieces);
                if close {
                    bin.pieces = Vec::new();
                }
            }
            let lent = if close { bins.lent() } else { Lent::default() };
            bins.count(-lent);
            lent
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
    pool: u32,
    /// In a place of its own, where the latest is found.
    owner: Box<Owner<Padded>>,
    cache: Cache,
    home: Weak<dyn Home>,
}

/// The caches of a thread, which go back to their pools when it ends.
struct Caches(RefCell<Vec<Entry>>);

impl Drop for Caches {
    fn drop(&mut self) {
        LATEST.with(Latest::forget);
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
    /// One of them.
    static LATEST: Latest<Owner<Padded>> = const { Latest::new() };
}

/// Runs `work` on this thread's cache of a pool; gives none where it has none or somebody else
/// has it at the moment.
#[inline]
fn with<R>(pool: u32, work: impl FnOnce(&mut Bins) -> R) -> Option<R> {
    let owner = match LATEST.with(|latest| latest.get(pool)) {
        Some(owner) => owner,
        None => find(pool)?,
    };
    // SAFETY: it is this thread's, and entries that somebody is at work on stay.
    unsafe { owner.as_ref() }.try_with(|Padded(bins)| work(bins))
}

/// This thread's cache of a pool, if there is one. It is the latest then.
#[cold]
fn find(pool: u32) -> Option<NonNull<Owner<Padded>>> {
    let found = CACHES.try_with(|caches| {
        let caches = caches.0.try_borrow().ok()?;
        let owner = NonNull::from(&*caches.iter().find(|entry| entry.pool == pool)?.owner);
        LATEST.with(|latest| latest.set(pool, owner));
        Some(owner)
    });
    found.ok().flatten()
}

/// Lends a piece, if this thread has one.
#[inline]
pub(super) fn take(pool: u32, class: usize, len: usize) -> Option<FreePiece> {
    with(pool, |bins| bins.take(class, len)).flatten()
}

/// Takes a piece of a class back that was lent, if this thread has room for it; if not, gives it back.
#[inline]
pub(super) fn put(piece: FreePiece, class: usize) -> Option<FreePiece> {
    let mut piece = Some(piece);
    let pool = piece.as_ref().map_or(NOBODY, |piece| piece.lender_id());
    with(pool, |bins| piece = piece.take().and_then(|piece| bins.keep(piece, class)));
    piece
}

/// Counts what is lent; tells whether this thread can.
pub(super) fn count(pool: u32, lent: Lent) -> bool {
    with(pool, |bins| bins.open.then(|| bins.count(lent))).flatten().is_some()
}

/// Keeps pieces that are not lent, as far as there is room; where one class is full, half of it makes room. What is not
/// kept remains in `pieces`, or is added.
pub(super) fn stock(pool: u32, class: usize, pieces: &mut Vec<FreePiece>) {
    with(pool, |bins| {
        let Some(bin) = bins.bins.get_mut(class).filter(|bin| bins.open && bin.most > 0) else { return };
        if bin.pieces.capacity() == 0 {
            bin.pieces.reserve_exact(bin.most);
        }
        // The allocator may have given room for more.
        let room = bin.most.saturating_sub(bin.pieces.len());
        let stay = pieces.len() - pieces.len().min(room.max(1));
        let arrived: Vec<_> = pieces.drain(stay..).collect();
        if room == 0 {
            pieces.extend(bin.pieces.drain(..bin.most.div_ceil(2)));
        }
        bin.pieces.extend(arrived);
    });
}

/// How many pieces of a class to get at once, and whether this thread has a cache for them. Makes the cache.
pub(super) fn enrol(home: &Arc<impl Home + 'static>, pool: u32, classes: &Classes, class: usize) -> usize {
    if pool != NOBODY && find(pool).is_none() && home.is_holding() {
        let (owner, cache) = Cache::new(classes);
        let weak: Weak<dyn Home> = Arc::downgrade(home) as Weak<dyn Home>;
        let entry = Entry { pool, owner: Box::new(owner), cache: cache.clone(), home: weak };
        let entered = CACHES.try_with(|caches| {
            let mut caches = caches.0.try_borrow_mut().ok()?;
            LATEST.with(Latest::forget);
            // One that is at work, further up, stays.
            caches.retain(|entry| entry.home.strong_count() > 0 || entry.owner.try_with(|_| ()).is_none());
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
