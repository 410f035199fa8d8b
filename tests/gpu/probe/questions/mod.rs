//! The questions, in order: the most valuable first, since time may run out, and those that fill memory last. Each prints its
//! details and returns its answer in one line.
#![forbid(unsafe_code)]

mod behind_kernel;
mod contexts;
mod device;
mod dma_buf;
mod import;
mod limits;
mod ordering;
mod pointers;
mod registration;
mod returns;
mod sharing;
mod speed;

use std::time::{Duration, Instant};

use vkgdr::MemoryKind;

use crate::Probe;
use crate::cuda::Answer;

pub(crate) struct Question {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) ask: Ask,
    /// Variables that the process has from its start.
    pub(crate) environment: &'static [(&'static str, &'static str)],
}

/// A question without parts, or one whose parts are asked in a process each, so that a crash loses one answer.
pub(crate) enum Ask {
    Once(fn(&Probe) -> Answer<String>),
    Parts(&'static [&'static str], fn(&Probe, &str) -> Answer<String>),
}

impl Question {
    /// The parts; one without a name for a question that has none.
    pub(crate) fn parts(&self) -> &'static [&'static str] {
        match self.ask {
            Ask::Once(_) => &[""],
            Ask::Parts(parts, _) => parts,
        }
    }

    const fn within(self, environment: &'static [(&'static str, &'static str)]) -> Self {
        Self { environment, ..self }
    }

    pub(crate) fn ask(&self, probe: &Probe, part: &str) -> Answer<String> {
        match self.ask {
            Ask::Once(ask) => ask(probe),
            Ask::Parts(_, ask) => ask(probe, part),
        }
    }
}

const fn once(id: &'static str, title: &'static str, ask: fn(&Probe) -> Answer<String>) -> Question {
    Question { id, title, ask: Ask::Once(ask), environment: &[] }
}

const fn each(
    id: &'static str,
    title: &'static str,
    parts: &'static [&'static str],
    ask: fn(&Probe, &str) -> Answer<String>,
) -> Question {
    Question { id, title, ask: Ask::Parts(parts, ask), environment: &[] }
}

/// The answer that there are no more parts.
pub(crate) const NO_MORE: &str = "no more";
/// The prefix of a refusal that is right on this machine.
pub(crate) const SKIPPED: &str = "skipped: ";

const KINDS: &[&str] = &["mapped", "host", "device"];
const HOST_KINDS: &[&str] = &["mapped", "host"];

fn kind_named(name: &str) -> MemoryKind {
    MemoryKind::ALL.into_iter().find(|kind| kind.to_string() == name).unwrap_or_default()
}

/// The Vulkan loader finds no driver, so that the library calls `libEGL_nvidia.so.0` without it. Loaders before 1.3.207 know
/// the second variable only.
const WITHOUT_LOADER: &[(&str, &str)] = &[("VK_DRIVER_FILES", NO_FILE), ("VK_ICD_FILENAMES", NO_FILE)];
/// A file that cannot exist.
const NO_FILE: &str = "/dev/null/icd.json";

pub(crate) const ALL: [Question; 41] = [
    once("M10", "UUIDs of CUDA and Vulkan", device::uuids),
    once("D1", "Vulkan memory types and heaps", device::memory_types),
    each("M5", "import of each kind", KINDS, import::kinds),
    each("M5e", "import without the Vulkan loader", &["mapped"], import::kinds).within(WITHOUT_LOADER),
    each("M5t", "import of Vulkan memory type", import::TYPES, import::types),
    each("M1", "pointer attributes", pointers::MEMORY, pointers::attributes),
    each("H1", "system memory that both sides store into", sharing::HOST_MEMORY, sharing::host_memory),
    each("I6", "Vulkan's import of its own export", sharing::IMPORTS, sharing::vulkan_imports),
    each("M3", "cuMemHostRegister of host_ptr", registration::REGISTRATIONS, registration::register),
    each("B1", "the CPU's mapping of a dma-buf", dma_buf::EXPORTS, dma_buf::mapping),
    each("M7", "does freeing wait for a kernel", ordering::FREED, ordering::free_waits),
    each("C1", "attributes of its memory show whether a context exists", KINDS, contexts::witnesses),
    once("C2", "a primary context after a reset", contexts::reset),
    each("C3", "attributes of memory of a destroyed ordinary context", contexts::BELONGINGS, contexts::ordinary),
    once("S1", "CPU access to each kind", speed::cpu),
    once("M8a", "CPU store, flush, launch: seen by the device", ordering::launch),
    each(
        "M8b",
        "CPU stores seen by a running kernel, and its answers by the CPU",
        ordering::ROUND_TRIPS,
        ordering::round_trip,
    ),
    each("O2", "does it wait behind a running kernel", behind_kernel::CALLS, behind_kernel::waits),
    each("O3", "does the CPU see the bytes when the call returns", returns::CALLS, returns::has_written),
    each("I5", "import of a dedicated allocation", import::DEDICATED, import::dedicated),
    once("I4", "exporting imported memory again", import::again),
    once("D2", "device attributes", device::attributes),
    once("D3", "external memory features", device::external_features),
    once("D4", "the library's view of the kinds", device::kinds),
    each("M4", "cuMemcpyAsync from and to host_ptr", registration::HOST_MEMORY, registration::async_copy),
    each("I3", "does the device write what the host reads", HOST_KINDS, import::visibility),
    each("O1", "stream waits and writes on imported memory", HOST_KINDS, ordering::stream_values),
    once("M2a", "cuIpcGetMemHandle on imported memory", pointers::ipc),
    each("M2b", "dma-buf of imported memory", KINDS, pointers::dma_buf),
    once("M6", "sizes of imported memory", import::sizes),
    once("M9", "peer access for network cards", pointers::peer),
    once("I1", "a second, overlapping mapped buffer", import::overlap),
    once("I2", "exporting and importing the same memory twice", import::twice),
    once("S2", "copies by the device between kinds", speed::copies),
    once("S3", "time to open, allocate and free", speed::calls),
    each("M3b", "cuMemHostRegister of host_ptr", registration::MORE_REGISTRATIONS, registration::register),
    once("C4", "calls while the current context was reset", contexts::reset_while_current),
    once("L1", "largest mapped allocation", limits::largest_mapped),
    once("L2", "largest host allocation", limits::largest_host),
    once("L3", "mapped memory in all", limits::total_mapped),
    once("L4", "number of allocations", limits::count),
];

/// "yes", or "no" with the reason.
fn yes_no<T>(answer: &Answer<T>) -> String {
    match answer {
        Ok(_) => "yes".to_owned(),
        Err(refusal) => format!("no ({refusal})"),
    }
}

/// The result and duration of a call.
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let started = Instant::now();
    let result = work();
    (result, started.elapsed())
}

/// The shortest of several tries.
fn best_of(tries: usize, mut work: impl FnMut() -> Answer<()>) -> Answer<Duration> {
    let mut best = Duration::MAX;
    for _ in 0..tries {
        let (result, time) = timed(&mut work);
        result?;
        best = best.min(time);
    }
    Ok(best)
}

#[expect(clippy::cast_precision_loss, reason = "for people to read")]
fn rate(len: usize, time: Duration) -> String {
    format!("{:.2} GB/s", len as f64 / time.as_secs_f64() / 1e9)
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}
