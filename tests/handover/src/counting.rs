//! Shares in a piece, given up and made by several threads.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::thread;

use crate::shares::Shares;

/// A piece with a share each for two holders: what they note on it, and what is touched by who takes it back alone.
struct Piece {
    shares: Shares,
    exposed: AtomicBool,
    bound: AtomicBool,
    content: UnsafeCell<()>,
    taken: AtomicU32,
}

impl Piece {
    fn with_two_shares() -> Arc<Self> {
        let shares = Shares::one();
        shares.add();
        let [exposed, bound] = [(), ()].map(|()| AtomicBool::new(false));
        Arc::new(Self { shares, exposed, bound, content: UnsafeCell::new(()), taken: AtomicU32::new(0) })
    }

    /// Uses the piece. Who takes it back must come after.
    fn look(&self) {
        self.content.with(|_| ());
    }

    fn note(&self) {
        self.exposed.store(true, Ordering::Relaxed);
        self.bound.store(true, Ordering::Relaxed);
    }

    fn notes(&self) -> [bool; 2] {
        [self.bound.load(Ordering::Relaxed), self.exposed.load(Ordering::Relaxed)]
    }

    /// Gives a share up, and takes the piece back with the last.
    fn give_up(&self) {
        self.look();
        if self.shares.give_up() {
            self.content.with_mut(|_| ());
            self.taken.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn join<T>(thread: thread::JoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|_| panic!("a thread panicked"))
}

#[test]
fn one_of_several_takes_the_piece_after_all_others() {
    loom::model(|| {
        let piece = Piece::with_two_shares();
        let other = thread::spawn({
            let piece = piece.clone();
            move || {
                piece.shares.add();
                piece.give_up();
                piece.give_up();
            }
        });
        piece.give_up();
        join(other);
        assert_eq!(piece.taken.load(Ordering::Relaxed), 1);
    });
}

/// The share is made by way of a reference to the holder's, and outlives it.
#[test]
fn a_share_that_a_borrower_made_counts() {
    loom::model(|| {
        let piece = Piece::with_two_shares();
        assert!(!piece.shares.give_up());
        let borrower = thread::spawn({
            let piece = piece.clone();
            move || {
                piece.shares.add();
                thread::spawn(move || piece.give_up())
            }
        });
        let holder_of_the_new = join(borrower);
        piece.give_up();
        join(holder_of_the_new);
        assert_eq!(piece.taken.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn who_is_alone_sees_what_the_others_noted() {
    loom::model(|| {
        let piece = Piece::with_two_shares();
        let spawn = |work: fn(&Piece)| {
            let piece = piece.clone();
            thread::spawn(move || work(&piece))
        };
        // Threads both: the first to be spawned may be through before the other begins.
        let threads = [
            spawn(|piece| {
                piece.note();
                piece.give_up();
            }),
            spawn(|piece| {
                if piece.shares.is_one() {
                    assert_eq!(piece.notes(), [true, true]);
                }
                if piece.shares.give_up() {
                    assert_eq!(piece.notes(), [true, true]);
                }
            }),
        ];
        threads.into_iter().for_each(join);
    });
}
