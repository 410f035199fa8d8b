//! Round trips with a running kernel: the CPU writes a number, and the kernel polls it and answers.
//!
//! Ours writes into GPU memory and reads the answer in memory of kind `Host`; the peer does both in pinned memory, so
//! that each poll of the kernel crosses PCIe.
#![expect(unsafe_code, reason = "launches a kernel, and reads what it writes")]

use std::error::Error;
use std::fmt;
use std::hint::spin_loop;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vkgdr::cudarc::driver::sys::CUdeviceptr;
use vkgdr::cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use vkgdr::cudarc::nvrtc::Ptx;
use vkgdr::{Memory, MemoryKind};

use crate::memory::Pinned;
use crate::pairs::Pairs;
use crate::report::Goal;
use crate::{Bench, Result, must};

const WHAT: &str = "ping-pong with a running kernel";
/// Round trips of one launch: warm-up, and measured.
const WARM_UP: u32 = 200;
const MEASURED: u32 = 2000;
/// The CPU's timeout of a round; the kernel's timeout for all rounds is four times this. `VKGDR_BENCH_PATIENCE` sets
/// another number of seconds; 0 always times out, as on a machine that is too busy.
const PATIENCE: Duration = Duration::from_secs(2);
const LEN: usize = 4096;

/// The kernel did not answer in time.
#[derive(Debug)]
struct NoAnswer {
    round: u32,
    patience: Duration,
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { round, patience } = self;
        write!(f, "the kernel did not answer round {round} within {patience:?}; the machine may be too busy")
    }
}

impl Error for NoAnswer {}

/// One side of the comparison.
struct Table<F> {
    /// Sends a number to the kernel.
    put: F,
    flag: CUdeviceptr,
    reply: CUdeviceptr,
    /// The address of the answer.
    answer: *mut u32,
}

/// Measures, or reports that the kernel did not answer in time, which is no failure on a busy machine.
pub(crate) fn measure(bench: &mut Bench, limit: Duration) -> Result {
    match compare(bench, limit) {
        Ok(pairs) => bench.report.add(WHAT, "pinned memory", pairs, Goal::Ratio(0.75)),
        Err(error) if error.is::<NoAnswer>() => {
            println!("    {error}");
            bench.report.skip(WHAT, error.to_string());
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

fn patience() -> Result<Duration> {
    match std::env::var("VKGDR_BENCH_PATIENCE") {
        Ok(seconds) => Ok(Duration::try_from_secs_f64(seconds.parse()?)?),
        Err(_) => Ok(PATIENCE),
    }
}

fn compare(bench: &Bench, limit: Duration) -> Result<Pairs> {
    let patience = patience()?;
    let kernel = bench.context.load_module(Ptx::from_src(include_str!("ping_pong.ptx")))?.load_function("answer")?;
    let stream = bench.context.new_stream()?;

    let flag = Memory::allocate(&bench.gpu, LEN, MemoryKind::Mapped)?;
    let reply = Memory::allocate(&bench.gpu, LEN, MemoryKind::Host)?;
    let put = |number: u32| {
        must(flag.write(0, &[number]));
        must(flag.flush(..4));
    };
    let answer = reply.host_ptr().ok_or("host memory has no host view")?.as_ptr().cast();
    let ours = Table { put, flag: flag.device_ptr(), reply: reply.device_ptr(), answer };

    let (pinned_flag, pinned_reply) = (Pinned::new(LEN)?, Pinned::new(LEN)?);
    let put = |number: u32| {
        // SAFETY: the memory has room for it, and is aligned to a page.
        unsafe { ptr::write_volatile(pinned_flag.host_ptr().cast::<u32>(), number) };
    };
    let (flag, reply) = (pinned_flag.device_ptr()?, pinned_reply.device_ptr()?);
    let peer = Table { put, flag, reply, answer: pinned_reply.host_ptr().cast() };

    let mut pairs = Pairs::default();
    let start = Instant::now();
    while pairs.ours.len() < 5 || (start.elapsed() < limit && pairs.ours.len() < 200) {
        pairs.ours.push(ours.exchange(&kernel, &stream, patience)?);
        pairs.peer.push(peer.exchange(&kernel, &stream, patience)?);
    }
    println!("    {} launches each, {MEASURED} round trips a launch", pairs.ours.len());
    Ok(pairs)
}

impl<F: Fn(u32)> Table<F> {
    /// Nanoseconds per round trip with a kernel that is already running.
    fn exchange(&self, kernel: &CudaFunction, stream: &Arc<CudaStream>, patience: Duration) -> Result<f64> {
        (self.put)(0);
        // SAFETY: the memory has room for it and is aligned to a page; no kernel is running.
        unsafe { ptr::write_volatile(self.answer, 0) };
        let (rounds, kernels_patience) = (WARM_UP + MEASURED, u64::try_from((4 * patience).as_nanos())?);
        let mut launch = stream.launch_builder(kernel);
        launch.arg(&self.flag).arg(&self.reply).arg(&rounds).arg(&kernels_patience);
        let one = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: the kernel takes these arguments, uses one word of each memory, and is waited for below.
        unsafe { launch.launch(one) }?;
        let outcome = self.round_trips(rounds, patience);
        stream.synchronize()?;
        Ok(outcome?)
    }

    fn round_trips(&self, rounds: u32, patience: Duration) -> Result<f64, NoAnswer> {
        let mut start = Instant::now();
        for round in 1..=rounds {
            if round == WARM_UP + 1 {
                start = Instant::now();
            }
            (self.put)(round);
            // The clock is read in slow rounds only.
            let (mut looks, mut waiting) = (0_u32, None);
            // SAFETY: the memory has room for it and is aligned to a page.
            while unsafe { ptr::read_volatile(self.answer) } != round {
                spin_loop();
                looks = looks.wrapping_add(1);
                if looks.is_multiple_of(1 << 10) && waiting.get_or_insert_with(Instant::now).elapsed() > patience {
                    return Err(NoAnswer { round, patience });
                }
            }
        }
        Ok(start.elapsed().as_secs_f64() * 1e9 / f64::from(MEASURED))
    }
}
