//! Round trips with a running kernel: the CPU writes a number, the kernel polls it and answers in host memory.
#![expect(unsafe_code, reason = "launches a kernel")]

use std::hint::spin_loop;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use vkgdr::{Memory, MemoryKind};

use super::timing::Times;
use super::{Point, Run};
use crate::{Failure, Result};

/// Round trips of one launch, of which the first are not measured.
const ROUNDS: u32 = 2200;
const WARM_UP: u32 = 200;
/// The CPU's timeout of a round; the kernel's for all rounds is four times this.
const TIMEOUT: Duration = Duration::from_secs(10);
const LEN: usize = 4096;

pub(super) fn measure(run: &mut Run<'_>, kinds: &[MemoryKind]) -> Result {
    let ordinal = usize::try_from(run.gpu.device())?;
    let reply = Memory::allocate(run.gpu, LEN, MemoryKind::Host)?;
    let context = CudaContext::new(ordinal)?;
    let ptx = Ptx::from_src(include_str!("ping_pong.ptx"));
    let kernel = context.load_module(ptx)?.load_function("answer")?;
    let stream = context.new_stream()?;
    for kind in kinds {
        let flag = match Memory::allocate(run.gpu, LEN, *kind) {
            Ok(flag) if kind.has_host_view() => flag,
            Ok(_) => {
                run.skip(&format!("{kind} memory"), "the CPU cannot write a number to it")?;
                continue;
            }
            Err(error) => {
                run.skip(&format!("{kind} memory"), &error.to_string())?;
                continue;
            }
        };
        flag.write(0, &[0_u32])?;
        flag.flush(..4)?;
        reply.write(0, &[0_u32])?;
        reply.flush(..4)?;
        let (to, from, timeout) = (flag.device_ptr(), reply.device_ptr(), u64::try_from((4 * TIMEOUT).as_nanos())?);
        let mut launch = stream.launch_builder(&kernel);
        launch.arg(&to).arg(&from).arg(&ROUNDS).arg(&timeout);
        let one = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: the kernel takes these arguments, uses one word of each memory, and is waited for below.
        unsafe { launch.launch(one) }?;
        let times = round_trips(&flag, &reply);
        stream.synchronize()?;
        let times = Times::new(times?, 1);
        run.add(Point { kind: *kind, operation: "round trip", by: None, threads: 1, bytes: None, times, rate: None })?;
    }
    Ok(())
}

/// Nanoseconds of each round.
fn round_trips(flag: &Memory, reply: &Memory) -> Result<Vec<f64>> {
    let mut times = Vec::new();
    for round in 1..=ROUNDS {
        let start = Instant::now();
        flag.write(0, &[round])?;
        flag.flush(..4)?;
        let (mut answer, mut looks) = ([0_u32], 0_u32);
        loop {
            reply.invalidate(..4)?;
            reply.read(0, &mut answer)?;
            if answer == [round] {
                break;
            }
            spin_loop();
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(1 << 10) {
                if start.elapsed() > TIMEOUT {
                    let problem = format!("the kernel did not answer round {round} within {TIMEOUT:?}");
                    return Err(Failure::boxed(problem, "the machine may be too busy: try again"));
                }
                // A simulated kernel needs a processor too.
                std::thread::yield_now();
            }
        }
        if round > WARM_UP {
            times.push(start.elapsed().as_secs_f64() * 1e9);
        }
    }
    Ok(times)
}
