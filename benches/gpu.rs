//! Comparison with the alternatives on a GPU: CUDA's copies and `memcpy` over the mapping, CUDA's allocators, and a launch for each
//! message to a kernel. `vkgdr bench` measures round trips with a running kernel, and bandwidths by several threads.
//!
//! The bench also runs on the simulated driver, to check that it works: times and ratios are meaningless there, and no goal is
//! judged. It takes about `VKGDR_BENCH_SECONDS` seconds, 90 by default.
#![expect(unsafe_code, reason = "calls the CUDA driver and libc for comparison")]

use std::cell::OnceCell;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{ptr, slice};

use vkgdr::cudarc::driver::sys::{self, CUdeviceptr, CUmemPool_attribute};
use vkgdr::cudarc::driver::{CudaContext, CudaFunction, CudaStream, DriverError, LaunchConfig, PushKernelArg, result};
use vkgdr::cudarc::nvrtc::Ptx;
use vkgdr::ring::Ring;
use vkgdr::{Error, Memory, MemoryKind, OpenFlags, Pool, PoolOptions, Vkgdr};

use crate::contest::{measure, median, pairs, way};
use crate::report::{Goal, Report, time};
use crate::{Result, must, size};

/// The environment of every part.
struct Bench {
    gpu: Vkgdr,
    context: Arc<CudaContext>,
    report: Report,
}

type Part = fn(&mut Bench, Duration) -> Result;

/// The parts, with their shares of the time in percent. The one with a running kernel comes last: one that hangs costs no results.
const PARTS: [(&str, Part, u32); 3] = [("copies", copies, 70), ("allocation", allocation, 20), ("ring", ring, 10)];

