//! Receives UDP packets into GPU memory by several threads, while kernels consume them, and prints live rates.
//!
//! ```text
//! cargo run --release --example receive_packets -- [--port N] [--threads N] [--packets N] [--send]
//! ```
//!
//! Each thread fills one of two batches of mapped memory with packets, while a kernel adds up the bytes of the other one
//! on the thread's own stream. The sums come back in host memory, and must be those of the bytes that arrived. The
//! program ends after at least `--packets` packets, by default never. With `--send` it sends itself packets over the loopback
//! device, which shows it without another machine:
//!
//! ```text
//! $ cargo run --release --example receive_packets -- --send --packets 200000
//! Simulated CUDA device (llvmpipe (LLVM 15.0.6, 256 bits)): mapped memory
//! receiving at 127.0.0.1:38731 by 2 threads
//!     1.0 s    52318 packets/s     75.3 MB/s  in 411 kernels
//!     2.0 s    53170 packets/s     76.6 MB/s  in 416 kernels
//!     3.0 s    52877 packets/s     76.1 MB/s  in 414 kernels
//! 200000 packets, 288000000 bytes: the GPU's sums are right
//! ```
//!
//! Packets that the system drops are not seen: its buffer for a socket has a size (`net.core.rmem_default`). Longer packets than
//! 2048 bytes are cut off.
#![expect(unsafe_code, reason = "launching a kernel is unsafe by nature")]

use std::error::Error;
use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaContext, CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use vkgdr::{AllocateOptions, Memory, MemoryKind, OpenFlags, Vkgdr};

type Failure = Box<dyn Error + Send + Sync>;

/// Packets of a batch, and the bytes of memory for each: those of an Ethernet frame's UDP payload, rounded up.
const BATCH: usize = 128;
const STRIDE: usize = 2048;
/// A batch that is not full is consumed after this time without a packet.
const TIMEOUT: Duration = Duration::from_millis(50);
/// Bytes of a packet of `--send`.
const SENT: usize = 1440;

/// Totals over all threads.
#[derive(Default)]
struct Totals {
    received: AtomicU64,
    bytes: AtomicU64,
    consumed: AtomicU64,
    kernels: AtomicU64,
    over: AtomicBool,
}

struct Options {
    port: u16,
    threads: u16,
    packets: u64,
    send: bool,
}

impl Options {
    fn parse() -> Result<Self, Failure> {
        let mut options = Self { port: 0, threads: 2, packets: u64::MAX, send: false };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut number = || {
                let text = arguments.next().ok_or_else(|| format!("{argument} needs a number"))?;
                text.parse::<u64>().map_err(|_| format!("{argument}: '{text}' is not a number"))
            };
            match argument.as_str() {
                "--port" => options.port = number()?.try_into().map_err(|_| "--port: at most 65535")?,
                "--threads" => options.threads = number()?.clamp(1, 64).try_into()?,
                "--packets" => options.packets = number()?,
                "--send" => options.send = true,
                _ => return Err(format!("unknown argument '{argument}': see the head of the source").into()),
            }
        }
        Ok(options)
    }
}

/// Packets in mapped memory, and what a kernel needs and answers beside them.
struct Batch {
    packets: Memory,
    lengths: Memory,
    sums: Memory,
    /// The packets in it, and the sum of their bytes as they arrived.
    count: usize,
    expected: u64,
}

impl Batch {
    fn new(gpu: &Vkgdr) -> vkgdr::Result<Self> {
        // Host memory where the GPU has no mapped memory, as without Vulkan.
        let mapped = AllocateOptions::new(MemoryKind::Mapped).fallback([MemoryKind::Host]);
        Ok(Self {
            packets: Memory::allocate_with(gpu, BATCH * STRIDE, mapped)?,
            lengths: Memory::allocate_with(gpu, BATCH * size_of::<u32>(), mapped)?,
            // The CPU reads the sums, which is fastest in cached system memory.
            sums: Memory::allocate(gpu, BATCH * size_of::<u64>(), MemoryKind::Host)?,
            count: 0,
            expected: 0,
        })
    }

    fn add(&mut self, packet: &[u8]) -> Result<(), Failure> {
        self.packets.write(self.count * STRIDE, packet)?;
        self.lengths.write(self.count * size_of::<u32>(), &[u32::try_from(packet.len())?])?;
        self.expected += packet.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        self.count += 1;
        Ok(())
    }

    /// Starts a kernel on the packets, which must not be written until the stream has finished.
    fn launch(&mut self, stream: &Arc<CudaStream>, kernel: &CudaFunction) -> Result<(), Failure> {
        self.packets.flush(..)?;
        self.lengths.flush(..)?;
        let (stride, count) = (u32::try_from(STRIDE)?, u32::try_from(self.count)?);
        let (packets, lengths) = (self.packets.view::<u8>(stream)?, self.lengths.view::<u32>(stream)?);
        let mut sums = self.sums.view_mut::<u64>(stream)?;
        let mut launch = stream.launch_builder(kernel);
        launch.arg(&packets).arg(&lengths).arg(&mut sums).arg(&stride).arg(&count);
        // SAFETY: the kernel takes these arguments, and stays within `count` packets, lengths and sums.
        unsafe { launch.launch(LaunchConfig::for_num_elems(count)) }?;
        Ok(())
    }

    /// Waits for the kernel, and compares its sums with those of the packets.
    fn finish(&mut self, stream: &CudaStream) -> Result<u64, Failure> {
        stream.synchronize()?;
        let mut sums = vec![0_u64; self.count];
        self.sums.invalidate(..)?;
        self.sums.read(0, &mut sums)?;
        let (sum, expected) = (sums.iter().sum::<u64>(), self.expected);
        if sum != expected {
            return Err(format!("the GPU's sum of {} packets is {sum}, not {expected}", self.count).into());
        }
        let count = self.count as u64;
        (self.count, self.expected) = (0, 0);
        Ok(count)
    }
}

