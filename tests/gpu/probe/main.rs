//! Tests undocumented behaviour of a GPU and its driver, and prints one answer for each question.
//!
//! ```text
//! gpu_probe              every part of every question, each in a process of its own, so that a crash or hang loses
//!                        only its own answer
//! gpu_probe M5 mapped    one part of one question, in this process
//! ```
//!
//! The exit code is 0 if every question was answered, even by "no", or need not be asked here.

mod cuda;
mod host;
mod questions;
mod vulkan;

use std::io::Read;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{env, io, thread};

use vkgdr::{Memory, MemoryKind, OpenFlags, Vkgdr};

use crate::cuda::{Answer, Cuda};
use crate::vulkan::Vulkan;

/// The time limit of a question's part, including the start of its process.
const PATIENCE: Duration = Duration::from_secs(15);
/// That of the first: the first use of a driver after boot may load kernel modules and compile caches.
const FIRST_PATIENCE: Duration = Duration::from_secs(60);

/// The prefix of the last line of a question without an answer.
const NOT_ANSWERED: &str = "not answered: ";
/// The beginning of the answer for a process that crashed or hung.
const NO_ANSWER: &str = "NO ANSWER";

/// The environment of every question: the driver, with device 0's primary context current on this thread.
pub(crate) struct Probe {
    pub(crate) cuda: Cuda,
}

impl Probe {
    /// Opens the GPU through the library under test.
    pub(crate) fn vkgdr(&self) -> Answer<Vkgdr> {
        Vkgdr::open_primary_context(self.cuda.device, OpenFlags::empty()).map_err(|error| error.to_string())
    }

    /// Opens the same GPU through Vulkan alone.
    pub(crate) fn vulkan(&self) -> Answer<Vulkan> {
        let [uuid, _] = self.cuda.uuids();
        Vulkan::open(&uuid?)
    }
}

/// Allocates through the library under test.
pub(crate) fn allocate(vkgdr: &Vkgdr, len: usize, kind: MemoryKind) -> Answer<Memory> {
    Memory::allocate(vkgdr, len, kind).map_err(|error| error.to_string())
}

fn main() -> ExitCode {
    match env::args().nth(1) {
        None => ask_all(),
        Some(id) => ask_one(&id, &env::args().nth(2).unwrap_or_default()),
    }
}

fn ask_one(id: &str, part: &str) -> ExitCode {
    let Some(question) = questions::ALL.iter().find(|question| question.id.eq_ignore_ascii_case(id)) else {
        eprintln!("no question {id}; there are {}", questions::ALL.map(|question| question.id).join(" "));
        return ExitCode::FAILURE;
    };
    if !question.parts().contains(&part) {
        eprintln!("question {id} has no part {part:?}; there are {:?}", question.parts());
        return ExitCode::FAILURE;
    }
    let answer = Cuda::open().and_then(|cuda| question.ask(&Probe { cuda }, part));
    // The parent reads the last line as the answer and earlier lines as details.
    match answer {
        Ok(answer) => println!("{answer}"),
        Err(refusal) => println!("{NOT_ANSWERED}{refusal}"),
    }
    ExitCode::SUCCESS
}

fn ask_all() -> ExitCode {
    println!("{}", introduction());
    let mut all_answered = ExitCode::SUCCESS;
    let mut patience = FIRST_PATIENCE;
    for question in &questions::ALL {
        for part in question.parts() {
            let started = Instant::now();
            let (details, answer) = answer_of_child(question.id, part, patience);
            patience = PATIENCE;
            if answer == questions::NO_MORE {
                break;
            }
            let is_skipped = answer.strip_prefix(NOT_ANSWERED).is_some_and(|why| why.starts_with(questions::SKIPPED));
            if answer.starts_with(NO_ANSWER) || (answer.starts_with(NOT_ANSWERED) && !is_skipped) {
                all_answered = ExitCode::FAILURE;
            }
            let comma = if part.is_empty() { "" } else { ", " };
            let seconds = started.elapsed().as_secs_f64();
            println!("{} {}{comma}{part}: {answer} [{seconds:.1} s]", question.id, question.title);
            for line in details.lines() {
                println!("      {line}");
            }
        }
    }
    all_answered
}

/// The details that a child prints, and the answer in its last line.
fn answer_of_child(id: &str, part: &str, patience: Duration) -> (String, String) {
    match ask_in_child(id, part, patience) {
        Ok(Output { text, ended: Ended::Normally }) => match text.trim_end().rsplit_once('\n') {
            Some((details, answer)) => (details.to_owned(), answer.to_owned()),
            None => (String::new(), text.trim_end().to_owned()),
        },
        Ok(Output { text, ended }) => (text, format!("{NO_ANSWER}, the process {}", ended.describe(patience))),
        Err(error) => (String::new(), format!("{NO_ANSWER}, the process did not start: {error}")),
    }
}

/// The first line: GPU and driver.
fn introduction() -> String {
    let cuda = match Cuda::open() {
        Ok(cuda) => cuda,
        Err(refusal) => return format!("gpu_probe: NO CUDA DRIVER: {refusal}"),
    };
    let probe = Probe { cuda };
    let name = probe.vkgdr().map_or_else(|error| format!("(not opened: {error})"), |gpu| gpu.name().to_owned());
    if probe.cuda.is_simulated() {
        return format!("gpu_probe: SIMULATED CUDA DRIVER on {name}: these answers say nothing about any GPU");
    }
    let version = probe.cuda.version().map_or_else(|error| error, |v| format!("{}.{}", v / 1000, v % 1000 / 10));
    format!("gpu_probe: {name}, driver for CUDA {version}")
}

struct Output {
    text: String,
    ended: Ended,
}

enum Ended {
    Normally,
    Late,
    Badly(std::process::ExitStatus),
}

impl Ended {
    fn describe(&self, patience: Duration) -> String {
        match self {
            Self::Normally => "ended normally".to_owned(),
            Self::Late => format!("was still running after {} s", patience.as_secs()),
            Self::Badly(status) => format!("ended with {status}"),
        }
    }
}

fn ask_in_child(id: &str, part: &str, patience: Duration) -> io::Result<Output> {
    let mut child = Command::new(env::current_exe()?)
        .args([id, part])
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().map(read_in_thread);
    let stderr = child.stderr.take().map(read_in_thread);
    let ended = wait(&mut child, patience)?;
    let joined = |reader: Option<JoinHandle<String>>| reader.and_then(|r| r.join().ok()).unwrap_or_default();
    // Messages of drivers and panics are printed before the answer.
    Ok(Output { text: joined(stderr) + &joined(stdout), ended })
}

/// Reads a pipe on a thread, so that a full pipe never blocks its writer.
fn read_in_thread(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // Text read before an error is printed too.
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn wait(child: &mut Child, patience: Duration) -> io::Result<Ended> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(if status.success() { Ended::Normally } else { Ended::Badly(status) });
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Ok(Ended::Late);
        }
        thread::sleep(Duration::from_millis(5));
    }
}
