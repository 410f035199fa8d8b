//! The results of a bench, as a table and as JSON.
//!
//! The text of a row names the operation up to its first comma, and the case after it: `cargo xtask bench`, which
//! combines the benches, shows the worst case of each operation.

mod json;
mod machine;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use crate::pairs::{Pairs, median, minimum};
use machine::Machine;

/// The goal of a comparison.
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "each bench uses a part of it")]
pub(crate) enum Goal {
    /// Ours ÷ the peer's is at most this.
    Ratio(f64),
    /// Ours − the peer's is at most this number of nanoseconds.
    Nanoseconds(f64),
    /// The peer's ÷ ours, the speed-up, is at least this.
    Faster(f64),
    /// The minimum of ours is at most this number of nanoseconds. There is no peer to cancel slowdowns of the machine.
    Time(f64),
    /// No goal: the ratio is informative.
    None,
}

#[allow(dead_code, reason = "each bench uses a part of it")]
enum Finding {
    Compared {
        peer_name: String,
        pairs: Pairs,
        goal: Goal,
    },
    /// A count and its maximum.
    Counted {
        number: f64,
        most: f64,
    },
    /// The reason for a missing measurement.
    Skipped {
        reason: String,
    },
}

struct Row {
    what: String,
    finding: Finding,
}

/// One curve's point, for plots: the nanoseconds of one way for a number of bytes.
struct Sample {
    series: String,
    way: String,
    bytes: usize,
    times: Vec<f64>,
}

/// The comparisons of one run.
#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
    samples: Vec<Sample>,
    facts: Vec<(&'static str, String)>,
    /// Whether goals are judged on a GPU only.
    needs_gpu: bool,
}

impl Row {
    /// The result in the unit of the goal.
    fn result(&self) -> f64 {
        match &self.finding {
            Finding::Compared { pairs, goal: Goal::Ratio(_) | Goal::None, .. } => pairs.ratio(),
            Finding::Compared { pairs, goal: Goal::Nanoseconds(_), .. } => pairs.difference(),
            Finding::Compared { pairs, goal: Goal::Faster(_), .. } => 1.0 / pairs.ratio(),
            Finding::Compared { pairs, goal: Goal::Time(_), .. } => minimum(&pairs.ours),
            Finding::Counted { number, .. } => *number,
            Finding::Skipped { .. } => f64::NAN,
        }
    }

    /// None without a goal or a measurement.
    fn is_met(&self) -> Option<bool> {
        match self.finding {
            Finding::Compared { goal: Goal::Ratio(limit) | Goal::Nanoseconds(limit) | Goal::Time(limit), .. }
            | Finding::Counted { most: limit, .. } => Some(self.result() <= limit),
            Finding::Compared { goal: Goal::Faster(limit), .. } => Some(self.result() >= limit),
            Finding::Compared { goal: Goal::None, .. } | Finding::Skipped { .. } => None,
        }
    }

    fn cells(&self, judged: bool) -> [String; 6] {
        let side = |values: &[f64]| format!("{} / {}", time(minimum(values)), time(median(values.iter().copied())));
        let (ours, peer) = match &self.finding {
            Finding::Compared { peer_name, pairs, .. } => {
                (side(&pairs.ours), format!("{} ({peer_name})", side(&pairs.peer)))
            }
            Finding::Counted { .. } => ("counted".to_owned(), String::new()),
            Finding::Skipped { reason } => (format!("not measured: {reason}"), String::new()),
        };
        let (result, goal) = match &self.finding {
            Finding::Compared { goal: Goal::Ratio(limit), .. } => {
                (format!("{:.5}", self.result()), format!("<= {}", (limit * 1e6).round() / 1e6))
            }
            Finding::Compared { goal: Goal::Nanoseconds(limit), .. } => {
                (format!("{:+.2} ns", self.result()), format!("<= +{limit} ns"))
            }
            Finding::Compared { goal: Goal::Faster(limit), .. } => {
                (format!("{:.3} times as fast", self.result()), format!(">= {limit}"))
            }
            Finding::Compared { goal: Goal::Time(limit), .. } => (time(self.result()), format!("<= {}", time(*limit))),
            Finding::Compared { goal: Goal::None, .. } => (format!("{:.5}", self.result()), String::new()),
            Finding::Counted { most, .. } => (format!("{}", self.result()), format!("<= {most}")),
            Finding::Skipped { .. } => (String::new(), String::new()),
        };
        let met = match self.is_met().filter(|_| judged) {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "",
        };
        [self.what.clone(), ours, peer, result, goal, met.to_owned()]
    }
}

