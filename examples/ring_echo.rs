//! Sends messages to a kernel that keeps running, which answers each with its bytes: latency and rate, beside a launch a message.
//!
//! ```text
//! cargo run --release --example ring_echo -- [--messages N] [--size BYTES]
//! ```
//!
//! The kernel, `ring_echo.cu`, is started once. Round trips send a message and wait for its answer; the rate is that of
//! messages in batches, with the answers read in between. Each answer is compared with its message. Launches of an empty
//! kernel, each waited for, show what a message to a kernel that does not keep running costs at least.
//!
//! ```text
//! $ cargo run --release --example ring_echo
//! Simulated CUDA device (llvmpipe (LLVM 15.0.6, 256 bits)): mapped memory
//! simulated: the times say nothing about a GPU
//! 1000 round trips of 64 bytes: 66.3 us at the median, 20040.6 us at most
//! 10000 messages in batches: 4057 a second, 45 a fence
//! 1000 launches, each waited for: 45.3 us at the median
//! ```
#![expect(unsafe_code, reason = "launching a kernel is unsafe by nature")]

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaContext, CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use vkgdr::ring::Ring;
use vkgdr::{OpenFlags, Vkgdr};

type Failure = Box<dyn Error>;

const TIMEOUT: Duration = Duration::from_secs(20);
/// A warp, which copies 32 bytes at a time.
const THREADS: u32 = 32;

struct Options {
    messages: usize,
    size: usize,
}

impl Options {
    fn parse() -> Result<Self, Failure> {
        let mut options = Self { messages: 10_000, size: 64 };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut number = |least: usize, most: usize| {
                let text = arguments.next().ok_or_else(|| format!("{argument} needs a number"))?;
                let number = text.parse().ok().filter(|number| (least..=most).contains(number));
                number.ok_or_else(|| format!("{argument}: '{text}' is no number from {least} to {most}"))
            };
            match argument.as_str() {
                "--messages" => options.messages = number(1, 1_000_000_000)?,
                "--size" => options.size = number(1, 1 << 20)?,
                _ => return Err(format!("unknown argument '{argument}': see the head of the source").into()),
            }
        }
        Ok(options)
    }
}

/// The bytes of a message.
fn fill(message: &mut [u8], number: usize) {
    for (at, byte) in message.iter_mut().enumerate() {
        *byte = (number * 31 + at).to_le_bytes()[0];
    }
}

fn compare(answer: &[u8], message: &[u8], number: usize) -> Result<(), Failure> {
    if answer == message { Ok(()) } else { Err(format!("the answer to message {number} is wrong").into()) }
}

fn start(stream: &Arc<CudaStream>, kernel: &CudaFunction, address: u64) -> Result<(), Failure> {
    let one = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (THREADS, 1, 1), shared_mem_bytes: 0 };
    let mut launch = stream.launch_builder(kernel);
    launch.arg(&address);
    // SAFETY: the kernel takes the address of a ring, which outlives it.
    unsafe { launch.launch(one) }?;
    Ok(())
}

/// The median and the largest of times, in microseconds.
fn summary(mut times: Vec<Duration>) -> (f64, f64) {
    times.sort_unstable();
    let micros = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1e6);
    (micros(times.get(times.len() / 2)), micros(times.last()))
}

fn round_trips(ring: &Ring, options: &Options) -> Result<(), Failure> {
    let count = options.messages.min(1000);
    let (mut message, mut answer, mut times) = (vec![0; options.size], Vec::new(), Vec::new());
    for number in 0..count {
        fill(&mut message, number);
        let begin = Instant::now();
        ring.push(&message, TIMEOUT)?;
        ring.pop(&mut answer, TIMEOUT)?;
        times.push(begin.elapsed());
        compare(&answer, &message, number)?;
    }
    let (median, most) = summary(times);
    println!("{count} round trips of {} bytes: {median:.1} us at the median, {most:.1} us at most", options.size);
    Ok(())
}

fn batches(ring: &Ring, options: &Options) -> Result<(), Failure> {
    const BATCH: usize = 64;
    let Options { messages, size } = *options;
    let before = ring.stats()?.publications;
    let (mut batch, mut answer, mut expected) = (vec![vec![0; size]; BATCH], Vec::new(), vec![0; size]);
    let (mut sent, mut received) = (0, 0);
    let begin = Instant::now();
    let mut last = begin;
    while received < messages {
        let count = (messages - sent).min(BATCH);
        for (message, number) in batch[..count].iter_mut().zip(sent..) {
            fill(message, number);
        }
        let messages: Vec<_> = batch[..count].iter().map(Vec::as_slice).collect();
        let pushed = ring.try_push_all(&messages)?;
        sent += pushed;
        while received < sent && ring.try_pop(&mut answer)? {
            fill(&mut expected, received);
            compare(&answer, &expected, received)?;
            received += 1;
            last = Instant::now();
        }
        if last.elapsed() > TIMEOUT {
            return Err(format!("no answer to message {received} within {TIMEOUT:?}").into());
        }
        std::thread::yield_now();
    }
    let batches = ring.stats()?.publications - before;
    #[expect(clippy::cast_precision_loss, reason = "a rate to three digits")]
    let (rate, each) = (messages as f64 / begin.elapsed().as_secs_f64(), messages as f64 / batches as f64);
    println!("{messages} messages in batches: {rate:.0} a second, {each:.0} a fence");
    Ok(())
}

/// Launches of the kernel on a ring that is closed: it ends at once.
fn launches(gpu: &Vkgdr, stream: &Arc<CudaStream>, kernel: &CudaFunction, count: usize) -> Result<(), Failure> {
    let closed = Ring::new(gpu, 16, 16)?;
    closed.close()?;
    let mut times = Vec::new();
    for _ in 0..count {
        let begin = Instant::now();
        start(stream, kernel, closed.device_ptr())?;
        stream.synchronize()?;
        times.push(begin.elapsed());
    }
    println!("{count} launches, each waited for: {:.1} us at the median", summary(times).0);
    Ok(())
}

fn run() -> Result<(), Failure> {
    let options = Options::parse()?;
    let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
    let context = CudaContext::new(0)?;
    let stream = context.new_stream()?;
    let kernel = context.load_module(Ptx::from_src(include_str!("ring_echo.ptx")))?.load_function("echo")?;
    // Before the kernel runs: allocations may wait for it.
    let len = 256 * (options.size + 32);
    let ring = Ring::new(&gpu, len, len)?;
    println!("{}: {} memory", gpu.name(), ring.kind());
    if gpu.name().to_lowercase().contains("simulated") {
        println!("simulated: the times say nothing about a GPU");
    }
    start(&stream, &kernel, ring.device_ptr())?;
    round_trips(&ring, &options)?;
    batches(&ring, &options)?;
    ring.close()?;
    stream.synchronize()?;
    launches(&gpu, &stream, &kernel, options.messages.min(1000))
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ring_echo: {error}");
            ExitCode::FAILURE
        }
    }
}
