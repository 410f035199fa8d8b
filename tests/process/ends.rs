//! Processes that are killed at any moment, or terminated by a signal during copies.
#![expect(unsafe_code, reason = "sends signals, and uses streams and addresses that the tests keep alive")]

use std::collections::BTreeSet;
use std::fs::read_dir;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStderr, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use support::cuda::Stream;
use support::driver::rounds;
use support::state::State;
use support::{Random, Result, child, device_read, host_write, pattern, simcuda};
use vkgdr::{CopyPolicy, CopyPtr, FillPattern, Memory, Pool, PoolOptions};

use crate::{MAPPED, NONE, SIZE};

const LARGE: usize = 3 << 20;

/// The files in folders where a driver's files could outlive a process: shared memory, message queues, temporary files.
fn leftovers() -> BTreeSet<String> {
    let name = |entry: std::fs::DirEntry| entry.path().to_string_lossy().into_owned();
    let names = |folder: &str| read_dir(folder).into_iter().flatten().flatten().map(name);
    let ours = |name: &String| name.contains("vkgdr") || name.contains("lavapipe") || name.contains("lvp");
    // Names with a process id belong to tests, also of other runs, and not to a driver.
    let temporary = names("/tmp").filter(ours).filter(|name| !name.contains("vkgdr-"));
    // On a real driver, other processes of the machine may make and remove theirs meanwhile.
    let shared = names("/dev/shm").chain(names("/dev/mqueue")).filter(|name| simcuda().is_some() || ours(name));
    shared.chain(temporary).collect()
}

/// Fails if there is a file that was not there `before`, and stays: those of other tests that run at the same time go.
#[track_caller]
fn assert_nothing_is_left(before: &BTreeSet<String>) {
    const TIMEOUT: Duration = Duration::from_secs(60);
    let end = Instant::now() + TIMEOUT;
    let mut new: BTreeSet<_> = leftovers().difference(before).cloned().collect();
    while !new.is_empty() && Instant::now() < end {
        thread::sleep(Duration::from_millis(100));
        let still = leftovers();
        new.retain(|name| still.contains(name));
    }
    assert!(new.is_empty(), "left behind: {new:?}");
}

/// Starts this test again in a role, and waits until it reports that it is running. The second value reads its later
/// standard error.
fn start(role: &str) -> Result<(Child, BufReader<ChildStderr>)> {
    let mut command = child::command(role)?;
    let mut started = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let errors = started.stderr.take().ok_or("no standard error")?;
    let mut lines = BufReader::new(errors);
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line)? == 0 {
            return Err(format!("{role}: the child ended: {}", started.wait()?).into());
        }
        if child::said(line.trim_end()) == Some("at work") {
            return Ok((started, lines));
        }
    }
}

fn send(child: &Child, signal: i32) -> Result {
    // SAFETY: a child process that has not been waited for yet.
    let refused = unsafe { libc::kill(libc::pid_t::try_from(child.id())?, signal) };
    if refused == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().into()) }
}

/// Works in a loop, in one way or in all.
fn work_for_ever(way: &str) -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let stream = Stream::create();
    let pool = Pool::new(&gpu, PoolOptions::default())?;
    let mut bytes = vec![5_u8; LARGE];
    child::say("at work");
    loop {
        let memory = Memory::allocate(&gpu, LARGE, MAPPED)?;
        support::bind(&memory, &stream)?;
        if ["cpu", "all"].contains(&way) {
            memory.write_with(CopyPolicy::Cpu, 0, &bytes)?;
            memory.read_with(CopyPolicy::Cpu, 0, &mut bytes)?;
        }
        if ["engine", "all"].contains(&way) {
            memory.write_with(CopyPolicy::Dma, 0, &bytes)?;
            memory.read_with(CopyPolicy::Dma, 0, &mut bytes)?;
        }
        if ["stream", "all"].contains(&way) {
            // SAFETY: the stream outlives the memory.
            let work = unsafe { memory.stream(stream.raw()) }?;
            let (to, from) = (CopyPtr::Device(memory.device_ptr()), CopyPtr::Host(bytes.as_mut_ptr()));
            // SAFETY: both have the bytes, and the stream is waited for.
            unsafe { work.copy(support::linear(to), support::linear(from), support::row(LARGE)) }?;
            // SAFETY: within the memory, whose release waits.
            unsafe { work.fill(memory.device_ptr(), FillPattern::One(1), LARGE) }?;
            work.synchronize()?;
        }
        if way == "all" {
            let chunks: Vec<_> = (1..40).map(|len| pool.allocate(len * 100)).collect::<vkgdr::Result<_>>()?;
            drop((memory.export_fd()?, chunks));
        }
    }
}

#[test]
fn a_process_ends_by_the_signal_at_any_moment_prints_nothing_and_leaves_nothing_behind() -> Result {
    if let Some(way) = child::role() {
        return work_for_ever(&way);
    }
    let (_context, gpu) = support::open(NONE)?;
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    host_write(&memory, 0, &pattern(SIZE, 1))?;
    let (before, files) = (State::take(), leftovers());
    let mut random = Random::new(u64::from(std::process::id()));
    let killed = [("all", libc::SIGKILL)].into_iter().cycle().take(rounds(8, 3));
    let ended = ["cpu", "engine", "stream"].into_iter().flat_map(|way| [(way, libc::SIGTERM), (way, libc::SIGINT)]);
    for (way, signal) in killed.chain(ended) {
        let (mut child, mut errors) = start(way)?;
        thread::sleep(Duration::from_micros(random.below(30_000) as u64));
        send(&child, signal)?;
        let (status, mut rest) = (child.wait()?, String::new());
        errors.read_to_string(&mut rest)?;
        assert_eq!((status.signal(), status.core_dumped()), (Some(signal), false), "{way}: {status}");
        assert_eq!(rest, "", "{way}");
    }
    State::assert_unchanged(&before, "the children");
    assert_nothing_is_left(&files);
    assert!(device_read(memory.device_ptr(), SIZE) == pattern(SIZE, 1));
    Ok(())
}