pub(crate) fn run() -> Result {
    let context = CudaContext::new(0)?;
    let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
    let mut report = Report::new("gpu", gpu.name(), true)?;
    if let Ok(version) = vkgdr::driver_version() {
        report.fact("CUDA", format!("{}.{}", version / 1000, version % 1000 / 10));
    }
    let seconds = std::env::var("VKGDR_BENCH_SECONDS").map_or(Ok(90.0), |text| text.parse())?;
    let limit = Duration::try_from_secs_f64(seconds)?;
    let mut bench = Bench { gpu, context, report };
    let (start, mut failed) = (Instant::now(), Vec::new());
    for (name, part, percent) in PARTS {
        println!("[{:3.0} s] {name}", start.elapsed().as_secs_f64());
        // A panic, such as one of `must`, ends this part only.
        let outcome = catch_unwind(AssertUnwindSafe(|| part(&mut bench, limit * percent / 100)));
        if let Err(error) = outcome.unwrap_or_else(|_| Err("it panicked, as printed above".into())) {
            bench.report.skip(name, &error);
            failed.push(format!("{name}: {error}"));
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ").into()) }
}

/// Allocation from a pool against CUDA's two allocators. An operation is one allocation and one free.
fn allocation(bench: &mut Bench, limit: Duration) -> Result {
    let Bench { gpu, context, report } = bench;
    let pool = Pool::new(gpu, PoolOptions::new(MemoryKind::Mapped))?;
    let stream = context.new_stream()?;
    let asynchronous = prepare_asynchronous(context, &stream);
    for len in [256, 4 << 10, 64 << 10, 1 << 20] {
        let mut ways = vec![
            way(|| drop(black_box(must(pool.allocate(black_box(len)))))),
            way(|| must(black_box(must(Memory::allocate(gpu, len, MemoryKind::Mapped))).free())),
            way(|| drop(black_box(must(Buffer::new(black_box(len)))))),
        ];
        if asynchronous.is_ok() {
            ways.push(way(|| must(in_stream(black_box(len), &stream))));
        }
        let times = measure(limit / 4, &mut ways);
        must(stream.synchronize());
        let (name, sync) = (size(len), "cuMemAlloc + cuMemFree");
        let pooled = format!("pooled allocate + free, {name}");
        report.add(&pooled, sync, &times.pairs(0, 2), Goal::Ratio(0.01));
        match &asynchronous {
            Ok(()) => {
                report.add(&pooled, "cuMemAllocAsync + cuMemFreeAsync", &times.pairs(0, 3), Goal::Ratio(0.2));
            }
            Err(DriverError(code)) => report.skip(&pooled, &format!("cuMemAllocAsync: {code:?}")),
        }
        report.add(format!("Memory::allocate + free, {name}"), sync, &times.pairs(1, 2), Goal::None);
    }
    Ok(())
}

fn in_stream(len: usize, stream: &CudaStream) -> Result<(), DriverError> {
    // SAFETY: the stream is live.
    let pointer = black_box(unsafe { result::malloc_async(stream.cu_stream(), len) }?);
    // SAFETY: just allocated, and not used.
    unsafe { result::free_async(pointer, stream.cu_stream()) }
}

/// The driver's pool in its best configuration: freed memory is kept instead of being released at each synchronisation.
fn prepare_asynchronous(context: &CudaContext, stream: &CudaStream) -> Result<(), DriverError> {
    in_stream(4096, stream)?;
    let mut pool = ptr::null_mut();
    // SAFETY: `pool` is live, and the device is the context's.
    unsafe { sys::cuDeviceGetDefaultMemPool(&raw mut pool, context.cu_device()) }.result()?;
    let mut threshold = u64::MAX;
    let attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    // SAFETY: the attribute is a `u64`, and `threshold` is live.
    unsafe { sys::cuMemPoolSetAttribute(pool, attribute, (&raw mut threshold).cast()) }.result()?;
    stream.synchronize()
}

/// Memory of `cuMemAlloc`. The context must be current.
struct Buffer(CUdeviceptr);

impl Buffer {
    fn new(len: usize) -> Result<Self, DriverError> {
        // SAFETY: the context is current.
        Ok(Self(unsafe { result::malloc_sync(len) }?))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`, and nothing uses it any more.
        if let Err(error) = unsafe { result::free_sync(self.0) } {
            println!("cuMemFree: {error}");
        }
    }
}

/// The function that copies.
enum How {
    Ours(Memory),
    /// libc's memcpy from or to this host address; the memory is kept elsewhere.
    Plain(*mut u8),
    Synchronous,
    Asynchronous(Arc<CudaStream>),
}

/// A way to copy.
struct Copier {
    name: &'static str,
    how: How,
    /// The private side, and whether it is pinned.
    private: *mut u8,
    pinned: bool,
    device: CUdeviceptr,
}

/// Copies between private memory and GPU memory, from one byte to 64 MiB, in both directions. Private memory is pageable or
/// pinned: ours is compared with the best peer, and a copy of pageable memory never with one of pinned memory.
///
/// Only reads and `cuMemcpyAsync` + wait end when the bytes have arrived. A write by the CPU ends when it has left the CPU:
/// `memcpy` into the mapping ends with a store fence, which `Memory::write` includes. A small `cuMemcpy` from pageable memory
/// may return once the driver has staged the bytes (CUDA driver API, "API synchronization behavior").
///
/// The copy engine is prepared and its thresholds are measured first, as a program does for long copies.
fn copies(bench: &mut Bench, limit: Duration) -> Result {
    const SIZES: [usize; 10] = [1, 16, 64, 256, 4 << 10, 16 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20];
    const MOST: usize = 64 << 20;
    bench.gpu.prepare_copies()?;
    let pattern: Vec<u8> = (0..MOST).map(|at| (at * 31 + at / 256 + 7).to_le_bytes()[0]).collect();
    let mut pageable = pattern.clone();
    // SAFETY: the memory is written before it is read. It lives as long as the process.
    let pinned: *mut u8 = unsafe { result::malloc_host(MOST, sys::CU_MEMHOSTALLOC_PORTABLE) }?.cast();
    // SAFETY: the memory has that many bytes and no other code uses it; the pattern is elsewhere.
    unsafe { pinned.copy_from_nonoverlapping(pattern.as_ptr(), MOST) };
    let (buffer, stream) = (Buffer::new(MOST)?, bench.context.new_stream()?);
    let mapped = Memory::allocate(&bench.gpu, MOST, MemoryKind::Mapped)?;
    let mapping = mapped.host_ptr().ok_or("mapped memory has no host view")?.as_ptr();
    let mut ways = Vec::new();
    for (kind, private) in [("pageable", pageable.as_mut_ptr()), ("pinned", pinned)] {
        let mut add = |name, how, device| ways.push(Copier { name, how, private, pinned: kind == "pinned", device });
        add("Memory, mapped", How::Ours(mapped.slice(..)?), mapped.device_ptr());
        add("libc memcpy over the mapping", How::Plain(mapping), mapped.device_ptr());
        add("cuMemcpy", How::Synchronous, buffer.0);
        add("cuMemcpyAsync + wait", How::Asynchronous(stream.clone()), buffer.0);
    }
    for (verb, what, writes) in [("write", "write to GPU memory", true), ("read", "read from GPU memory", false)] {
        for len in SIZES {
            for way in &ways {
                way.check(&bench.context, writes, &pattern[..len])?;
            }
            let mut all: Vec<_> = ways.iter().map(|copier| way(move || copier.copy(writes, black_box(len)))).collect();
            let times = measure(limit / u32::try_from(2 * SIZES.len())?, &mut all);
            let kind = |way: usize| if ways[way].pinned { "pinned" } else { "pageable" };
            let is_ours = |way: &usize| matches!(ways[*way].how, How::Ours(_));
            for ours in (0..ways.len()).filter(is_ours) {
                let peers = (0..ways.len()).filter(|way| !is_ours(way) && (ways[ours].pinned || !ways[*way].pinned));
                let best = times.best(peers).ok_or("no peer")?;
                let peer = format!("the best of all: {}, {}", ways[best].name, kind(best));
                let (compared, kind) = (times.pairs(ours, best), kind(ours));
                let ratio = compared.compared(|ours, peer| ours / peer);
                println!("    {verb}, {kind} {}: {}, {peer} ratio {ratio:.3}", size(len), time(median(times.of(ours))));
                bench.report.add(format!("{what}, {kind}, {}", size(len)), &peer, &compared, Goal::Ratio(1.05));
            }
            let goal = if writes { 0.1 } else { 0.2 };
            let is_synchronous = |way: &usize| matches!(ways[*way].how, How::Synchronous);
            if len <= if writes { 4096 } else { 64 }
                && let Some(peer) = times.best((0..ways.len()).filter(is_synchronous))
            {
                let what = format!("small {what}, {}", size(len));
                bench.report.add(what, "cuMemcpy", &times.pairs(0, peer), Goal::Ratio(goal));
            }
        }
    }
    Ok(())
}

impl Copier {
    /// The first `len` private bytes. Ways are used one at a time.
    #[expect(clippy::mut_from_ref, reason = "the memory is owned elsewhere")]
    fn private(&self, len: usize) -> &mut [u8] {
        // SAFETY: the private memory is longer than that, initialised, and outlives the ways.
        unsafe { slice::from_raw_parts_mut(black_box(self.private), len) }
    }

    #[inline]
    fn copy(&self, writes: bool, len: usize) {
        let private = self.private(len);
        match (&self.how, writes) {
            (How::Ours(memory), true) => must(memory.write(0, &*private)),
            (How::Ours(memory), false) => must(memory.read(0, private)),
            (How::Plain(mapping), true) => {
                // SAFETY: both sides have `len` bytes, and no other code uses them.
                unsafe { libc::memcpy(mapping.cast(), private.as_ptr().cast(), len) };
                store_fence();
            }
            (How::Plain(mapping), false) => {
                // SAFETY: as above.
                black_box(unsafe { libc::memcpy(private.as_mut_ptr().cast(), black_box(mapping.cast()), len) });
            }
            // SAFETY: the device's memory has `len` bytes, and its context is current, here and below.
            (How::Synchronous, true) => must(unsafe { result::memcpy_htod_sync(self.device, private) }),
            // SAFETY: as above.
            (How::Synchronous, false) => must(unsafe { result::memcpy_dtoh_sync(private, self.device) }),
            (How::Asynchronous(stream), _) => {
                let stream = stream.cu_stream();
                if writes {
                    // SAFETY: as above; the bytes are not used before the copy has been waited for.
                    must(unsafe { result::memcpy_htod_async(self.device, private, stream) });
                } else {
                    // SAFETY: as above.
                    must(unsafe { result::memcpy_dtoh_async(private, self.device, stream) });
                }
                // SAFETY: the stream is live.
                must(unsafe { result::stream::synchronize(stream) });
            }
        }
    }

    /// Checks that the way copies correctly. Afterwards both sides contain the pattern.
    fn check(&self, context: &CudaContext, writes: bool, pattern: &[u8]) -> Result {
        let mut found = vec![0; pattern.len()];
        let before: &[u8] = if writes { &found } else { pattern };
        // SAFETY: the device's memory has as many bytes, and its context is current.
        unsafe { result::memcpy_htod_sync(self.device, before) }?;
        // A small copy from pageable memory may return before it has finished.
        context.synchronize()?;
        if writes {
            self.copy(writes, pattern.len());
            context.synchronize()?;
            // SAFETY: as above.
            unsafe { result::memcpy_dtoh_sync(&mut found, self.device) }?;
        } else {
            self.private(pattern.len()).fill(0);
            self.copy(writes, pattern.len());
            found.copy_from_slice(self.private(pattern.len()));
            self.private(pattern.len()).copy_from_slice(pattern);
        }
        if found == pattern { Ok(()) } else { Err(format!("{}, {}: wrong bytes", self.name, size(found.len())).into()) }
    }
}

/// Orders the CPU's stores, including those in write-combining buffers.
fn store_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 CPU has SSE.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// Messages to a running kernel through a ring, beside a kernel launch for each.
fn ring(bench: &mut Bench, limit: Duration) -> Result {
    const RING: usize = 1 << 16;
    /// The longest wait for the kernel: longer than any on a machine that is not too busy.
    const TIMEOUT: Duration = Duration::from_secs(2);
    const WARP: LaunchConfig = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 };
    let load = |text: &str, name| -> Result<CudaFunction> {
        Ok(bench.context.load_module(Ptx::from_src(text))?.load_function(name)?)
    };
    let echo = load(include_str!("../examples/ring_echo.ptx"), "echo")?;
    let answer = load(include_str!("../cli/src/bench/ping_pong.ptx"), "answer")?;
    let stream = bench.context.new_stream()?;
    // All memory before a ring's kernel runs: an allocation may wait for it.
    let flag = Memory::allocate(&bench.gpu, 4096, MemoryKind::Mapped)?;
    let reply = Memory::allocate(&bench.gpu, 4096, MemoryKind::Host)?;
    let launched = || {
        must(flag.write(0, &[1_u32]));
        must(flag.flush(..4));
        let (flag, reply, rounds, timeout) = (flag.device_ptr(), reply.device_ptr(), 1_u32, u64::MAX);
        let mut launch = stream.launch_builder(&answer);
        launch.arg(&flag).arg(&reply).arg(&rounds).arg(&timeout);
        // SAFETY: the kernel takes these arguments, uses one word of each memory, and is waited for.
        must(unsafe { launch.launch(WARP) });
        must(stream.synchronize());
    };
    let rings = [(); 2].map(|()| Ring::new(&bench.gpu, RING, RING));
    let [closed, ring] = rings;
    let (closed, ring, rings_stream) = (closed?, ring?, bench.context.new_stream()?);
    ring.bind_stream(&rings_stream)?;
    let start = |ring: &Ring| -> Result {
        let address = ring.device_ptr();
        let mut launch = rings_stream.launch_builder(&echo);
        launch.arg(&address);
        // SAFETY: the kernel takes the address of a ring, whose drop ends the kernel.
        unsafe { launch.launch(WARP) }?;
        Ok(())
    };
    // Both kernels are loaded by a first launch before one runs for long: loading may wait for running kernels, and with lazy
    // loading (`CUDA_MODULE_LOADING`) happens then.
    closed.close()?;
    start(&closed)?;
    rings_stream.synchronize()?;
    launched();
    start(&ring)?;
    // After the first error, nothing is done any more.
    let failed = OnceCell::new();
    let round_trip = || {
        if failed.get().is_none() {
            let answered = ring.push(&[7; 64], TIMEOUT).and_then(|()| ring.pop_into(&mut [0; 64], TIMEOUT));
            answered.map_or_else(|error| failed.set(error).unwrap_or_default(), drop);
        }
    };
    let times = pairs(limit, round_trip, launched);
    let what = "round trip of 64 B through a ring";
    match failed.into_inner() {
        None => bench.report.add(what, "a launch that is waited for", &times, Goal::Ratio(0.75)),
        // No failure on a busy machine.
        Some(error @ Error::RingTimeout { .. }) => bench.report.skip(what, &error),
        Some(error) => return Err(error.into()),
    }
    Ok(())
}
