//! Large reads of write-combined memory, spread over threads.
//!
//! The rate at which a core reads through the BAR is limited by the loads that it keeps in flight: several cores read
//! several times as fast.
#![expect(unsafe_code, reason = "copies through raw pointers")]

use std::io;
use std::mem::MaybeUninit;
use std::num::NonZero;
use std::ptr;
use std::sync::OnceLock;
use std::thread::{self, Scope};

use super::fences;
use crate::allocation::LINE;
use crate::driver::Handle;
use crate::report::report;

/// The fewest bytes for which a thread is started.
///
/// A core reads 0.5 to 0.7 GB/s through the BAR (gdrcopy measured 0.53 on a V100, 0.72 on an H20), which makes this some
/// 200 µs, several times what starting and joining a thread takes.
const SHARE: usize = 128 << 10;

/// The most threads: eight cores saturate the bus, and a copy should not occupy a whole machine.
const MOST: usize = 8;

/// Whether a read of `len` bytes is spread over several threads.
#[inline]
pub(super) const fn are_worth_it(len: usize) -> bool {
    len >= 2 * SHARE
}

/// Reads with `piece` on as many threads as [`SHARE`], [`MOST`] and the machine allow, including this one.
///
/// # Safety
///
/// As of `piece`, for all of `target`.
pub(super) unsafe fn read(piece: unsafe fn(*const u8, &mut [u8]), source: *const u8, target: &mut [u8]) {
    static CORES: OnceLock<usize> = OnceLock::new();
    let cores = *CORES.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get));
    let threads = (target.len() / SHARE).clamp(1, MOST.min(cores));
    // SAFETY: by this function's contract.
    unsafe { spread(threads, piece, source, target) };
}

/// Reads with `piece` on at most `threads` threads, each from the start of a line. This thread reads the share of any that
/// cannot be started.
///
/// # Safety
///
/// As of `piece`, for all of `target`.
unsafe fn spread(threads: usize, piece: unsafe fn(*const u8, &mut [u8]), source: *const u8, target: &mut [u8]) {
    let at = source.addr() % LINE;
    let share = (at + target.len()).div_ceil(threads).next_multiple_of(LINE);
    // So that all others begin with a line.
    let first = share - at;
    thread::scope(|scope| {
        let (mine, mut rest) = target.split_at_mut(first.min(target.len()));
        let mut from = source.wrapping_add(mine.len());
        while !rest.is_empty() {
            let theirs;
            (theirs, rest) = rest.split_at_mut(share.min(rest.len()));
            let at = Handle(from.cast_mut());
            from = from.wrapping_add(theirs.len());
            let (to, len) = (Handle(theirs.as_mut_ptr()), theirs.len());
            let read = move || {
                let (to, at) = (to, at);
                fences::load_fence();
                // SAFETY: a share of its own of the target, borrowed until the scope ends.
                let theirs = unsafe { std::slice::from_raw_parts_mut(to.0, len) };
                // SAFETY: the shared bytes of that share, by this function's contract.
                unsafe { piece(at.0, theirs) };
            };
            if let Err(error) = spawn_without_signals(scope, read) {
                report!(Debug, "a thread for a read could not be started: {error}");
                read();
            }
        }
        // SAFETY: the first share, by this function's contract.
        unsafe { piece(source, mine) };
    });
}

/// Signals that the kernel sends to the thread that caused them: blocked there, they end the process without its handlers.
const SYNCHRONOUS: [libc::c_int; 6] =
    [libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGSEGV, libc::SIGSYS, libc::SIGTRAP];

/// Starts a thread that takes no signals sent to the process: they belong to the program's threads. A thread inherits the mask of
/// the one that starts it.
fn spawn_without_signals<'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() + Send + 'scope,
) -> io::Result<()> {
    let previous = set_mask(&asynchronous());
    let thread = thread::Builder::new().spawn_scoped(scope, work);
    set_mask(&previous);
    thread.map(drop)
}

/// All signals but the synchronous ones.
fn asynchronous() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the call writes a whole set.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    // SAFETY: the set was written.
    let mut set = unsafe { set.assume_init() };
    for signal in SYNCHRONOUS {
        // SAFETY: the set is initialized.
        unsafe { libc::sigdelset(&raw mut set, signal) };
    }
    set
}

