//! A forked child ends in every possible way: the parent's objects stay intact and usable.
#![expect(unsafe_code, reason = "forks, and uses streams that the tests keep alive")]

use std::ffi::CString;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use support::cuda::{PrimaryContext, Stream};
use support::fork::{End, assert_forked, end_of, in_child};
use support::ledger::Live;
use support::state::State;
use support::{Random, Result, child, device_read, driver, host_read, host_write, logs, pattern, simcuda, skip};
use vkgdr::{CopyPolicy, DropPolicy, Error, Event, Memory, MemoryKind, OpenFlags, Pool, PoolOptions, StreamRef, Vkgdr};

const NONE: OpenFlags = OpenFlags::empty();
const SIZE: usize = 4097;

/// One of each kind of object. The drop releases all of them.
struct Everything<'a> {
    memory: Memory,
    region: Memory,
    bound: Memory,
    chunk: Memory,
    pool: Pool,
    event: Event,
    gpu: Vkgdr,
    primary: Vkgdr,
    // The parent's: NVIDIA's driver crashes where a child destroys one.
    stream: &'a Stream,
}

impl<'a> Everything<'a> {
    /// A context must be current.
    fn make(stream: &'a Stream) -> Result<Self> {
        let (gpu, primary) = (Vkgdr::open(0, NONE)?, Vkgdr::open_primary_context(0, NONE)?);
        let memory = Memory::allocate(&gpu, SIZE, MemoryKind::Mapped)?;
        host_write(&memory, 0, &pattern(SIZE, 1))?;
        memory.write_with(CopyPolicy::Dma, 0, &pattern(SIZE, 1))?;
        let region = Memory::allocate(&primary, SIZE, MemoryKind::Mapped)?.slice(5..)?;
        let bound = Memory::allocate(&gpu, SIZE, MemoryKind::Mapped)?;
        support::bind(&bound, stream)?;
        // SAFETY: the stream is dropped last.
        let event = unsafe { bound.stream(stream.raw()) }?.record()?;
        let pool = Pool::new(&gpu, PoolOptions::default())?;
        let chunk = pool.allocate(SIZE)?;
        assert_ne!(chunk.device_ptr(), 0);
        Ok(Self { memory, region, bound, chunk, pool, event, gpu, primary, stream })
    }

    /// Checks that all of it still works.
    fn check(&self) -> Result {
        assert!(host_read(&self.memory, 0, SIZE)? == pattern(SIZE, 1));
        assert!(device_read(self.memory.device_ptr(), SIZE) == pattern(SIZE, 1));
        self.memory.write_with(CopyPolicy::Dma, 0, &pattern(SIZE, 1))?;
        self.event.synchronize()?;
        self.bound.wait_for_stream()?;
        host_write(&self.chunk, 0, &pattern(SIZE, 2))?;
        assert!(device_read(self.chunk.device_ptr(), SIZE) == pattern(SIZE, 2));
        assert!(self.region.host_ptr().is_some() && self.stream.is_idle());
        drop(self.pool.allocate(100)?);
        Memory::allocate(&self.gpu, SIZE, MemoryKind::Mapped)?.free()?;
        Ok(Memory::allocate(&self.primary, SIZE, MemoryKind::Mapped)?.free()?)
    }
}

/// The exit code of a child that reaches its end.
const END: i32 = 99;

