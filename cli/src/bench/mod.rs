//! `vkgdr bench`: the speed of copies, of round trips with a running kernel, and of allocation.
//!
//! | module | does |
//! |---|---|
//! | `sizes` | the sizes to measure, and whether they fit |
//! | `timing` | times of an operation, and their percentiles |
//! | `copies`, `ping_pong`, `allocation` | the measurements |
//! | `report` | the table and JSON |
//! | `axis`, `chart` | scales, and the plot on a terminal |
//! | `figure`, `svg`, `png` | the plot as a file |

mod allocation;
mod axis;
mod chart;
mod copies;
mod figure;
mod ping_pong;
mod png;
mod report;
mod sizes;
mod svg;
mod timing;

use std::io::{IsTerminal, Write, stderr};

use vkgdr::{MemoryKind, OpenFlags, Vkgdr};

use crate::options::{Bench, Plot};
use crate::screen::{Screen, is_broken_pipe};
use crate::{Failure, Result, SUCCESS};
use figure::Figure;
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
    progress: Progress,
    json: bool,
}

impl Run<'_> {
    /// Adds a point to the report, and to the table on the terminal.
    fn add(&mut self, point: Point) -> Result {
        self.progress.clear();
        let line = self.report.line(&point, self.screen.width());
        self.report.points.push(point);
        if self.json { Ok(()) } else { self.screen.print(&line) }
    }

    /// Says that something is not measured, and why.
    fn skip(&mut self, what: &str, reason: &str) -> Result {
        self.progress.clear();
        let line = format!("{what} is not measured: {reason}");
        self.report.skipped.push(line.clone());
        let lines = crate::screen::wrap(&line, self.screen.width(), "", "  ");
        if self.json { Ok(()) } else { self.screen.print(&lines.join("\n")) }
    }
}

/// A line on a terminal about what is being measured.
struct Progress {
    shown: bool,
    /// The columns of the terminal, and of the line that is shown.
    columns: usize,
    width: usize,
}

impl Progress {
    fn new(columns: usize) -> Self {
        Self { shown: stderr().is_terminal(), columns, width: 0 }
    }

    fn show(&mut self, text: &str) {
        if self.shown {
            self.clear();
            // A line that the terminal wraps could not be cleared. ASCII, one byte a column.
            let text = &text[..text.len().min(self.columns - 1)];
            self.width = text.len();
            let _ = write!(stderr(), "{text}");
        }
    }

    fn clear(&mut self) {
        if self.width > 0 {
            // Spaces, which every terminal has.
            let _ = write!(stderr(), "\r{:width$}\r", "", width = self.width);
            self.width = 0;
        }
    }
}

pub(crate) fn run(screen: &mut Screen, bench: &Bench, json: bool) -> Result<u8> {
    let plot = bench.plot();
    if json && plot == Some(&Plot::Terminal) {
        return Err(Failure::usage("a plot on the terminal is no JSON", "name a file: --plot FILE.svg or FILE.png"));
    }
    if let Some(Plot::Svg(file) | Plot::Png(file)) = plot {
        figure::check_writable(file)?;
    }
    let (from, to) = bench.sizes();
    let sizes = sizes::between(from, to)?;
    let kinds = distinct(&bench.common().kinds);
    let gpu = Vkgdr::open_primary_context(bench.common().device, OpenFlags::empty())
        .map_err(|error| Failure::boxed(error.to_string(), "`vkgdr doctor` looks for the reason"))?;
    let mut report = Report::new(&gpu, bench);
    if !json {
        screen.print(&report.heading(screen.width()))?;
    }
    let progress = Progress::new(screen.width());
    let mut run = Run { gpu: &gpu, report: &mut report, screen, progress, json };
    let measured = match bench {
        Bench::Bw(options) | Bench::Latency(options) => copies::measure(&mut run, options, &sizes, &kinds),
        Bench::Pingpong(_) => ping_pong::measure(&mut run, &kinds),
        Bench::Alloc(_) => allocation::measure(&mut run, &sizes, &kinds),
    };
    run.progress.clear();
    // What was measured is printed and drawn, also if a kind could not be. The first failure is reported.
    let printed = if json { screen.print_json(&report.json()) } else { Ok(()) };
    if report.points.is_empty() {
        measured.and(printed)?;
        return Err(Failure::boxed("nothing could be measured", "`vkgdr doctor` looks for the reason"));
    }
    // The measurement ends early when the reader of the table closes the pipe. That is no failure, but a plot would be
    // incomplete without saying so.
    let cut_short = measured.as_ref().is_err_and(|error| is_broken_pipe(&**error));
    let drawn = plot.filter(|_| !cut_short).map_or(Ok(()), |plot| draw(screen, &report, plot));
    measured.and(printed).and(drawn)?;
    Ok(SUCCESS)
}

fn draw(screen: &mut Screen, report: &Report, plot: &Plot) -> Result {
    let figure = Figure::of(report);
    match plot {
        Plot::Terminal => screen.print(&chart::draw(&figure, screen.width())),
        Plot::Svg(file) => figure::save(file, svg::of(&figure).as_bytes()),
        Plot::Png(file) => figure::save(file, &png::of(&figure)?),
    }
}

/// The kinds without repetitions.
fn distinct(kinds: &[MemoryKind]) -> Vec<MemoryKind> {
    let mut found = Vec::new();
    kinds.iter().for_each(|kind| found.extend((!found.contains(kind)).then_some(*kind)));
    found
}
