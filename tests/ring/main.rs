//! The ring between the CPU and a kernel that keeps running.
#![expect(unsafe_code, reason = "launches kernels")]

mod ends;
mod messages;
mod pressure;
mod weak;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use support::Result;
use vkgdr::cudarc::driver::{CudaContext, CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use vkgdr::cudarc::nvrtc::Ptx;
use vkgdr::ring::Ring;
use vkgdr::{OpenFlags, Vkgdr};

/// With the loads and stores of GPUs from Volta on; the example's has those of earlier ones.
const KERNELS: &str = include_str!("kernels.ptx");
const ECHO: &str = include_str!("../../examples/ring_echo.ptx");
/// The time for what takes milliseconds, on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(50);
/// The time for what does not happen.
const MOMENT: Duration = Duration::from_millis(20);

/// The example's kernel is loaded before any kernel runs, and all stay loaded: NVIDIA's driver waits for running kernels to load
/// or unload another.
struct Setup {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    echo: CudaFunction,
    loaded: RefCell<Vec<CudaFunction>>,
    gpu: Vkgdr,
}

impl Setup {
    fn new() -> Result<Self> {
        support::blocking::take_turn();
        let context = CudaContext::new(0)?;
        let stream = context.new_stream()?;
        let echo = context.load_module(Ptx::from_src(ECHO))?.load_function("echo")?;
        let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
        Ok(Self { context, stream, echo, loaded: RefCell::default(), gpu })
    }

    /// Loads a kernel of [`KERNELS`], or of a change of them.
    fn kernel(&self, ptx: &str, name: &str) -> Result<CudaFunction> {
        let kernel = self.context.load_module(Ptx::from_src(ptx))?.load_function(name)?;
        self.loaded.borrow_mut().push(kernel.clone());
        Ok(kernel)
    }

    /// Starts the example's kernel.
    fn echo(&self, ring: &Ring, threads: u32) -> Result {
        let address = ring.device_ptr();
        let mut launch = self.stream.launch_builder(&self.echo);
        launch.arg(&address);
        // SAFETY: the kernel takes the ring, which is aborted, and the stream waited for, before it is freed.
        unsafe { launch.launch(shape(threads)) }?;
        Ok(())
    }

    /// Starts a kernel of the tests with its arguments behind the ring, see kernels.cu.
    fn start(&self, kernel: &CudaFunction, ring: &Ring, [first, second, third]: [u64; 3]) -> Result {
        let address = ring.device_ptr();
        let mut launch = self.stream.launch_builder(kernel);
        launch.arg(&address).arg(&first).arg(&second).arg(&third);
        // SAFETY: as for `echo`.
        unsafe { launch.launch(shape(1)) }?;
        Ok(())
    }
}

fn shape(threads: u32) -> LaunchConfig {
    LaunchConfig { grid_dim: (1, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes: 0 }
}

/// The message of a number, as the kernels know it.
fn message(number: u64, len: usize) -> Vec<u8> {
    let first = number.wrapping_mul(31).wrapping_add(len as u64);
    (0..len as u64).map(|at| first.wrapping_add(at * 7).to_le_bytes()[0]).collect()
}

/// The answer of the kernel `check`: wrong messages, all messages, their bytes.
fn report(ring: &Ring) -> Result<[u64; 3]> {
    let mut answer = Vec::new();
    ring.pop(&mut answer, TIMEOUT)?;
    let mut words = [0; 3];
    for (word, bytes) in words.iter_mut().zip(answer.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into()?);
    }
    assert_eq!(answer.len(), 24);
    Ok(words)
}