/// Forks a child, checks how it ends, and checks that the parent's objects are unchanged.
fn survives(expected: &[End], child: impl FnOnce(&mut Option<Everything<'_>>)) -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let stream = Stream::create();
    // Warm-up: the drivers create their lasting objects.
    drop(Everything::make(&stream)?);
    gpu.collect();
    let before = State::take();
    let mut all = Some(Everything::make(&stream)?);
    let with_all = Live::now();
    let end = end_of(|| {
        child(&mut all);
        END
    })?;
    assert!(expected.contains(&end), "{end:?}");
    assert_eq!(Live::now(), with_all);
    all.as_ref().ok_or("gone")?.check()?;
    drop(all);
    gpu.collect();
    State::assert_unchanged(&before, "the child");
    Ok(())
}

#[test]
fn a_child_that_ends_without_destructors_frees_nothing_of_its_parents() -> Result {
    // SAFETY: runs none of the parent's handlers.
    survives(&[End::Exit(3)], |_| unsafe { libc::_exit(3) })
}

#[test]
fn a_child_that_drops_everything_frees_nothing_of_its_parents() -> Result {
    survives(&[End::Exit(END)], |all| drop(all.take()))
}

#[test]
fn a_child_that_runs_the_processs_destructors_frees_nothing_of_its_parents() -> Result {
    if simcuda().is_none() {
        return skip("the handlers of NVIDIA's libraries may wait for threads that a forked child does not have");
    }
    // `exit` runs the libraries' atexit handlers. That of Mesa's lavapipe joins a thread that the child does not have,
    // and may crash, which a sanitizer turns into exit code 1. The parent is not affected.
    let ends = [End::Exit(4), End::Signal(libc::SIGSEGV), End::Exit(1)];
    // SAFETY: this thread is the child's only one.
    survives(&ends, |_| unsafe { libc::exit(4) })
}

#[test]
fn a_child_that_becomes_another_program_frees_nothing_of_its_parents() -> Result {
    survives(&[End::Exit(0)], |_| {
        let program = CString::new("/bin/true").unwrap_or_default();
        let arguments = [program.as_ptr(), std::ptr::null()];
        // SAFETY: terminated strings in a terminated list.
        unsafe { libc::execv(program.as_ptr(), arguments.as_ptr()) };
    })
}

#[test]
fn a_child_that_is_ended_by_a_signal_frees_nothing_of_its_parents() -> Result {
    for signal in [libc::SIGKILL, libc::SIGTERM, libc::SIGABRT] {
        survives(&[End::Signal(signal)], |_| {
            // SAFETY: the signal's default action ends the process; core dumps are off.
            unsafe { libc::setrlimit(libc::RLIMIT_CORE, &libc::rlimit { rlim_cur: 0, rlim_max: 0 }) };
            // SAFETY: as above.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
            // SAFETY: as above.
            unsafe { libc::raise(signal) };
        })?;
    }
    Ok(())
}

#[test]
fn a_child_that_panics_frees_nothing_of_its_parents() -> Result {
    survives(&[End::Exit(END)], |all| {
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
}

#[test]
fn children_forked_while_threads_are_in_a_pool_are_refused_and_do_not_hang() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let live = Live::now();
    let pool = Pool::new(&gpu, PoolOptions::new(MemoryKind::Mapped).block_len(256 << 10).largest_chunk(64 << 10))?;
    let done = AtomicBool::new(false);
    logs::capture();
    thread::scope(|scope| -> Result {
        let workers: Vec<_> = (0..4)
            .map(|seed| {
                let (pool, done) = (&pool, &done);
                scope.spawn(move || -> vkgdr::Result<()> {
                    let mut random = Random::new(seed);
                    let mut chunks = Vec::new();
                    while !done.load(Ordering::Relaxed) {
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
                })
            })
            .collect();
        let mine = pool.allocate(SIZE)?;
        host_write(&mine, 0, &pattern(SIZE, 4))?;
        let checked = (0..40).try_for_each(|_| {
            in_child(|| {
                for len in [100, 4096, 8 << 20] {
                    assert_forked(pool.allocate(len), "Pool::allocate");
                }
                assert_forked(Memory::allocate(&gpu, SIZE, MemoryKind::Mapped), "Memory::allocate");
                pool.release_unused();
                pool.trim(0);
                drop((pool.clone(), mine.slice(1..)?));
                Ok(())
            })
        });
        done.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().map_err(|_| "a thread panicked")??;
        }
        checked?;
        assert!(host_read(&mine, 0, SIZE)? == pattern(SIZE, 4));
        Ok(())
    })?;
    assert_eq!(pool.used_chunks(), 0);
    drop(pool);
    gpu.collect();
    assert_eq!(Live::now(), live);
    Ok(())
}

#[test]
fn children_forked_while_threads_record_uses_release_nothing_and_do_not_hang() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let live = Live::now();
    let pool = Pool::new(&gpu, PoolOptions::new(MemoryKind::Mapped))?;
    let own = Memory::allocate(&gpu, SIZE, MemoryKind::Mapped)?;
    let shared = pool.allocate(SIZE)?;
    let region = shared.slice(..)?;
    let done = AtomicBool::new(false);
    let checked = thread::scope(|scope| {
        for memory in [&own, &shared] {
            let done = &done;
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    assert!(support::record_use(memory, ptr::null_mut()).is_ok());
                }
            });
        }
        let checked = (0..60).try_for_each(|_| {
            in_child(|| {
                for memory in [&own, &shared] {
                    assert!(support::record_use(memory, ptr::null_mut()).is_err());
                    assert_eq!((memory.bound_stream(), memory.drop_policy()), (None, DropPolicy::WaitForContext));
                    // SAFETY: the child does not use it again, and ends without destructors.
                    let memory = unsafe { ptr::read(memory) };
                    // SAFETY: the device never had its address.
                    unsafe { memory.free_unsynchronized() }?;
                }
                Ok(())
            })
        });
        done.store(true, Ordering::Relaxed);
        checked
    });
    checked?;
    assert_eq!(pool.used_chunks(), 1);
    drop((own, shared, region, pool));
    gpu.collect();
    assert_eq!(Live::now(), live);
    Ok(())
}

#[test]
fn children_forked_while_a_thread_remembers_a_context_record_no_event_and_do_not_hang() -> Result {
    let (_context, _gpu) = support::open(NONE)?;
    // SAFETY: the default stream lives as long as its context.
    let here = || unsafe { StreamRef::in_current_context(ptr::null_mut()) };
    let stream = here()?;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _context = PrimaryContext::retain_and_push(0);
            while !done.load(Ordering::Relaxed) {
                assert!(here().is_ok());
            }
        });
        let checked = (0..60).try_for_each(|_| {
            in_child(|| {
                assert_forked(stream.record(), "an event");
                Ok(())
            })
        });
        done.store(true, Ordering::Relaxed);
        checked
    })
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
