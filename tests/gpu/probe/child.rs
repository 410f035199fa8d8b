//! Asks in a process of its own, within a time limit, so that a crash or hang loses one answer.
#![forbid(unsafe_code)]

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{env, io, thread};

/// The beginning of the answer for a process that crashed or hung.
const NO_ANSWER: &str = "NO ANSWER";
/// The time that a killed process gets to end, and that readers get to empty the pipes of a process that has ended. A process
/// that is stuck in a driver's kernel module cannot be killed.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// What a process printed.
pub(crate) struct Asked {
    /// Messages of drivers and panics, then all lines but the answer.
    pub(crate) details: String,
    /// The last line that the process printed; if it crashed or hung, how it ended.
    pub(crate) answer: String,
    pub(crate) outcome: Outcome,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Answered,
    /// The process was still running at its time limit.
    Late,
    /// The process crashed, or did not start.
    Crashed,
}

/// Runs this program with these arguments for at most `limit`.
pub(crate) fn ask(arguments: [&str; 2], limit: Duration) -> Asked {
    let (text, ended) = match run(arguments, limit) {
        Ok(output) => output,
        Err(error) => {
            let answer = format!("{NO_ANSWER}, the process did not start: {error}");
            return Asked { details: String::new(), answer, outcome: Outcome::Crashed };
        }
    };
    let (outcome, how) = match ended {
        Ended::Normally => {
            let (details, answer) = text.trim_end().rsplit_once('\n').unwrap_or(("", text.trim_end()));
            return Asked { details: details.to_owned(), answer: answer.to_owned(), outcome: Outcome::Answered };
        }
        Ended::Late => (Outcome::Late, format!("was still running after {} s", limit.as_secs())),
        Ended::Never => (Outcome::Late, format!("was still running after {} s, and cannot be killed", limit.as_secs())),
        Ended::Badly(status) => (Outcome::Crashed, format!("ended with {status}")),
    };
    Asked { details: text, answer: format!("{NO_ANSWER}, the process {how}"), outcome }
}

enum Ended {
    Normally,
    Late,
    /// Not even after it was killed.
    Never,
    Badly(ExitStatus),
}

fn run(arguments: [&str; 2], limit: Duration) -> io::Result<(String, Ended)> {
    let mut child = Command::new(env::current_exe()?)
        .args(arguments)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let readers = [child.stderr.take().map(Reader::of), child.stdout.take().map(Reader::of)];
    let ended = wait(&mut child, limit)?;
    let deadline = Instant::now() + LAST_WAIT;
    Ok((readers.into_iter().flatten().map(|reader| reader.text(deadline)).collect(), ended))
}

fn wait(child: &mut Child, limit: Duration) -> io::Result<Ended> {
    if let Some(status) = wait_until(child, Instant::now() + limit)? {
        return Ok(if status.success() { Ended::Normally } else { Ended::Badly(status) });
    }
    child.kill()?;
    let ended = wait_until(child, Instant::now() + LAST_WAIT)?;
    Ok(if ended.is_some() { Ended::Late } else { Ended::Never })
}

fn wait_until(child: &mut Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    loop {
        let status = child.try_wait()?;
        if status.is_some() || Instant::now() > deadline {
            return Ok(status);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Reads a pipe on a thread, so that a full pipe never blocks its writer.
struct Reader {
    bytes: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<()>,
}

impl Reader {
    fn of(mut pipe: impl Read + Send + 'static) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let target = Arc::clone(&bytes);
        let thread = thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(len @ 1..) = pipe.read(&mut part) {
                target.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&part[..len]);
            }
        });
        Self { bytes, thread }
    }

    /// What was read up to the pipe's end, or to the deadline: a process that cannot be killed keeps its pipes.
    fn text(self, deadline: Instant) -> String {
        while !self.thread.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
