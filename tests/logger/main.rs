//! A logger may use the library: no line is logged while a lock is held that a logger may need.
//!
//! A deadlock hangs the test, and the test runner ends it.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, mpsc};
use std::thread;

use log::{LevelFilter, Log, Metadata, Record};
use support::codes;
use support::{Result, child, simcuda, skip};
use vkgdr::{CopyPolicy, Memory, MemoryKind, OpenFlags, Pool, PoolOptions, Vkgdr};

const MAPPED: MemoryKind = MemoryKind::Mapped;

/// A logger that runs the test's work at each line of the library, except for lines logged by that work.
struct Logger;

type Work = Arc<dyn Fn() + Send + Sync>;

static WORK: Mutex<Option<Work>> = Mutex::new(None);
static LINES: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static LOGGING: Cell<bool> = const { Cell::new(false) };
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("vkgdr")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) && !LOGGING.replace(true) {
            LINES.fetch_add(1, Ordering::SeqCst);
            let work = lock(&WORK).clone();
            work.into_iter().for_each(|work| work());
            LOGGING.set(false);
        }
    }

    fn flush(&self) {}
}

/// Runs `work` at each log line until the result is dropped.
fn log_with(work: impl Fn() + Send + Sync + 'static) -> Logging {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        let installed = log::set_logger(&Logger);
        assert!(installed.is_ok(), "another logger is installed");
        log::set_max_level(LevelFilter::Trace);
    });
    LINES.store(0, Ordering::SeqCst);
    *lock(&WORK) = Some(Arc::new(work));
    Logging
}

/// Clears the logger's work on drop.
struct Logging;

impl Drop for Logging {
    fn drop(&mut self) {
        *lock(&WORK) = None;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lines() -> usize {
    LINES.load(Ordering::SeqCst)
}

fn panic_on_error<T>(result: vkgdr::Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("in the logger: {error}"))
}

#[test]
fn a_logger_may_copy_when_the_copy_engine_says_something() -> Result {
    let Some(simcuda) = simcuda() else { return skip("this needs the simulated CUDA driver") };
    let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
    let memory = Memory::allocate(&gpu, 4096, MAPPED)?;
    let other = Memory::allocate(&gpu, 4096, MAPPED)?;
    let _logging = log_with(move || panic_on_error(other.write_with(CopyPolicy::Dma, 0, &[1_u8; 64])));
    // The engine's first stream is created, its second fails, and so does destroying the first.
    simcuda.fail("cuStreamCreate", 2, codes::OUT_OF_MEMORY);
    simcuda.fail("cuStreamDestroy", 1, codes::INVALID_HANDLE);
    assert!(memory.write_with(CopyPolicy::Dma, 0, &[2_u8; 64]).is_err());
    assert_eq!(lines(), 1);
    memory.write_with(CopyPolicy::Dma, 0, &[2_u8; 64])?;
    Ok(())
}

#[test]
fn a_logger_may_calibrate_when_a_calibration_says_something() -> Result {
    let Some(simcuda) = simcuda() else { return skip("this needs the simulated CUDA driver") };
    let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
    let handle = gpu.clone();
    let _logging = log_with(move || {
        panic_on_error(handle.calibrate());
    });
    simcuda.fail("cuMemFree", 1, codes::INVALID_HANDLE);
    let thresholds = gpu.calibrate()?;
    assert_eq!(lines(), 1);
    assert_eq!(gpu.calibrate()?, thresholds, "the first result is kept");
    Ok(())
}

#[test]
fn a_logger_locked_by_another_thread_may_wait_for_a_pool_that_logs() -> Result {
    const CHUNK: usize = 64 << 10;
    static HELD: Mutex<()> = Mutex::new(());
    let Some(simcuda) = simcuda() else { return skip("this needs the simulated CUDA driver") };
    let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
    let options = PoolOptions::new(MAPPED).block_len(256 << 10).largest_piece(CHUNK);
    let pool = Pool::new(&gpu, options)?;
    let first: Vec<_> = (0..4).map(|_| pool.allocate(CHUNK)).collect::<vkgdr::Result<_>>()?;
    // Exposed chunks, so that the next allocation waits for the context; the wait fails and logs a line.
    first.iter().for_each(|chunk| assert_ne!(chunk.device_ptr(), 0));
    drop(first);
    let _logging = log_with(|| drop(lock(&HELD)));
    let (say_held, is_held) = mpsc::channel();
    let (mine, his) = thread::scope(|scope| {
        let pool = &pool;
        let other = scope.spawn(move || {
            let _held = lock(&HELD);
            // The send succeeds, since the receiver waits for it.
            say_held.send(()).unwrap_or_default();
            while lines() == 0 {
                thread::yield_now();
            }
            pool.allocate(CHUNK)
        });
        is_held.recv()?;
        simcuda.fail("cuCtxSynchronize", 1, codes::OUT_OF_MEMORY);
        let mine = pool.allocate(CHUNK)?;
        let his = other.join().map_err(|_| "the other thread panicked")??;
        Ok::<_, Box<dyn std::error::Error>>((mine, his))
    })?;
    mine.write(0, &[1_u8; CHUNK])?;
    his.write(0, &[2_u8; CHUNK])?;
    let mut bytes = vec![0_u8; CHUNK];
    mine.read(0, &mut bytes)?;
    assert!(bytes.iter().all(|byte| *byte == 1), "both threads have the same memory");
    Ok(())
}

/// Runs a check in a process with an unknown VKGDR_COPY, for which the library logs one line.
fn with_a_complaint(test: &str, check: impl FnOnce(&Vkgdr) -> Result) -> Result {
    if child::role().is_some() {
        check(&Vkgdr::open_primary_context(0, OpenFlags::empty())?)?;
        child::say("done");
        return Ok(());
    }
    let mut command = child::command(test, "complaint")?;
    command.env("VKGDR_COPY", "nonsense");
    assert_eq!(child::run(command)?, ["done"]);
    Ok(())
}

#[test]
fn a_logger_may_use_the_pool_whose_first_memory_says_something() -> Result {
    with_a_complaint("a_logger_may_use_the_pool_whose_first_memory_says_something", |gpu| {
        let pool = Pool::new(gpu, PoolOptions::new(MAPPED))?;
        let same = pool.clone();
        let _logging = log_with(move || panic_on_error(same.allocate(1000).and_then(|chunk| chunk.write(0, &[1_u8]))));
        pool.allocate(1000)?.write(0, &[2_u8; 1000])?;
        assert_eq!(lines(), 1);
        Ok(())
    })
}

#[test]
fn a_logger_that_panics_while_memory_is_made_leaves_nothing_half_made() -> Result {
    with_a_complaint("a_logger_that_panics_while_memory_is_made_leaves_nothing_half_made", |gpu| {
        let logging = log_with(|| resume_unwind(Box::new("in the logger")));
        // A kind that is cached on every GPU, so that the routine is chosen, and logged, for it.
        let memory = catch_unwind(AssertUnwindSafe(|| Memory::allocate(gpu, 4096, MemoryKind::Host)));
        assert!(memory.is_err() && lines() == 1, "the logger was not called");
        drop(logging);
        Memory::allocate(gpu, 4096, MemoryKind::Host)?.write(0, &[1_u8; 4096])?;
        Ok(())
    })
}
