//! Messages to a running kernel through a ring: beside a ring whose messages are in pinned host memory, which the kernel polls
//! across PCIe, and beside a kernel launch for each message.
#![expect(unsafe_code, reason = "launches kernels")]

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use vkgdr::cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use vkgdr::cudarc::nvrtc::Ptx;
use vkgdr::ring::Ring;
use vkgdr::{AllocateOptions, Error, Memory, MemoryKind};

use crate::pairs::{Effort, Pairs};
use crate::report::Goal;
use crate::{Bench, Result, must};

const MESSAGE: usize = 64;
const BATCH: usize = 64;
const RING: usize = 1 << 16;
/// The longest wait for the kernel: longer than any on a machine that is not too busy.
const PATIENCE: Duration = Duration::from_secs(2);
const WARP: LaunchConfig = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 };

/// A ring with the stream of the kernel that answers. The kernel runs until the ring is closed or aborted.
struct Echo {
    ring: Ring,
    stream: Arc<CudaStream>,
}

impl Echo {
    fn new(bench: &Bench, kind: MemoryKind) -> Result<Self> {
        let ring = Ring::with_options(&bench.gpu, RING, RING, AllocateOptions::new(kind))?;
        let stream = bench.context.new_stream()?;
        ring.bind_stream(&stream)?;
        Ok(Self { ring, stream })
    }

    fn start(&self, kernel: &CudaFunction) -> Result {
        let address = self.ring.device_ptr();
        let mut launch = self.stream.launch_builder(kernel);
        launch.arg(&address);
        // SAFETY: the kernel takes the address of a ring, which outlives it: `Both`, or the ring's own drop, ends the kernel.
        unsafe { launch.launch(WARP) }?;
        Ok(())
    }

    fn round_trip(&self, buffer: &mut [u8]) -> vkgdr::Result<()> {
        self.ring.push(&buffer[..MESSAGE], PATIENCE)?;
        self.ring.pop_into(buffer, PATIENCE).map(drop)
    }

    /// Sends a batch under one fence, and waits for its answers.
    fn batch(&self, buffer: &mut [u8]) -> vkgdr::Result<()> {
        let message = [7; MESSAGE];
        let pushed = self.ring.try_push_all(&[&message[..]; BATCH])?;
        (0..pushed).try_for_each(|_| self.ring.pop_into(buffer, PATIENCE).map(drop))
    }
}

/// The measured rings. No kernel runs when the memory of either is freed, since `cuMemFree` may wait for all kernels of the
/// context.
struct Both {
    mapped: Echo,
    pinned: Echo,
}

impl Drop for Both {
    fn drop(&mut self) {
        let both = [&self.mapped, &self.pinned];
        for echo in both {
            if let Err(error) = echo.ring.abort() {
                println!("    a ring's kernel was not told to end: {error}");
            }
        }
        for echo in both {
            if let Err(error) = echo.stream.synchronize() {
                println!("    a ring's kernel: {error}");
            }
        }
    }
}

/// Loads the kernel by a first launch, on a ring that is closed already. Loading may wait for running kernels, and with lazy
/// loading (`CUDA_MODULE_LOADING`) happens at the first launch.
fn load(bench: &Bench, kernel: &CudaFunction) -> Result {
    let closed = Echo::new(bench, MemoryKind::Host)?;
    closed.ring.close()?;
    closed.start(kernel)?;
    Ok(closed.stream.synchronize()?)
}

/// Measures two sides that may fail; the first error ends the measurement.
fn measure_both(
    limit: Duration,
    mut ours: impl FnMut() -> vkgdr::Result<()>,
    mut peer: impl FnMut() -> vkgdr::Result<()>,
) -> vkgdr::Result<Pairs> {
    let failed = RefCell::new(None);
    let unless_failed = |side: &mut dyn FnMut() -> vkgdr::Result<()>| {
        if failed.borrow().is_none()
            && let Err(error) = side()
        {
            failed.replace(Some(error));
        }
    };
    let effort = Effort { batch: 20, rounds: 200, at_most: limit };
    let pairs = effort.measure(|| unless_failed(&mut ours), || unless_failed(&mut peer));
    failed.into_inner().map_or(Ok(pairs), Err)
}

/// Adds the result; a kernel that does not answer in time is no failure on a busy machine.
fn add(bench: &mut Bench, what: &str, peer: &str, goal: Goal, measured: vkgdr::Result<Pairs>) -> Result {
    match measured {
        Ok(pairs) => bench.report.add(what, peer, pairs, goal),
        Err(error @ Error::RingTimeout { .. }) => {
            println!("    {error}");
            bench.report.skip(what, error.to_string());
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

pub(crate) fn measure(bench: &mut Bench, limit: Duration) -> Result {
    let echo = bench.context.load_module(Ptx::from_src(include_str!("../../examples/ring_echo.ptx")))?;
    let answer = bench.context.load_module(Ptx::from_src(include_str!("ping_pong.ptx")))?;
    let (echo, answer) = (echo.load_function("echo")?, answer.load_function("answer")?);
    let stream = bench.context.new_stream()?;
    // All memory before a ring's kernel runs: an allocation may wait for it.
    let (flag, reply) = (
        Memory::allocate(&bench.gpu, 4096, MemoryKind::Mapped)?,
        Memory::allocate(&bench.gpu, 4096, MemoryKind::Host)?,
    );
    let launched = || {
        must(flag.write(0, &[1_u32]));
        must(flag.flush(..4));
        let (flag, reply, rounds, patience) = (flag.device_ptr(), reply.device_ptr(), 1_u32, u64::MAX);
        let mut launch = stream.launch_builder(&answer);
        launch.arg(&flag).arg(&reply).arg(&rounds).arg(&patience);
        // SAFETY: the kernel takes these arguments, uses one word of each memory, and is waited for.
        must(unsafe { launch.launch(WARP) });
        must(stream.synchronize());
        Ok(())
    };
    // Both kernels are loaded before one runs for long.
    load(bench, &echo)?;
    launched()?;
    // After the other memory, whose release waits for all kernels: the rings are dropped first.
    let both = Both { mapped: Echo::new(bench, MemoryKind::Mapped)?, pinned: Echo::new(bench, MemoryKind::Host)? };
    let Both { mapped, pinned } = &both;
    let (mut buffer, mut other) = (vec![0; RING], vec![0; RING]);
    mapped.start(&echo)?;
    let pairs = measure_both(limit / 3, || mapped.round_trip(&mut buffer), launched);
    add(bench, "round trip of 64 B through a ring", "a launch that is waited for", Goal::Ratio(0.75), pairs)?;
    pinned.start(&echo)?;
    let peer = "messages in pinned memory";
    let pairs = measure_both(limit / 3, || mapped.round_trip(&mut buffer), || pinned.round_trip(&mut other));
    add(bench, "round trip of 64 B through a ring", peer, Goal::None, pairs)?;
    let pairs = measure_both(limit / 3, || mapped.batch(&mut buffer), || pinned.batch(&mut other));
    add(bench, "64 messages of 64 B through a ring", peer, Goal::None, pairs)
}
