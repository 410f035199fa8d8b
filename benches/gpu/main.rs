//! Comparison with the alternatives on a GPU: CUDA's copies and `memcpy` over the mapping, CUDA's allocators, and
//! communication with a running kernel through pinned memory and by launches.
//!
//! Each measurement alternates with its peers in one run. The bench also runs on the simulated driver, to check that it
//! works: times and ratios are meaningless there, and no goal is judged.
//!
//! It takes about `VKGDR_BENCH_SECONDS` seconds, 90 by default. The results so far are written to `gpu.json` after each
//! part and each size of the copies (see `report`).

mod allocation;
mod bandwidth;
mod contest;
mod copies;
mod memory;
#[path = "../pairs/mod.rs"]
#[allow(dead_code, reason = "other benches use differences")]
mod pairs;
mod ping_pong;
#[path = "../report/mod.rs"]
mod report;
mod ring;

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use report::Report;
use vkgdr::cudarc::driver::CudaContext;
use vkgdr::{CopyRoutine, MemoryKind, OpenFlags, Vkgdr};

type Result<T = (), E = Box<dyn Error>> = std::result::Result<T, E>;

/// The environment of every part.
struct Bench {
    gpu: Vkgdr,
    context: Arc<CudaContext>,
    report: Report,
}

type Part = fn(&mut Bench, Duration) -> Result;

/// The parts, with their shares of the time in percent. The bandwidth of the CPU's reads comes first, since `copies` prepares the
/// copy engine, which then makes long reads. The parts that wait for a running kernel come last: one that hangs costs no
/// results.
const PARTS: [(&str, Part, u32); 5] = [
    ("read bandwidth", bandwidth::measure, 10),
    ("copies", copies::measure, 55),
    ("allocation", allocation::measure, 15),
    ("ping-pong with a running kernel", ping_pong::measure, 10),
    ("ring", ring::measure, 10),
];

fn main() -> Result {
    // `cargo test --benches` and `--list` measure nothing.
    let arguments: Vec<_> = std::env::args().collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    if !has("--bench") || has("--test") || has("--list") {
        return Ok(());
    }
    let context = CudaContext::new(0)?;
    let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
    let limit = limit()?;
    let mut bench = Bench { gpu, context, report: Report::of_gpu() };
    bench.note_facts();
    let start = Instant::now();
    let mut failed = Vec::new();
    for (name, part, percent) in PARTS {
        println!("[{:3.0} s] {name}", start.elapsed().as_secs_f64());
        // A panic, such as one of `must`, ends this part only.
        let outcome = catch_unwind(AssertUnwindSafe(|| part(&mut bench, limit * percent / 100)));
        if let Err(error) = outcome.unwrap_or_else(|_| Err("it panicked, as printed above".into())) {
            bench.report.skip(name, error.to_string());
            failed.push(format!("{name}: {error}"));
        }
        bench.report.save("gpu", bench.gpu.name());
    }
    bench.report.publish("gpu", bench.gpu.name());
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ").into()) }
}

fn limit() -> Result<Duration> {
    let default = if pairs::is_quick() { 15.0 } else { 90.0 };
    let seconds = std::env::var("VKGDR_BENCH_SECONDS").map_or(Ok(default), |text| text.parse())?;
    Ok(Duration::try_from_secs_f64(seconds)?)
}

impl Bench {
    fn note_facts(&mut self) {
        self.report.fact("copy routine", CopyRoutine::chosen());
        if let Ok(version) = vkgdr::driver_version() {
            self.report.fact("CUDA", format!("{}.{}", version / 1000, version % 1000 / 10));
        }
        if let Ok(id) = self.gpu.pci_bus_id() {
            self.report.fact("PCI bus id", id);
        }
        for kind in [MemoryKind::Mapped, MemoryKind::Host] {
            if let Ok(info) = self.gpu.memory_type_of(kind) {
                let name = if kind == MemoryKind::Mapped { "mapped memory" } else { "host memory" };
                self.report.fact(name, format!("{info:?}"));
            }
        }
    }
}

/// Stops at the first error: a measurement of failures means nothing.
fn must<T, E: std::fmt::Display>(result: std::result::Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}

/// Formats a number of bytes in a suitable unit.
fn size(bytes: usize) -> String {
    match bytes {
        _ if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}