#[allow(dead_code, reason = "each bench uses a part of it")]
impl Report {
    /// A report with goals that are judged on a GPU only.
    pub(crate) fn of_gpu() -> Self {
        Self { needs_gpu: true, ..Self::default() }
    }

    pub(crate) fn add(&mut self, what: impl Into<String>, peer_name: impl Into<String>, pairs: Pairs, goal: Goal) {
        let finding = Finding::Compared { peer_name: peer_name.into(), pairs, goal };
        self.rows.push(Row { what: what.into(), finding });
    }

    /// Adds a count, such as of driver calls, with its maximum.
    pub(crate) fn count(&mut self, what: impl Into<String>, number: f64, most: f64) {
        self.rows.push(Row { what: what.into(), finding: Finding::Counted { number, most } });
    }

    /// Adds a row that was not measured, with the reason.
    pub(crate) fn skip(&mut self, what: impl Into<String>, reason: impl Into<String>) {
        self.rows.push(Row { what: what.into(), finding: Finding::Skipped { reason: reason.into() } });
    }

    /// Adds a point to a plot: the nanoseconds of one way for a number of bytes. Each `series` is a plot.
    pub(crate) fn sample(&mut self, series: &str, way: &str, bytes: usize, times: Vec<f64>) {
        self.samples.push(Sample { series: series.to_owned(), way: way.to_owned(), bytes, times });
    }

    /// Adds a property of the machine or configuration.
    pub(crate) fn fact(&mut self, name: &'static str, value: impl ToString) {
        self.facts.push((name, value.to_string()));
    }

    /// Prints the table and writes the same to `NAME.json` in `$VKGDR_BENCH_DIR`, by default `bench` in cargo's target
    /// folder. `gpu` is the CUDA device's name.
    pub(crate) fn publish(&self, name: &str, gpu: &str) {
        let machine = Machine::here(gpu);
        println!("{}", self.table(&machine));
        match self.write(name, &machine) {
            Ok(path) => println!("also in {}", path.display()),
            Err(error) => println!("could not write the JSON file: {error}"),
        }
    }

    /// Writes the results so far, in case the bench is terminated early.
    pub(crate) fn save(&self, name: &str, gpu: &str) {
        if let Err(error) = self.write(name, &Machine::here(gpu)) {
            println!("could not write the JSON file: {error}");
        }
    }

    fn is_judged(&self, machine: &Machine) -> bool {
        !(self.needs_gpu && machine.simulated)
    }

    fn table(&self, machine: &Machine) -> String {
        let heading = ["what", "ours, min / median", "peer, min / median", "result", "goal", "met"].map(str::to_owned);
        let judged = self.is_judged(machine);
        let rows: Vec<_> = [heading].into_iter().chain(self.rows.iter().map(|row| row.cells(judged))).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; 6] = std::array::from_fn(width);
        let mut text = format!("\n{} | {} | {}\n", machine.driver, machine.cpu, machine.date);
        if machine.simulated && judged {
            text.push_str(
                "Simulated driver: ratios show the overhead of this crate; times say nothing about hardware.\n",
            );
        } else if machine.simulated {
            text.push_str("Simulated driver: times and ratios say nothing about hardware; goals are not judged.\n");
        }
        for row in rows {
            let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
            // Writing to a string does not fail.
            let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join(" | ").trim_end());
        }
        text
    }

    fn write(&self, name: &str, machine: &Machine) -> io::Result<PathBuf> {
        // The program is `target/PROFILE/deps/…`.
        let program = env::current_exe()?;
        let target = || program.ancestors().nth(3).unwrap_or(Path::new(".")).join("bench");
        let folder = env::var_os("VKGDR_BENCH_DIR").map_or_else(target, PathBuf::from);
        fs::create_dir_all(&folder)?;
        let path = folder.join(format!("{name}.json"));
        // Whole at any time: written beside and renamed, since a bench may be killed while it writes.
        let partial = folder.join(format!("{name}.json.new"));
        fs::write(&partial, json::of(self, machine))?;
        fs::rename(&partial, &path)?;
        Ok(path)
    }
}

/// Formats nanoseconds in a suitable unit.
pub(crate) fn time(nanoseconds: f64) -> String {
    match nanoseconds {
        ns if ns < 1e3 => format!("{ns:.2} ns"),
        ns if ns < 1e6 => format!("{:.2} us", ns / 1e3),
        ns => format!("{:.2} ms", ns / 1e6),
    }
}
