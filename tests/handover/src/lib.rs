//! Runs `src/pool/handover.rs` and `src/memory/shares.rs` through every interleaving of their threads, with loom:
//!
//! ```sh
//! RUSTFLAGS='--cfg loom' cargo test --package handover --release --target-dir target/loom
//! ```
//!
//! Both sides of a hand-over run a fence here, as on a system without `membarrier`; where there is one, it stands for both.
#![cfg(loom)]

#[path = "../../../src/pool/handover.rs"]
#[allow(dead_code, unreachable_pub, reason = "the pool uses all of it")]
mod handover;

#[path = "../../../src/memory/shares.rs"]
#[allow(dead_code, reason = "a piece uses all of it")]
mod shares;

#[cfg(test)]
mod counting;

use loom::sync::atomic;

/// What the file is built from, in loom's terms.
mod primitives {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::atomic::{AtomicBool, Ordering};
    pub(crate) use loom::sync::{Arc, Mutex};

    pub(crate) fn light_fence() {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }

    pub(crate) fn heavy_fence() {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }

    pub(crate) fn pause() {
        loom::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use loom::thread;

    use crate::handover::share;

    /// A cache, as the pool has one: pieces, and whether it is open.
    #[derive(Debug)]
    struct Cache {
        pieces: Vec<u32>,
        open: bool,
    }

    /// Every piece is in one place at a time, whoever takes it.
    #[test]
    fn a_piece_is_never_in_two_hands_and_never_lost() {
        loom::model(|| {
            let (owner, visitor) = share(Cache { pieces: vec![1, 2], open: true });
            let thread = thread::spawn(move || {
                let mut mine = Vec::new();
                let taken = owner.try_with(|cache| cache.pieces.pop()).flatten();
                mine.extend(taken);
                if let Some(piece) = mine.pop()
                    && owner.try_with(|cache| cache.open.then(|| cache.pieces.push(piece))).flatten().is_none()
                {
                    mine.push(piece);
                }
                (owner, mine)
            });
            let drained = visitor.with(|cache| std::mem::take(&mut cache.pieces));
            let (owner, mine) = match thread.join() {
                Ok(result) => result,
                Err(_) => panic!("the owner panicked"),
            };
            let rest = owner.try_with(|cache| std::mem::take(&mut cache.pieces));
            let mut all: Vec<_> = drained.into_iter().chain(mine).chain(rest.into_iter().flatten()).collect();
            all.sort_unstable();
            assert_eq!(all, [1, 2]);
        });
    }

    #[test]
    fn a_cache_that_was_closed_stays_empty() {
        loom::model(|| {
            let (owner, visitor) = share(Cache { pieces: Vec::new(), open: true });
            let thread = thread::spawn(move || {
                for piece in [1, 2] {
                    owner.try_with(|cache| {
                        if cache.open {
                            cache.pieces.push(piece);
                        }
                    });
                }
            });
            visitor.with(|cache| {
                cache.open = false;
                cache.pieces.clear();
            });
            assert!(thread.join().is_ok(), "the owner panicked");
            visitor.with(|cache| assert!(cache.pieces.is_empty(), "kept after it was closed"));
        });
    }

    #[test]
    fn visitors_come_one_at_a_time() {
        loom::model(|| {
            let (owner, visitor) = share(0_u32);
            let visit =
                |visitor: crate::handover::Visitor<u32>| thread::spawn(move || visitor.with(|value| *value += 1));
            let visits = [visit(visitor.clone()), visit(visitor.clone())];
            let mine = owner.try_with(|value| *value += 1).map_or(0, |()| 1);
            for thread in visits {
                assert!(thread.join().is_ok(), "a visitor panicked");
            }
            assert_eq!(visitor.with(|value| *value), 2 + mine);
        });
    }
}