/// Sets the signals that the calling thread blocks, and returns those that it blocked before.
fn set_mask(set: &libc::sigset_t) -> libc::sigset_t {
    let mut previous = *set;
    // SAFETY: both sets are initialized and live through the call.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, ptr::from_ref(set), &raw mut previous) };
    previous
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::tests::{Aligned, pattern};
    use super::super::{Table, routine::CopyRoutine};
    use super::*;

    /// The thread, the place within the line and the length of each piece.
    static PIECES: Mutex<Vec<(thread::ThreadId, usize, usize)>> = Mutex::new(Vec::new());

    /// # Safety
    ///
    /// As of the portable routine.
    unsafe fn noted(source: *const u8, target: &mut [u8]) {
        if let Ok(mut pieces) = PIECES.lock() {
            pieces.push((thread::current().id(), source.addr() % LINE, target.len()));
        }
        // SAFETY: by this function's contract.
        unsafe { (Table::PORTABLE.read)(source, target) };
    }

    #[test]
    fn each_thread_reads_a_share_of_whole_lines() {
        for threads in 1..=MOST {
            for (at, len) in [(0, 4096), (5, 4096), (63, 1), (0, 64), (1, 63), (60, 70), (17, 10_007)] {
                let what = format!("{len} bytes at {at} by {threads}");
                PIECES.lock().map(|mut pieces| pieces.clear()).ok();
                let source = Aligned::new(&pattern(at + len));
                let mut target = vec![0xee; len];
                // SAFETY: the buffer is whole lines and has these bytes.
                unsafe { spread(threads, noted, source.at(at), &mut target) };
                assert_eq!(target, pattern(at + len)[at..], "{what}");

                let pieces = PIECES.lock().map(|pieces| pieces.clone()).unwrap_or_default();
                let mut ids: Vec<_> = pieces.iter().map(|piece| format!("{:?}", piece.0)).collect();
                ids.sort_unstable();
                ids.dedup();
                assert_eq!(ids.len(), pieces.len(), "{what}: a thread read twice");
                assert!(pieces.len() <= threads, "{what}: {} pieces", pieces.len());
                let inner = pieces.iter().filter(|piece| piece.1 != 0).count();
                assert!(inner <= usize::from(at % LINE != 0), "{what}: a line was split");
            }
        }
    }

    /// Whether a thread blocks a signal to the program, one that it causes itself, and one that this test's thread blocks.
    static MASKS: Mutex<Vec<(thread::ThreadId, [bool; 3])>> = Mutex::new(Vec::new());

    /// What the calling thread blocks.
    fn mask() -> [bool; 3] {
        let mut set = MaybeUninit::uninit();
        // SAFETY: the call writes the set and changes nothing.
        let code = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), set.as_mut_ptr()) };
        assert_eq!(code, 0);
        // SAFETY: the set was written.
        let set = unsafe { set.assume_init() };
        // SAFETY: the set is initialized.
        [libc::SIGINT, libc::SIGBUS, libc::SIGUSR1]
            .map(|signal| unsafe { libc::sigismember(&raw const set, signal) } == 1)
    }

    /// # Safety
    ///
    /// As of the portable routine.
    unsafe fn masked(source: *const u8, target: &mut [u8]) {
        if let Ok(mut masks) = MASKS.lock() {
            masks.push((thread::current().id(), mask()));
        }
        // SAFETY: by this function's contract.
        unsafe { (Table::PORTABLE.read)(source, target) };
    }

    #[test]
    fn a_thread_for_a_read_takes_no_signal_of_the_programs() {
        let mut set = MaybeUninit::uninit();
        // SAFETY: the call writes an empty set.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: the set was written.
        let mut set = unsafe { set.assume_init() };
        // SAFETY: the set is initialized.
        unsafe { libc::sigaddset(&raw mut set, libc::SIGUSR1) };
        // SAFETY: the set is initialized; the thread ends with this test.
        let code = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) };
        assert_eq!(code, 0);
        let before = mask();
        let (source, mut target) = (Aligned::new(&pattern(4096)), vec![0; 4096]);
        // SAFETY: the buffer is whole lines and has these bytes.
        unsafe { spread(4, masked, source.at(0), &mut target) };
        assert_eq!((mask(), before), (before, [false, false, true]), "this thread's own");
        let masks = MASKS.lock().map(|masks| masks.clone()).unwrap_or_default();
        assert_eq!(masks.len(), 4);
        for (id, mask) in masks {
            let expected = if id == thread::current().id() { before } else { [true, false, true] };
            assert_eq!(mask, expected, "{id:?}");
        }
    }

    #[test]
    fn every_routine_may_be_spread() {
        for routine in CopyRoutine::ALL.into_iter().filter_map(Table::of) {
            let source = Aligned::new(&pattern(3 * SHARE + 1000));
            for (at, len) in [(0, 3 * SHARE), (33, 2 * SHARE + 77), (1, 3 * SHARE - 1)] {
                let mut target = vec![0xee; len];
                // SAFETY: the buffer is whole lines and has these bytes.
                unsafe { read(routine.read, source.at(at), &mut target) };
                assert!(target == pattern(3 * SHARE + 1000)[at..at + len], "{len} bytes at {at}");
            }
        }
    }

    #[test]
    fn a_read_must_be_large_to_be_spread() {
        assert!(!are_worth_it(0) && !are_worth_it(2 * SHARE - 1));
        assert!(are_worth_it(2 * SHARE) && are_worth_it(usize::MAX));
    }
}
