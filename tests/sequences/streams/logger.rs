//! A logger that uses the library, waits for another thread that does, or panics.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, TryLockError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use log::{LevelFilter, Log, Metadata, Record};
use support::Result;

/// The logger's behaviour at each line of the library.
#[derive(Clone, Copy, Debug)]
pub(super) enum Manner {
    Quiet,
    /// Uses the library.
    Reenter,
    /// Waits for a lock of its own, whose holder uses the library on another thread.
    Block,
    Panic,
}

pub(super) const MANNERS: [Manner; 4] = [Manner::Quiet, Manner::Reenter, Manner::Block, Manner::Panic];

/// After this time a blocked logger gives up: it waits for a thread that waits for it.
const PATIENCE: Duration = Duration::from_secs(20);

type Work = Arc<dyn Fn() + Send + Sync>;

static NOW: Mutex<Option<(Manner, Work)>> = Mutex::new(None);
/// The lock of a logger that blocks.
static OWN: Mutex<()> = Mutex::new(());
/// A line was logged since the manner was set.
static ENTERED: AtomicBool = AtomicBool::new(false);
static STUCK: AtomicBool = AtomicBool::new(false);
static LINES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Whether this thread's lines go nowhere: it is in the logger, or holds the logger's lock.
    static IGNORED: Cell<bool> = const { Cell::new(false) };
}

struct Logger;

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("vkgdr")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) || IGNORED.replace(true) {
            return;
        }
        LINES.fetch_add(1, Ordering::Relaxed);
        let now = lock(&NOW).clone();
        ENTERED.store(true, Ordering::SeqCst);
        match now {
            None | Some((Manner::Quiet, _)) => {}
            Some((Manner::Reenter, work)) => work(),
            Some((Manner::Block, _)) => block(),
            Some((Manner::Panic, _)) => {
                IGNORED.set(false);
                resume_unwind(Box::new("in the logger"));
            }
        }
        IGNORED.set(false);
    }

    fn flush(&self) {}
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for the logger's lock, but not for ever.
fn block() {
    let start = Instant::now();
    while matches!(OWN.try_lock(), Err(TryLockError::WouldBlock)) {
        thread::yield_now();
        if start.elapsed() > PATIENCE {
            return STUCK.store(true, Ordering::SeqCst);
        }
    }
}

/// Installs the logger of this process.
pub(super) fn install() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        let installed = log::set_logger(&Logger);
        assert!(installed.is_ok(), "another logger is installed");
        log::set_max_level(LevelFilter::Trace);
    });
}

/// The number of lines that were logged.
pub(super) fn lines() -> u64 {
    LINES.load(Ordering::Relaxed)
}

/// Sets the manner, until it is dropped.
struct Set;

impl Set {
    fn new(manner: Manner, work: Work) -> Self {
        ENTERED.store(false, Ordering::SeqCst);
        *lock(&NOW) = Some((manner, work));
        Self
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        *lock(&NOW) = None;
        // Lets the thread go that holds the logger's lock.
        ENTERED.store(true, Ordering::SeqCst);
    }
}

/// Calls the library while the logger has a manner. `work` is that of the logger, or of the thread for which it waits.
///
/// # Errors
///
/// If a panic of the logger leaves the library, or the logger and the other thread wait for each other.
pub(super) fn with<T>(manner: Manner, work: Work, call: impl FnOnce() -> T) -> Result<T> {
    let set = Set::new(manner, Arc::clone(&work));
    if matches!(manner, Manner::Block) {
        let value = while_held(&work, call, set);
        return if STUCK.swap(false, Ordering::SeqCst) { Err("a deadlock with a logger".into()) } else { value };
    }
    let value = catch_unwind(AssertUnwindSafe(call));
    drop(set);
    value.map_err(|_| "a logger's panic left the library".into())
}

/// Calls the library while another thread holds the logger's lock: until a line is logged, and for some work after it.
fn while_held<T>(work: &Work, call: impl FnOnce() -> T, set: Set) -> Result<T> {
    let (say_held, is_held) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            IGNORED.set(true);
            let _own = lock(&OWN);
            // The send succeeds, since the receiver waits for it.
            say_held.send(()).unwrap_or_default();
            while !ENTERED.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            work();
        });
        is_held.recv()?;
        let value = call();
        drop(set);
        Ok(value)
    })
}
