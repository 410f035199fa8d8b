//! What a bench found, as a table and as JSON.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

use crate::pairs::{Pairs, median, minimum};

/// The largest allowed result of a comparison.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    /// Of ours ÷ the peer's.
    Ratio(f64),
    /// Of ours − the peer's.
    Nanoseconds(f64),
}

struct Row {
    what: String,
    peer_name: &'static str,
    pairs: Pairs,
    goal: Goal,
}

/// The comparisons of one run.
#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
}

/// The machine, in words.
struct Machine {
    driver: String,
    simulated: bool,
    cpu: String,
    date: String,
}

impl Row {
    fn result(&self) -> f64 {
        match self.goal {
            Goal::Ratio(_) => self.pairs.ratio(),
            Goal::Nanoseconds(_) => self.pairs.difference(),
        }
    }

    fn is_met(&self) -> bool {
        let (Goal::Ratio(limit) | Goal::Nanoseconds(limit)) = self.goal;
        self.result() <= limit
    }

    fn cells(&self) -> [String; 6] {
        let side = |values: &[f64]| format!("{} / {}", time(minimum(values)), time(median(values.iter().copied())));
        let (result, goal) = match self.goal {
            Goal::Ratio(limit) => (format!("{:.5}", self.result()), format!("<= {limit}")),
            Goal::Nanoseconds(limit) => (format!("{:+.2} ns", self.result()), format!("<= +{limit} ns")),
        };
        let met = if self.is_met() { "yes" } else { "NO" }.to_owned();
        let peer = format!("{} ({})", side(&self.pairs.peer), self.peer_name);
        [self.what.clone(), side(&self.pairs.ours), peer, result, goal, met]
    }

    fn json(&self) -> String {
        let (form, limit) = match self.goal {
            Goal::Ratio(limit) => ("ratio", limit),
            Goal::Nanoseconds(limit) => ("difference_ns", limit),
        };
        let side = |values: &[f64]| {
            format!(r#"{{"min_ns": {:.3}, "median_ns": {:.3}}}"#, minimum(values), median(values.iter().copied()))
        };
        format!(
            r#"{{"what": {}, "ours": {}, "peer_is": {}, "peer": {}, "rounds": {}, "{form}": {:.6}, "goal": {limit}, "met": {}}}"#,
            quoted(&self.what),
            side(&self.pairs.ours),
            quoted(self.peer_name),
            side(&self.pairs.peer),
            self.pairs.ours.len(),
            self.result(),
            self.is_met(),
        )
    }
}

impl Report {
    pub(crate) fn add(&mut self, what: impl Into<String>, peer_name: &'static str, pairs: Pairs, goal: Goal) {
        self.rows.push(Row { what: what.into(), peer_name, pairs, goal });
    }

    /// Prints the table and writes the same to `NAME.json` in `$VKGDR_BENCH_DIR`, by default `bench` in cargo's target
    /// folder. `gpu` is the CUDA device's name.
    pub(crate) fn publish(&self, name: &str, gpu: &str) {
        let machine = Machine::here(gpu);
        println!("{}", self.table(&machine));
        match self.write(name, &machine) {
            Ok(path) => println!("also in {}", path.display()),
            Err(error) => println!("not written as JSON: {error}"),
        }
    }

    fn table(&self, machine: &Machine) -> String {
        let heading = ["what", "ours, min / median", "peer, min / median", "result", "goal", "met"].map(str::to_owned);
        let rows: Vec<_> = [heading].into_iter().chain(self.rows.iter().map(Row::cells)).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; 6] = std::array::from_fn(width);
        let mut text = format!("\n{} | {} | {}\n", machine.driver, machine.cpu, machine.date);
        if machine.simulated {
            text.push_str(
                "Simulated driver: the ratios tell what this crate adds; the times tell nothing of hardware.\n",
            );
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
        let rows: Vec<_> = self.rows.iter().map(|row| format!("    {}", row.json())).collect();
        let text = format!(
            "{{\n  \"driver\": {},\n  \"simulated\": {},\n  \"cpu\": {},\n  \"date\": {},\n  \"rows\": [\n{}\n  ]\n}}\n",
            quoted(&machine.driver),
            machine.simulated,
            quoted(&machine.cpu),
            quoted(&machine.date),
            rows.join(",\n"),
        );
        let path = folder.join(format!("{name}.json"));
        fs::write(&path, text)?;
        Ok(path)
    }
}

impl Machine {
    fn here(gpu: &str) -> Self {
        let simulated = support::simcuda().is_some();
        let driver = if simulated { format!("simulated CUDA driver ({gpu})") } else { gpu.to_owned() };
        Self { driver, simulated, cpu: cpu().unwrap_or_else(|| "unknown CPU".to_owned()), date: date() }
    }
}

fn cpu() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let model = text.lines().find_map(|line| line.strip_prefix("model name"))?;
    Some(model.trim_start_matches([':', ' ', '\t']).to_owned())
}

fn date() -> String {
    let output = Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]).output();
    output
        .map_or_else(|_| "unknown date".to_owned(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A number of nanoseconds in a unit that suits it.
fn time(nanoseconds: f64) -> String {
    match nanoseconds {
        ns if ns < 1e3 => format!("{ns:.2} ns"),
        ns if ns < 1e6 => format!("{:.2} us", ns / 1e3),
        ns => format!("{:.2} ms", ns / 1e6),
    }
}

/// A JSON string. The texts here are names: of control characters only those that JSON names can occur.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\t', "\\t"))
}
