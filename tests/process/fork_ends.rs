//! A forked child ends in every possible way: the parent's objects stay intact and usable.
#![expect(unsafe_code, reason = "forks, and uses streams that the tests keep alive")]

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use support::cuda::{PrimaryContext, Stream};
use support::fork::{End, assert_forked, end_of, in_child, in_quiet_child};
use support::ledger::Live;
use support::state::State;
use support::{Random, Result, child, device_read, driver, free, host_read, host_write, logs, pattern, simcuda, skip};
use vkgdr::cudarc::driver::CudaContext;
use vkgdr::{CopyPolicy, DropPolicy, Error, Event, MapMode, Memory, Pool, PoolOptions, RawMemory, StreamRef, Vkgdr};

use crate::{FORCED, MAPPED, NONE, SIZE};

/// One of each kind of object. The drop releases all of them.
struct Everything<'a> {
    memory: Memory,
    region: Memory,
    bound: Memory,
    owns_its_stream: Memory,
    /// Of which a guard is alive.
    guarded: Memory,
    raw: Raw,
    /// The first has an address that the device knows; the third has an allocation of its own.
    chunks: [Memory; 3],
    pool: Pool,
    event: Event,
    gpu: Vkgdr,
    primary: Vkgdr,
    // The parent's: NVIDIA's driver crashes where a child destroys one.
    stream: &'a Stream,
}

/// Raw memory that is freed by its drop.
struct Raw(RawMemory);

impl Drop for Raw {
    fn drop(&mut self) {
        free(&mut self.0).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(self.0.device_ptr(), 0);
    }
}

impl<'a> Everything<'a> {
    /// A context must be current.
    fn make(stream: &'a Stream) -> Result<Self> {
        let (gpu, primary) = (Vkgdr::open(0, NONE)?, Vkgdr::open_primary_context(0, NONE)?);
        let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
        host_write(&memory, 0, &pattern(SIZE, 1))?;
        memory.write_with(CopyPolicy::Dma, 0, &pattern(SIZE, 1))?;
        let region = Memory::allocate(&primary, SIZE, MAPPED)?.slice(5..)?;
        let bound = Memory::allocate(&gpu, SIZE, MAPPED)?;
        support::bind(&bound, stream)?;
        // SAFETY: the stream is dropped last.
        let event = unsafe { bound.stream(stream.raw()) }?.record()?;
        let owns_its_stream = Memory::allocate(&primary, SIZE, MAPPED)?;
        owns_its_stream.bind_stream(&CudaContext::new(0)?.new_stream()?)?;
        let guarded = Memory::allocate(&Vkgdr::open(0, FORCED)?, SIZE, MAPPED)?;
        let raw = Raw(RawMemory::allocate(&primary, SIZE, MAPPED)?);
        let pool = Pool::new(&gpu, PoolOptions::default())?;
        let chunks = [pool.allocate(SIZE)?, pool.allocate(SIZE)?, pool.allocate(8 << 20)?];
        assert_ne!((chunks[0].device_ptr(), chunks[2].device_ptr()), (0, 0));
        Ok(Self { memory, region, bound, owns_its_stream, guarded, raw, chunks, pool, event, gpu, primary, stream })
    }

    /// Frees by hand what can be.
    fn free(self) -> vkgdr::Result<()> {
        self.memory.free()?;
        self.region.free()?;
        self.bound.free()?;
        self.owns_its_stream.free()?;
        let [chunk, ..] = self.chunks;
        chunk.free()
    }

    /// Checks that all of it still works.
    fn check(&self) -> Result {
        assert!(host_read(&self.memory, 0, SIZE)? == pattern(SIZE, 1));
        assert!(device_read(self.memory.device_ptr(), SIZE) == pattern(SIZE, 1));
        self.memory.write_with(CopyPolicy::Dma, 0, &pattern(SIZE, 1))?;
        self.event.synchronize()?;
        self.bound.wait_for_stream()?;
        for chunk in &self.chunks {
            host_write(chunk, 0, &pattern(SIZE, 2))?;
            assert!(device_read(chunk.device_ptr(), SIZE) == pattern(SIZE, 2));
        }
        assert!(
            device_read(self.raw.0.device_ptr(), SIZE).len() == SIZE && self.owns_its_stream.bound_stream().is_some()
        );
        assert!(self.region.host_ptr().is_some() && self.stream.is_idle());
        drop(self.pool.allocate(100)?);
        Memory::allocate(&self.gpu, SIZE, MAPPED)?.free()?;
        Ok(Memory::allocate(&self.primary, SIZE, MAPPED)?.free()?)
    }
}

