//! Rings: each lives for one step, with a kernel that echoes its messages.
#![expect(unsafe_code, reason = "launches a kernel, and binds a stream that the world keeps alive")]

use support::step::Step;
use support::{Result, pattern};
use vkgdr::cudarc::driver::{LaunchConfig, PushKernelArg};
use vkgdr::ring::Ring;
use vkgdr::{Error, MemoryKind};

use super::World;
use super::device::Primary;
use super::item::Site;
use super::queue::TIMEOUT;

/// The largest number of messages.
const MOST: u8 = 12;

impl World {
    /// Makes a ring in the primary context, sends messages to a kernel and back, and ends both in one of several ways.
    pub(super) fn run_ring(&mut self, step: Step) -> Result<bool> {
        let (gpu, _) = self.handle(step.first, true);
        let (messages, answers) = (1 + step.span.new_len() % 9000, 1 + usize::from(step.seed) % 9000);
        let made = self.inside(Site::Primary, || Ring::new(&gpu, messages, answers));
        let Some(ring) = self.judged(&gpu, MemoryKind::Host, made)? else { return Ok(true) };
        // cudarc may make its context current.
        self.inside(Site::Primary, || echo(&self.primary, &ring, step, messages.min(answers)))?;
        Ok(true)
    }
}

fn echo(primary: &Primary, ring: &Ring, step: Step, most: usize) -> Result {
    if step.choice % 2 == 1 {
        ring.bind_stream(primary.stream())?;
    }
    let (kernel, address) = (primary.echo()?, ring.device_ptr());
    let mut launch = primary.stream().launch_builder(kernel);
    launch.arg(&address);
    let shape = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 };
    // SAFETY: the kernel takes the ring, which is aborted and waits for the kernel before it is freed.
    unsafe { launch.launch(shape) }?;
    let (count, mut answer) = (1 + step.second % MOST, Vec::new());
    for number in 0..count {
        let message = pattern(usize::from(step.seed) * usize::from(number + 1) % (most + 1), number.into());
        ring.push(&message, TIMEOUT)?;
        ring.pop(&mut answer, TIMEOUT)?;
        if answer != message {
            return Err(format!("answer {number} of {} bytes differs in {ring:?}", message.len()).into());
        }
    }
    match step.choice % 6 {
        0 | 1 => {
            ring.close()?;
            let closed = ring.pop(&mut answer, TIMEOUT);
            assert!(matches!(closed, Err(Error::RingClosed)), "{closed:?}");
        }
        2 | 3 => ring.abort()?,
        // The drop ends the kernel.
        _ => {}
    }
    let stats = ring.stats()?;
    assert_eq!((stats.pushed, stats.popped), (count.into(), count.into()));
    Ok(())
}
