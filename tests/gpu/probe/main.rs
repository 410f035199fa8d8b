//! Tests undocumented behaviour of a GPU and its driver, and prints one answer for each question.
//!
//! ```text
//! gpu_probe              every part of every question, each in a process of its own, so that a crash or hang loses
//!                        only its own answer
//! gpu_probe M5 mapped    one part of one question, in this process
//! ```
//!
//! The process that asks loads no driver. The exit code is 0 if every question was answered, even by "no", or need not be
//! asked here.

mod child;
mod cuda;
mod host;
mod questions;

use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use crate::child::Outcome;
use crate::cuda::Answer;
use crate::questions::Question;

/// The time limit of a question's part, including the start of its process.
const TIMEOUT: Duration = Duration::from_secs(15);
/// That of the introduction: the first use of a driver after boot may load kernel modules and compile caches.
const FIRST_TIMEOUT: Duration = Duration::from_secs(60);

/// The prefix of the last line of a question without an answer.
const NOT_ANSWERED: &str = "not answered: ";
/// The argument that asks for GPU and driver.
const INTRODUCTION: &str = "introduction";
/// The number of processes, one after the other, that reach their time limits before the probe stops: the driver hangs.
const MOST_LATE: u32 = 5;

fn main() -> ExitCode {
    match env::args().nth(1) {
        None => ask_all(),
        Some(id) if id == INTRODUCTION => {
            println!("{}", introduction());
            ExitCode::SUCCESS
        }
        Some(id) => ask_one(&id, &env::args().nth(2).unwrap_or_default()),
    }
}

fn ask_one(id: &str, part: &str) -> ExitCode {
    let Some(question) = questions::ALL.iter().find(|question| question.id.eq_ignore_ascii_case(id)) else {
        eprintln!("no question {id}; there are {}", questions::ALL.map(|question| question.id).join(" "));
        return ExitCode::FAILURE;
    };
    if !question.parts.contains(&part) {
        eprintln!("question {id} has no part {part:?}; there are {:?}", question.parts);
        return ExitCode::FAILURE;
    }
    let answer = within_environment(question, part).and_then(|()| cuda::open()).and_then(|()| (question.ask)(part));
    // The parent reads the last line as the answer and earlier lines as details.
    match answer {
        Ok(answer) => println!("{answer}"),
        Err(refusal) => println!("{NOT_ANSWERED}{refusal}"),
    }
    ExitCode::SUCCESS
}

/// Replaces this process by another of this program, unless its environment is the question's. Libraries read theirs when
/// they are loaded.
fn within_environment(question: &Question, part: &str) -> Answer<()> {
    if question.environment.iter().all(|(name, value)| env::var_os(name).as_deref() == Some(OsStr::new(value))) {
        return Ok(());
    }
    if cuda::is_simulated() {
        return Err(format!("{}the simulated driver itself calls the Vulkan loader", questions::SKIPPED));
    }
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let environment = question.environment.iter().copied();
    Err(Command::new(program).args([question.id, part]).envs(environment).exec().to_string())
}

fn ask_all() -> ExitCode {
    keep_initialised();
    let mut late = 0;
    let mut all_answered = ExitCode::SUCCESS;
    let started = child::ask([INTRODUCTION, ""], FIRST_TIMEOUT);
    println!("gpu_probe: {}", started.answer);
    print_details(&started.details);
    if started.outcome != Outcome::Answered {
        all_answered = ExitCode::FAILURE;
        late += u32::from(started.outcome == Outcome::Late);
    }
    for question in &questions::ALL {
        for part in question.parts {
            let started = Instant::now();
            let asked = child::ask([question.id, part], TIMEOUT);
            let answer = &asked.answer;
            let is_skipped = answer.strip_prefix(NOT_ANSWERED).is_some_and(|why| why.starts_with(questions::SKIPPED));
            if asked.outcome != Outcome::Answered || (answer.starts_with(NOT_ANSWERED) && !is_skipped) {
                all_answered = ExitCode::FAILURE;
            }
            let comma = if part.is_empty() { "" } else { ", " };
            let seconds = started.elapsed().as_secs_f64();
            println!("{} {}{comma}{part}: {answer} [{seconds:.1} s]", question.id, question.title);
            print_details(&asked.details);
            late = if asked.outcome == Outcome::Late { late + 1 } else { 0 };
            if late == MOST_LATE {
                println!("gpu_probe: STOPPED: the last {late} processes were still running at their time limits");
                return ExitCode::FAILURE;
            }
        }
    }
    all_answered
}

fn print_details(details: &str) {
    for line in details.lines() {
        println!("      {line}");
    }
}

/// Keeps the device nodes of GPUs open until this process ends. Without persistence mode NVIDIA's kernel module
/// initialises a GPU when its node is opened first, which takes seconds, and shuts it down when the node is closed last. An open
/// node is no context, and so allows contexts of other processes in exclusive mode. On a thread, since opening may hang.
fn keep_initialised() {
    thread::spawn(|| {
        let is_gpu = |name: &str| name.strip_prefix("nvidia").is_some_and(|number| number.parse::<u32>().is_ok());
        let entries = fs::read_dir("/dev").into_iter().flatten().flatten();
        let nodes = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_gpu));
        // A node that may not be opened is not the GPU that is asked about.
        let _open: Vec<fs::File> = nodes.filter_map(|node| fs::File::open(node.path()).ok()).collect();
        loop {
            thread::park();
        }
    });
}

/// GPU and driver.
fn introduction() -> String {
    if let Err(refusal) = cuda::open() {
        return format!("NO CUDA DRIVER: {refusal}");
    }
    let name = questions::open().map_or_else(|error| format!("(not opened: {error})"), |gpu| gpu.name().to_owned());
    if cuda::is_simulated() {
        return format!("SIMULATED CUDA DRIVER on {name}: these answers say nothing about any GPU");
    }
    let version = cuda::version().map_or_else(|error| error, |v| format!("{}.{}", v / 1000, v % 1000 / 10));
    format!("{name}, driver for CUDA {version}")
}
