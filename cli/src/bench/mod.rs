//! `vkgdr bench`: the speed of copies, of round trips with a running kernel, and of allocation.
//!
//! | module | does |
//! |---|---|
//! | `timing` | times of an operation, and their percentiles |
//! | `copies`, `ping_pong` | the measurements, but that of allocation |
//! | `report` | the table and JSON |
//! | `plot` | the plot |

mod copies;
mod ping_pong;
mod plot;
mod report;
mod timing;

use std::path::PathBuf;

use serde_json::json;
use vkgdr::{Memory, MemoryKind, OpenFlags, Pool, PoolOptions, Vkgdr, available_memory, in_units};

use crate::info::is_simulated;
use crate::options::Bench;
use crate::screen::{Screen, is_broken_pipe};
use crate::{Failure, Result, SUCCESS};
use report::Report;
use timing::Times;

/// A measured point.
#[derive(Debug)]
struct Point {
    kind: MemoryKind,
    /// The operation: `write` or `read`, `round trip`, `memory` or `pool`.
    operation: &'static str,
    /// The copying side: `cpu` or `engine`; none if nothing is copied.
    by: Option<&'static str>,
    threads: usize,
    /// None for a round trip, which has no size.
    bytes: Option<usize>,
    times: Times,
    /// Bytes per second, if something is copied.
    rate: Option<f64>,
}

impl Point {
    /// The name of the curve that the point belongs to.
    fn series(&self) -> String {
        let by = if self.by == Some("engine") { ", copy engine" } else { "" };
        format!("{} {}{by}", self.kind, self.operation)
    }
}

/// What a measurement needs.
struct Run<'a> {
    gpu: &'a Vkgdr,
    report: &'a mut Report,
    screen: &'a mut Screen,
    json: bool,
}

impl Run<'_> {
    /// Adds a point to the report, and to the table on the terminal.
    fn add(&mut self, point: Point) -> Result {
        let line = self.report.line(&point, self.screen.width());
        self.report.points.push(point);
        if self.json { Ok(()) } else { self.screen.print(&line) }
    }

    /// Notes in the report that something is not measured, and why. Returns the line.
    fn note_skipped(&mut self, what: &str, reason: &str) -> String {
        let line = format!("{what} is not measured: {reason}");
        self.report.skipped.push(line.clone());
        line
    }

    /// Says that something is not measured, and why.
    fn skip(&mut self, what: &str, reason: &str) -> Result {
        let line = self.note_skipped(what, reason);
        let lines = crate::screen::wrap(&line, self.screen.width(), "", "  ");
        if self.json { Ok(()) } else { self.screen.print(&lines.join("\n")) }
    }

    /// Measures each kind of memory of which there is room: a kind that cannot be measured keeps no other from that. Returns the
    /// first failure.
    fn for_each_kind(
        &mut self,
        kinds: &[MemoryKind],
        bytes: usize,
        private: u64,
        mut measure: impl FnMut(&mut Self, MemoryKind) -> Result,
    ) -> Result {
        let mut result = Ok(());
        for kind in kinds {
            match self.gpu.memory_info(*kind) {
                Err(error) => self.skip(&format!("{kind} memory"), &error.to_string())?,
                Ok(info) => {
                    let room = check_room(self.gpu, *kind, info.available, bytes, private);
                    match room.and_then(|()| measure(self, *kind)) {
                        Err(error) if is_broken_pipe(&*error) => return Err(error),
                        Err(error) => {
                            self.note_skipped(&format!("{kind} memory"), &error.to_string().replace("\n ", ";"));
                            result = result.and(Err(error));
                        }
                        Ok(()) => {}
                    }
                }
            }
        }
        result
    }
}

