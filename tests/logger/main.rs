//! A logger may use the library: no line is logged while a lock is held that a logger may need.
//!
//! A deadlock hangs the test.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, mpsc};
use std::thread;

use log::{LevelFilter, Log, Metadata, Record};
use support::codes;
use support::cuda::{PrimaryContext, Stream};
use support::{Result, bind, child, simcuda, skip};
use vkgdr::{Memory, MemoryKind, OpenFlags, Pool, PoolOptions, Vkgdr};

const MAPPED: MemoryKind = MemoryKind::Mapped;

/// A logger that runs the test's work at each line of the library, except for lines logged by that work.
struct Logger;

type Work = Arc<dyn Fn() + Send + Sync>;

static WORK: Mutex<Option<Work>> = Mutex::new(None);
static FAILURES: Mutex<Vec<String>> = Mutex::new(Vec::new());
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
    // Of a test before, whose logger panicked.
    LOGGING.set(false);
    *lock(&WORK) = Some(Arc::new(work));
    Logging
}

/// Clears the logger's work on drop.
struct Logging;

impl Drop for Logging {
    fn drop(&mut self) {
        *lock(&WORK) = None;
        let failures = std::mem::take(&mut *lock(&FAILURES));
        assert!(failures.is_empty() || thread::panicking(), "in the logger: {failures:?}");
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lines() -> usize {
    LINES.load(Ordering::SeqCst)
}

/// Fails the test when the logger goes: a logger must not panic within a drop.
fn fail_on_error<T>(result: vkgdr::Result<T>) {
    if let Err(error) = result {
        lock(&FAILURES).push(error.to_string());
    }
}

#[test]
fn a_logger_locked_by_another_thread_may_wait_for_a_pool_that_logs() -> Result {
    const CHUNK: usize = 64 << 10;
    static HELD: Mutex<()> = Mutex::new(());
    let Some(simcuda) = simcuda() else { return skip("this needs the simulated CUDA driver") };
    let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
    let options = PoolOptions::new(MAPPED).block_len(256 << 10).largest_chunk(CHUNK);
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

/// In a process with an unknown VKGDR_COPY, for which the library logs one line.
#[test]
fn a_logger_may_use_the_pool_whose_first_memory_says_something() -> Result {
    if child::role().is_none() {
        let mut command = child::command("complaint")?;
        command.env("VKGDR_COPY", "nonsense");
        assert_eq!(child::run(command)?, ["done"]);
        return Ok(());
    }
    let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
    let pool = Pool::new(&gpu, PoolOptions::new(MAPPED))?;
    let same = pool.clone();
    let logging = log_with(move || fail_on_error(same.allocate(1000).and_then(|chunk| chunk.write(0, &[1_u8]))));
    pool.allocate(1000)?.write(0, &[2_u8; 1000])?;
    assert_eq!(lines(), 1);
    drop(logging);
    child::say("done");
    Ok(())
}

#[test]
fn a_logger_that_waits_for_another_thread_of_the_library_does_not_wait_for_ever() -> Result {
    static HELD: Mutex<()> = Mutex::new(());
    let Some(simcuda) = simcuda() else { return skip("this needs the simulated CUDA driver") };
    let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
    let memory = Memory::allocate(&gpu, 4096, MAPPED)?;
    let _context = PrimaryContext::retain_and_push(0);
    let stream = Stream::create();
    bind(&memory, &stream)?;
    let gate = stream.hold();
    gate.wait_until_reached();
    drop(memory);
    // Both threads find no memory, and wait for the deferred free: the first logs that it could not.
    let _logging = log_with(|| drop(lock(&HELD)));
    let (say_held, is_held) = mpsc::channel();
    let memories = thread::scope(|scope| {
        let gpu = &gpu;
        let other = scope.spawn(move || {
            let _held = lock(&HELD);
            say_held.send(()).unwrap_or_default();
            while lines() == 0 {
                thread::yield_now();
            }
            simcuda.fail("cuImportExternalMemory", 1, codes::OUT_OF_MEMORY);
            Memory::allocate(gpu, 4096, MAPPED)
        });
        is_held.recv()?;
        simcuda.fail("cuEventQuery", 1, codes::OUT_OF_MEMORY);
        simcuda.fail("cuImportExternalMemory", 1, codes::OUT_OF_MEMORY);
        let mine = Memory::allocate(gpu, 4096, MAPPED);
        Ok::<_, Box<dyn std::error::Error>>((mine?, other.join().map_err(|_| "the other thread panicked")??))
    })?;
    gate.open();
    stream.synchronize();
    assert_eq!((gpu.collect(), gpu.deferred_frees()), (1, 0));
    drop(memories);
    Ok(())
}