/// Receives until the totals say that it is over.
fn receive(gpu: &Vkgdr, socket: &UdpSocket, kernel: &CudaFunction, most: u64, totals: &Totals) -> Result<(), Failure> {
    let context = CudaContext::new(usize::try_from(gpu.device())?)?;
    let stream = context.new_stream()?;
    let (mut filling, mut running) = (Batch::new(gpu)?, Batch::new(gpu)?);
    let mut packet = [0_u8; STRIDE];
    loop {
        let over = totals.over.load(Ordering::Relaxed);
        let arrived = if over { None } else { arrival(socket, &mut packet)? };
        if let Some(len) = arrived {
            filling.add(&packet[..len])?;
            totals.bytes.fetch_add(len as u64, Ordering::Relaxed);
            if totals.received.fetch_add(1, Ordering::Relaxed) + 1 >= most {
                totals.over.store(true, Ordering::Relaxed);
            }
        }
        if filling.count == BATCH || (arrived.is_none() && filling.count > 0) {
            totals.consumed.fetch_add(running.finish(&stream)?, Ordering::Relaxed);
            std::mem::swap(&mut filling, &mut running);
            running.launch(&stream, kernel)?;
            totals.kernels.fetch_add(1, Ordering::Relaxed);
        } else if over {
            totals.consumed.fetch_add(running.finish(&stream)?, Ordering::Relaxed);
            return Ok(());
        }
    }
}

/// The length of a packet; none if none arrives for a while.
fn arrival(socket: &UdpSocket, packet: &mut [u8]) -> io::Result<Option<usize>> {
    match socket.recv(packet) {
        Ok(len) => Ok(Some(len)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Sends packets until it is over.
fn send(to: SocketAddr, totals: &Totals) -> io::Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let (mut packet, mut lost) = ([0_u8; SENT], 0);
    for number in 0_u64.. {
        if totals.over.load(Ordering::Relaxed) {
            break;
        }
        packet[..8].copy_from_slice(&number.to_le_bytes());
        socket.send_to(&packet, to)?;
        // The loopback device does not slow a sender down: few packets are on their way, or the system drops them. One that
        // was dropped is waited for only a while.
        let deadline = Instant::now() + Duration::from_millis(100);
        let on_their_way = |lost| number.saturating_sub(totals.received.load(Ordering::Relaxed) + lost);
        while on_their_way(lost) > 64 && !totals.over.load(Ordering::Relaxed) {
            if Instant::now() > deadline {
                lost += on_their_way(lost);
                break;
            }
            thread::yield_now();
        }
    }
    Ok(())
}

/// Prints the rates each second until it is over.
fn show(totals: &Totals) {
    let begin = Instant::now();
    let (mut last, mut before) = (begin, [0_u64; 3]);
    while !totals.over.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(20));
        let seconds = last.elapsed().as_secs_f64();
        if seconds < 1.0 {
            continue;
        }
        let now = [&totals.received, &totals.bytes, &totals.kernels].map(|total| total.load(Ordering::Relaxed));
        let [packets, bytes, kernels] = [0, 1, 2].map(|index| now[index] - before[index]);
        #[expect(clippy::cast_precision_loss, reason = "rates to three digits")]
        let [packet_rate, byte_rate] = [packets as f64 / seconds, bytes as f64 / seconds / 1e6];
        let since = begin.elapsed().as_secs_f64();
        println!("{since:7.1} s {packet_rate:8.0} packets/s {byte_rate:8.1} MB/s  in {kernels} kernels");
        let _ = io::stdout().flush();
        (last, before) = (Instant::now(), now);
    }
}

fn run() -> Result<(), Failure> {
    let options = Options::parse()?;
    let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
    let context = CudaContext::new(0)?;
    let kernel = context.load_module(Ptx::from_src(include_str!("receive_packets.ptx")))?.load_function("add_up")?;
    let kind = if gpu.supports(MemoryKind::Mapped) { MemoryKind::Mapped } else { MemoryKind::Host };
    println!("{}: {kind} memory", gpu.name());
    let address = if options.send { "127.0.0.1" } else { "0.0.0.0" };
    let socket = UdpSocket::bind((address, options.port))?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    println!("receiving at {} by {} threads", socket.local_addr()?, options.threads);
    io::stdout().flush()?;

    let totals = Totals::default();
    let results: Vec<Result<(), Failure>> = thread::scope(|scope| {
        let receivers: Vec<_> = (0..options.threads)
            .map(|_| {
                scope.spawn(|| {
                    let result = receive(&gpu, &socket, &kernel, options.packets, &totals);
                    // One failure ends all threads.
                    totals.over.fetch_or(result.is_err(), Ordering::Relaxed);
                    result
                })
            })
            .collect();
        if options.send {
            let to = socket.local_addr();
            let totals = &totals;
            scope.spawn(move || send(to?, totals));
        }
        show(&totals);
        let joined =
            receivers.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into())));
        joined.collect()
    });
    results.into_iter().collect::<Result<Vec<()>, _>>()?;
    let [received, consumed, bytes] =
        [&totals.received, &totals.consumed, &totals.bytes].map(|total| total.load(Ordering::Relaxed));
    if received != consumed {
        return Err(format!("{received} packets arrived, and the GPU saw {consumed}").into());
    }
    println!("{received} packets, {bytes} bytes: the GPU's sums are right");
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("receive_packets: {error}");
            ExitCode::FAILURE
        }
    }
}