pub(crate) fn run(screen: &mut Screen, bench: &Bench, json: bool) -> Result<u8> {
    if let Some(file) = bench.plot() {
        plot::check_writable(file)?;
    }
    let (from, to) = bench.sizes();
    let sizes = between(from, to)?;
    let kinds = distinct(&bench.common().kinds);
    let gpu = match Vkgdr::open_primary_context(bench.common().device, OpenFlags::empty()) {
        Ok(gpu) => gpu,
        Err(error) => {
            if json {
                screen.print_json(&json!({ "error": error.to_string() }))?;
            }
            return Err(Failure::boxed(error.to_string(), "`vkgdr doctor` looks for the reason"));
        }
    };
    let mut report = Report::new(&gpu, bench);
    if !json {
        screen.print(&report.heading(screen.width()))?;
    }
    let mut run = Run { gpu: &gpu, report: &mut report, screen, json };
    let measured = match bench {
        Bench::Bw(options) | Bench::Latency(options) => copies::measure(&mut run, options, &sizes, &kinds),
        Bench::Pingpong(_) => ping_pong::measure(&mut run, &kinds),
        Bench::Alloc(_) => allocation(&mut run, &sizes, &kinds),
    };
    // What was measured is printed and drawn, also if a kind could not be. The first failure is reported.
    let printed = if json { screen.print_json(&report.json()) } else { Ok(()) };
    if report.points.is_empty() {
        measured.and(printed)?;
        let remedy = if report.skipped.is_empty() { "`vkgdr doctor` looks for the reason" } else { "see the reasons" };
        return Err(Failure::boxed("nothing could be measured", remedy));
    }
    // The measurement ends early when the reader of the table closes the pipe. That is no failure, but a plot would be
    // incomplete without saying so.
    let cut_short = measured.as_ref().is_err_and(|error| is_broken_pipe(&**error));
    let draw = |file: &PathBuf| plot::save(file, &plot::draw(&report)?);
    let drawn = bench.plot().filter(|_| !cut_short).map_or(Ok(()), draw);
    measured.and(printed).and(drawn)?;
    Ok(SUCCESS)
}

/// The kinds without repetitions.
fn distinct(kinds: &[MemoryKind]) -> Vec<MemoryKind> {
    let mut found = Vec::new();
    kinds.iter().for_each(|kind| found.extend((!found.contains(kind)).then_some(*kind)));
    found
}

/// Sizes from one to another, each four times the one before.
fn between(from: usize, to: usize) -> Result<Vec<usize>> {
    if from > to {
        let remedy = "--from is the smallest size, --to the largest";
        return Err(Failure::usage(format!("{} is more than {}", in_units(from as u64), in_units(to as u64)), remedy));
    }
    let mut sizes: Vec<_> =
        std::iter::successors(Some(from), |size| size.checked_mul(4)).take_while(|size| *size < to).collect();
    sizes.push(to);
    Ok(sizes)
}

/// Fails unless that much memory of a kind, and as much private memory `private` times, is free. Drivers may take long
/// to refuse it, and Linux may end the process instead.
fn check_room(gpu: &Vkgdr, kind: MemoryKind, available: u64, bytes: usize, private: u64) -> Result {
    let asked = bytes as u64;
    // Each thread has as many bytes of its own.
    let choose = if private > 0 { "choose a smaller --to, or fewer --threads" } else { "choose a smaller --to" };
    if asked > available {
        let problem = format!("{} of {kind} memory is needed, {} is free", in_units(asked), in_units(available));
        return Err(Failure::boxed(problem, choose));
    }
    let in_system = u64::from(kind == MemoryKind::Host || is_simulated(gpu.name()));
    let needed = asked.saturating_mul(private + in_system);
    let free = available_memory();
    if needed > free {
        let problem = format!("{} of the system's memory is needed, {} is free", in_units(needed), in_units(free));
        return Err(Failure::boxed(problem, choose));
    }
    Ok(())
}

/// Pairs of an allocation and its free: of memory by itself, and from a pool.
fn allocation(run: &mut Run<'_>, sizes: &[usize], kinds: &[MemoryKind]) -> Result {
    let largest = sizes.iter().copied().max().unwrap_or(0);
    run.for_each_kind(kinds, largest, 0, |run, kind| {
        let gpu = run.gpu;
        /// Longer memory is an allocation of its own.
        const BLOCK: usize = 32 << 20;
        let pool = Pool::new(gpu, PoolOptions::new(kind).block_len(BLOCK).largest_chunk(BLOCK))?;
        let mut measure = |operation, len: usize, pair: &mut dyn FnMut() -> vkgdr::Result<()>| {
            let batch = timing::batch(&mut *pair)?;
            let times = timing::measure(batch, pair)?;
            run.add(Point { kind, operation, by: None, threads: 1, bytes: Some(len), times, rate: None })
        };
        for len in sizes {
            measure("memory", *len, &mut || Memory::allocate(gpu, *len, kind)?.free())?;
        }
        for len in sizes.iter().filter(|len| **len <= BLOCK) {
            measure("pool", *len, &mut || pool.allocate(*len)?.free())?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_go_up_to_the_last_by_four() {
        assert_eq!(between(1, 100).ok(), Some(vec![1, 4, 16, 64, 100]));
        assert_eq!(between(64, 64).ok(), Some(vec![64]));
        assert_eq!(between(1 << 10, 4 << 10).ok(), Some(vec![1 << 10, 4 << 10]));
        let all = between(1, usize::MAX).unwrap_or_default();
        assert_eq!((all.len(), all.last()), (33, Some(&usize::MAX)));
        assert!(between(2, 1).is_err());
    }
}