/// The exit code of a child that reaches its end.
const END: i32 = 99;

/// Forks a child, and checks how it ends.
fn ends(expected: &[End], child: impl FnOnce()) -> Result {
    let end = end_of(|| {
        child();
        END
    })?;
    assert!(expected.contains(&end), "{end:?}");
    Ok(())
}

/// Runs `fork`, and checks that the parent's objects are unchanged by its child.
fn survives(what: &str, fork: impl FnOnce(&mut Option<Everything<'_>>) -> Result) -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let stream = Stream::create();
    // Warm-up: the drivers create their lasting objects.
    drop(Everything::make(&stream)?);
    gpu.collect();
    let before = State::take();
    let made = Everything::make(&stream)?;
    let guarded = made.guarded.clone();
    let mut guard = Some(guarded.map(MapMode::ReadWrite, ..)?);
    in_quiet_child(|| {
        drop(guard.take());
        Ok(())
    })?;
    let (mut all, with_all) = (Some(made), Live::now());
    fork(&mut all).map_err(|error| format!("{what}: {error}"))?;
    assert_eq!(Live::now(), with_all, "{what}");
    all.as_ref().ok_or("gone")?.check()?;
    guard.ok_or("the child took the parent's guard")?.finish()?;
    drop((guarded, all));
    gpu.collect();
    State::assert_unchanged(&before, what);
    Ok(())
}

#[test]
fn a_child_that_ends_in_any_way_frees_nothing_of_its_parents() -> Result {
    survives("drops", |all| {
        in_quiet_child(|| {
            drop(all.take());
            Ok(())
        })
    })?;
    survives("frees", |all| in_quiet_child(|| Ok(all.take().ok_or("gone")?.free()?)))?;
    // SAFETY: runs none of the parent's handlers.
    survives("_exit", |_| ends(&[End::Exit(3)], || unsafe { libc::_exit(3) }))?;
    survives("exec", |_| {
        ends(&[End::Exit(0)], || {
            let arguments = [c"/bin/true".as_ptr(), ptr::null()];
            // SAFETY: terminated strings in a terminated list.
            unsafe { libc::execv(arguments[0], arguments.as_ptr()) };
        })
    })?;
    survives("a panic", |all| {
        ends(&[End::Exit(END)], || {
            let all = all.take();
            std::panic::set_hook(Box::new(|_| {}));
            // Unwinding drops the objects.
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
                let _all = all;
                panic!("as a defective program does");
            }));
            if panicked.is_ok() {
                // SAFETY: runs none of the parent's handlers.
                unsafe { libc::_exit(5) };
            }
        })
    })?;
    for signal in [libc::SIGKILL, libc::SIGTERM, libc::SIGABRT] {
        survives("a signal", |_| {
            ends(&[End::Signal(signal)], || {
                // SAFETY: the signal's default action ends the process; core dumps are off.
                unsafe { libc::setrlimit(libc::RLIMIT_CORE, &libc::rlimit { rlim_cur: 0, rlim_max: 0 }) };
                // SAFETY: as above.
                unsafe { libc::signal(signal, libc::SIG_DFL) };
                // SAFETY: as above.
                unsafe { libc::raise(signal) };
            })
        })?;
    }
    if simcuda().is_none() {
        return skip("the handlers of NVIDIA's libraries may wait for threads that a forked child does not have");
    }
    // `exit` runs the libraries' atexit handlers. That of Mesa's lavapipe joins a thread that the child does not have,
    // and may crash, which a sanitizer turns into exit code 1. The parent is not affected.
    let expected = [End::Exit(4), End::Signal(libc::SIGSEGV), End::Exit(1)];
    // SAFETY: this thread is the child's only one.
    survives("exit", |_| ends(&expected, || unsafe { libc::exit(4) }))
}

/// Forks children with this check, one after the other, while other threads repeat some work.
fn while_threads<W: Fn(u64) -> vkgdr::Result<()> + Sync>(
    work: &[W],
    children: usize,
    check: impl Fn() -> Result,
) -> Result {
    let done = AtomicBool::new(false);
    thread::scope(|scope| -> Result {
        let workers: Vec<_> = (0..)
            .zip(work)
            .map(|(seed, work)| {
                let done = &done;
                scope.spawn(move || {
                    (0..).take_while(|_| !done.load(Ordering::Relaxed)).try_for_each(|turn| work(seed + 4 * turn))
                })
            })
            .collect();
        let checked = (0..children).try_for_each(|_| in_child(&check));
        done.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().map_err(|_| "a thread panicked")??;
        }
        checked
    })
}

