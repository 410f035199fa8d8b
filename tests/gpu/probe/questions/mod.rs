//! The questions, in order. Each prints its details and returns its answer in one line.
#![forbid(unsafe_code)]

mod device;
mod import;
mod limits;
mod ordering;
mod pointers;
mod registration;
mod speed;

use std::time::{Duration, Instant};

use crate::Probe;
use crate::cuda::Answer;

pub(crate) struct Question {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) ask: fn(&Probe) -> Answer<String>,
}

const fn question(id: &'static str, title: &'static str, ask: fn(&Probe) -> Answer<String>) -> Question {
    Question { id, title, ask }
}

pub(crate) const ALL: [Question; 27] = [
    question("M1", "pointer attributes of imported memory", pointers::attributes),
    question("M2a", "cuIpcGetMemHandle on imported memory", pointers::ipc),
    question("M2b", "dma-buf of imported memory", pointers::dma_buf),
    question("M3", "cuMemHostRegister of host_ptr", registration::register),
    question("M4", "cuMemcpyAsync from and to host_ptr", registration::async_copy),
    question("M5", "import of each kind and of each Vulkan memory type", import::kinds),
    question("M6", "sizes of imported memory", import::sizes),
    question("M7", "does cuMemFree of imported memory wait for the device", ordering::free_waits),
    question("M8a", "CPU store, flush, launch: seen by the device", ordering::launch),
    question("M8b", "CPU stores seen by a running kernel, and its answers by the CPU", ordering::round_trip),
    question("M9", "peer access for network cards", pointers::peer),
    question("M10", "UUIDs of CUDA and Vulkan", device::uuids),
    question("D1", "Vulkan memory types and heaps", device::memory_types),
    question("D2", "device attributes", device::attributes),
    question("D3", "external memory features", device::external_features),
    question("D4", "the library's view of the kinds", device::kinds),
    question("I1", "a second, overlapping mapped buffer", import::overlap),
    question("I2", "exporting and importing the same memory twice", import::twice),
    question("I3", "does the device write what the host reads, per kind", import::visibility),
    question("O1", "stream waits and writes on imported memory", ordering::stream_values),
    question("S1", "CPU access to each kind", speed::cpu),
    question("S2", "copies by the device between kinds", speed::copies),
    question("S3", "time to open, allocate and free", speed::calls),
    question("L1", "largest mapped allocation", limits::largest_mapped),
    question("L2", "largest host allocation", limits::largest_host),
    question("L3", "mapped memory in all", limits::total_mapped),
    question("L4", "number of allocations", limits::count),
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
