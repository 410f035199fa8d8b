//! The results as a table and as JSON.

use std::fs;

use serde_json::{Value, json};
use vkgdr::{CopyRoutine, Vkgdr, in_units};

use super::Point;
use crate::info::is_simulated;
use crate::options::Bench;
use crate::screen::wrap;
use crate::text::{rate, time};

const SIMULATED: &str = "The driver is simulated: these numbers say nothing about a GPU.";

/// The percentiles that are shown.
const SHOWN: [(&str, f64); 3] = [("P0", 0.0), ("P50", 0.5), ("P99", 0.99)];

/// One run's results.
pub(super) struct Report {
    pub(super) bench: &'static str,
    pub(super) about: &'static str,
    gpu: String,
    pub(super) simulated: bool,
    cpu: String,
    routine: &'static str,
    /// Whether the points have a rate.
    copies: bool,
    pub(super) points: Vec<Point>,
    pub(super) skipped: Vec<String>,
}

impl Report {
    pub(super) fn new(gpu: &Vkgdr, bench: &Bench) -> Self {
        let about = match bench {
            Bench::Bw(_) => "Bandwidth of copies between private memory and GPU memory",
            Bench::Latency(_) => "Time of copies between private memory and GPU memory",
            Bench::Pingpong(_) => "Round trips with a running kernel, which answers in host memory",
            Bench::Alloc(_) => "Time of an allocation and its free",
        };
        Self {
            bench: bench.name(),
            about,
            gpu: gpu.name().to_owned(),
            simulated: is_simulated(gpu.name()),
            cpu: cpu().unwrap_or_else(|| "unknown CPU".to_owned()),
            routine: CopyRoutine::chosen().name(),
            copies: matches!(bench, Bench::Bw(_) | Bench::Latency(_)),
            points: Vec::new(),
            skipped: Vec::new(),
        }
    }

    pub(super) fn machine(&self) -> String {
        format!("{}, {}", self.gpu, self.cpu)
    }

    /// The lines above the table, and its first line.
    pub(super) fn heading(&self, width: usize) -> String {
        let mut lines = wrap(self.about, width, "", "  ");
        lines.extend(wrap(&format!("{}, {}, copy routine {}", self.gpu, self.cpu, self.routine), width, "", "  "));
        if self.simulated {
            lines.extend(wrap(SIMULATED, width, "", "  "));
        }
        lines.push(String::new());
        if width >= TABLE {
            let rate = if self.copies { "rate" } else { "" };
            lines.push(row(["kind", "operation", "size", "P0", "P50", "P99", rate]));
        }
        lines.join("\n")
    }

    /// A line of the table. Where that is too wide, the same as text.
    pub(super) fn line(&self, point: &Point, width: usize) -> String {
        let [p0, p50, p99] = SHOWN.map(|(_, part)| time(point.times.percentile(part)));
        let bytes = point.bytes.map_or_else(|| "-".to_owned(), |bytes| in_units(bytes as u64));
        let rate = point.rate.map_or_else(String::new, rate);
        let operation = match point.by {
            Some("engine") => format!("{} (engine)", point.operation),
            _ => point.operation.to_owned(),
        };
        if width >= TABLE {
            return row([&point.kind.to_string(), &operation, &bytes, &p0, &p50, &p99, &rate]);
        }
        let bytes = if point.bytes.is_some() { format!(" {bytes}") } else { String::new() };
        let rate = if rate.is_empty() { rate } else { format!(", {rate}") };
        let text = format!("{} {operation}{bytes}: P0 {p0}, P50 {p50}, P99 {p99}{rate}", point.kind);
        wrap(&text, width, "", "  ").join("\n")
    }

    pub(super) fn json(&self) -> Value {
        let point = |point: &Point| {
            let mut value = json!({
                "kind": point.kind.to_string(),
                "operation": point.operation,
                "by": point.by,
                "bytes": point.bytes,
                "threads": point.threads,
                "samples": point.times.len(),
                "batch": point.times.batch,
            });
            for (name, part) in SHOWN {
                value[format!("{}_ns", name.to_lowercase())] = rounded(point.times.percentile(part)).into();
            }
            value["bytes_per_s"] = point.rate.map(f64::round).into();
            value
        };
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "bench": self.bench,
            "gpu": self.gpu,
            "simulated": self.simulated,
            "note": self.simulated.then_some(SIMULATED),
            "cpu": self.cpu,
            "copy_routine": self.routine,
            "points": self.points.iter().map(point).collect::<Vec<_>>(),
            "skipped": self.skipped,
        })
    }
}

/// To a thousandth of a nanosecond.
fn rounded(nanoseconds: f64) -> f64 {
    (nanoseconds * 1e3).round() / 1e3
}

/// The columns of a [`row`].
const TABLE: usize = 77;

fn row([kind, operation, bytes, p0, p50, p99, rate]: [&str; 7]) -> String {
    let line = format!("{kind:<7} {operation:<15} {bytes:>10} {p0:>9} {p50:>9} {p99:>9} {rate:>12}");
    line.trim_end().to_owned()
}

fn cpu() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let (_, model) = text.lines().find(|line| line.starts_with("model name"))?.split_once(':')?;
    Some(model.trim().to_owned())
}