#[test]
fn children_forked_while_threads_are_in_a_pool_are_refused_and_do_not_hang() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let live = Live::now();
    let pool = Pool::new(&gpu, PoolOptions::new(MAPPED).block_len(256 << 10).largest_chunk(64 << 10))?;
    logs::capture();
    let churn = |seed| {
        let mut random = Random::new(seed);
        let mut chunks = Vec::new();
        for _ in 0..100 {
            chunks.push(pool.allocate(1 + random.below(60_000))?);
            if chunks.len() > 20 {
                drop(chunks.swap_remove(random.below(20)));
                drop(chunks.swap_remove(random.below(20)));
            }
            if random.below(50) == 0 {
                pool.trim(0);
            }
        }
        Ok(())
    };
    let mine = pool.allocate(SIZE)?;
    host_write(&mine, 0, &pattern(SIZE, 4))?;
    while_threads(&[churn; 4], 40, || {
        for len in [100, 4096, 8 << 20] {
            assert_forked(pool.allocate(len), "Pool::allocate");
        }
        assert_forked(Memory::allocate(&gpu, SIZE, MAPPED), "Memory::allocate");
        pool.release_unused();
        pool.trim(0);
        drop((pool.clone(), mine.slice(1..)?));
        Ok(())
    })?;
    assert!(host_read(&mine, 0, SIZE)? == pattern(SIZE, 4));
    drop(mine);
    assert_eq!(pool.used_chunks(), 0);
    drop(pool);
    gpu.collect();
    assert_eq!(Live::now(), live);
    Ok(())
}

#[test]
fn children_forked_while_threads_record_uses_and_find_streams_release_nothing_and_do_not_hang() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let live = Live::now();
    let pool = Pool::new(&gpu, PoolOptions::new(MAPPED))?;
    let (own, shared) = (Memory::allocate(&gpu, SIZE, MAPPED)?, pool.allocate(SIZE)?);
    let region = shared.slice(..)?;
    // SAFETY: the default stream lives as long as its context.
    let here = || unsafe { StreamRef::in_current_context(ptr::null_mut()) };
    let stream = here()?;
    let record = |_| {
        let _context = PrimaryContext::retain_and_push(0);
        for memory in [&own, &shared] {
            assert!(support::record_use(memory, ptr::null_mut()).is_ok());
        }
        here().map(drop)
    };
    while_threads(&[record; 2], 60, || {
        for memory in [&own, &shared] {
            assert!(support::record_use(memory, ptr::null_mut()).is_err());
            assert_eq!((memory.bound_stream(), memory.drop_policy()), (None, DropPolicy::WaitForContext));
            // SAFETY: the child does not use it again, and ends without destructors.
            let memory = unsafe { ptr::read(memory) };
            // SAFETY: the device never had its address.
            unsafe { memory.free_unsynchronized() }?;
        }
        assert_forked(stream.record(), "an event");
        Ok(())
    })?;
    assert_eq!(pool.used_chunks(), 1);
    drop((own, shared, region, pool));
    gpu.collect();
    assert_eq!(Live::now(), live);
    Ok(())
}

/// The first open loads the drivers under a lock, which a child would inherit locked. Only a process that has loaded nothing can
/// show it, and few of its children fall into that time: hence many such processes.
#[test]
fn children_forked_while_the_gpu_is_opened_first_are_refused_and_do_not_hang() -> Result {
    child::afresh(fork_during_first_opens)
}

fn fork_during_first_opens() -> Result {
    // A child finds out which driver there is, since this process must not load it. On a real one an open takes a second.
    let is_real = end_of(|| i32::from(driver::is_real()))? == End::Exit(1);
    (0..if is_real { 2 } else { 30 }).try_for_each(|_| {
        in_child(|| {
            let opening = thread::spawn(|| Vkgdr::open_primary_context(0, NONE).map(drop).is_ok());
            let mut refused = 0;
            // One more child when it is open.
            loop {
                let is_last = opening.is_finished();
                match end_of(|| i32::from(matches!(vkgdr::device_count(), Err(Error::Forked))))? {
                    End::Exit(code) => refused += code,
                    End::Signal(_) => return Err("a child hung".into()),
                }
                if is_last {
                    break;
                }
            }
            assert!(opening.join().unwrap_or(false), "the GPU was not opened");
            assert!(refused > 0, "the last child, if no other, was forked after the drivers were loaded");
            Ok(())
        })
    })
}
