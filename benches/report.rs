//! The results of a bench as JSON, and the table of those of all benches.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, thread};

use serde_json::{Map, Value, json};

use crate::Result;
use crate::contest::{Pairs, is_quick, median, minimum};

/// The goal of a comparison.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    /// Ours ÷ the peer's is at most this.
    Ratio(f64),
    /// Ours − the peer's is at most this number of nanoseconds.
    Nanoseconds(f64),
    /// The minimum of ours is at most this number of nanoseconds. There is no peer to cancel slowdowns of the machine.
    Time(f64),
    /// No goal: the ratio is informative.
    None,
}

/// The rows of one bench. Each new one is also saved, since the bench may be ended early.
pub(crate) struct Report {
    path: PathBuf,
    content: Value,
    /// Whether goals are judged.
    judged: bool,
}

/// The folder of the results: `$VKGDR_BENCH_DIR`, by default `bench` in cargo's target folder.
pub(crate) fn folder() -> Result<PathBuf> {
    // This program is `target/PROFILE/bench`.
    let program = env::current_exe()?;
    let target = || program.ancestors().nth(2).unwrap_or(Path::new(".")).join("bench");
    Ok(env::var_os("VKGDR_BENCH_DIR").map_or_else(target, PathBuf::from))
}

impl Report {
    /// The results of the bench `name` on `gpu`, whose goals may be for real GPUs only.
    pub(crate) fn new(name: &str, gpu: &str, needs_gpu: bool) -> Result<Self> {
        let simulated = support::simcuda().is_some();
        let line = |file| fs::read_to_string(file).ok()?.lines().next().map(str::to_owned);
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let date = Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]).output()?.stdout;
        let content = json!({
            "machine": {
                "driver": if simulated { format!("simulated CUDA driver ({gpu})") } else { gpu.to_owned() },
                "simulated": simulated,
                "nvidia_driver": line("/proc/driver/nvidia/version").filter(|_| !simulated),
                "cpu": cpu.map(|(_, model)| model),
                "cores": thread::available_parallelism()?.get(),
                "kernel": line("/proc/sys/kernel/osrelease"),
                "date": String::from_utf8_lossy(&date).trim(),
                "copy routine": vkgdr::CopyRoutine::chosen().name(),
            },
            "quick": is_quick(),
            "rows": [],
        });
        fs::create_dir_all(folder()?)?;
        Ok(Self { path: folder()?.join(format!("{name}.json")), content, judged: !(needs_gpu && simulated) })
    }

    pub(crate) fn add(&mut self, what: impl Into<String>, peer_is: &str, pairs: &Pairs, goal: Goal) {
        let (form, result, limit) = match goal {
            Goal::Ratio(limit) => ("ratio", pairs.compared(|ours, peer| ours / peer), Some(limit)),
            Goal::Nanoseconds(limit) => ("difference_ns", pairs.compared(|ours, peer| ours - peer), Some(limit)),
            Goal::Time(limit) => ("time_ns", minimum(&pairs.ours), Some(limit)),
            Goal::None => ("ratio", pairs.compared(|ours, peer| ours / peer), None),
        };
        let mut row = json!({
            "what": what.into(), "ours": side(&pairs.ours), "peer_is": peer_is, "peer": side(&pairs.peer),
            "rounds": pairs.ours.len(), "goal": limit, "met": limit.filter(|_| self.judged).map(|limit| result <= limit),
        });
        row[form] = rounded(result, 6);
        self.push(row);
    }

    /// Adds a row that was not measured, with the reason.
    pub(crate) fn skip(&mut self, what: impl Into<String>, reason: &impl ToString) {
        self.push(json!({ "what": what.into(), "skipped": reason.to_string() }));
    }

    /// Adds a property of the machine or configuration.
    pub(crate) fn fact(&mut self, name: &str, value: impl ToString) {
        self.content["machine"][name] = value.to_string().into();
    }

    fn push(&mut self, row: Value) {
        if let Some(rows) = self.content["rows"].as_array_mut() {
            rows.push(row);
        }
        // Whole at any time: written beside and renamed, since a bench may be killed while it writes.
        let partial = self.path.with_extension("new");
        let written = fs::write(&partial, format!("{:#}\n", self.content));
        if let Err(error) = written.and_then(|()| fs::rename(&partial, &self.path)) {
            println!("could not write the JSON file: {error}");
        }
    }
}

fn side(values: &[f64]) -> Value {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let ninetieth = sorted.get(sorted.len() * 9 / 10).copied().unwrap_or(f64::NAN);
    let median = rounded(median(values.iter().copied()), 3);
    json!({ "min_ns": rounded(minimum(values), 3), "median_ns": median, "p90_ns": rounded(ninetieth, 3) })
}

/// A number, or null for infinities, which JSON does not have.
fn rounded(value: f64, digits: i32) -> Value {
    let scale = 10_f64.powi(digits);
    ((value * scale).round() / scale).into()
}

/// The results of all benches, from a folder of them, or from the file that a GPU machine's run.sh or this made of them.
pub(crate) fn read(source: &Path) -> Result<Value> {
    let read = |path: &Path| -> Result<Value> { Ok(serde_json::from_str(&fs::read_to_string(path)?)?) };
    let name = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let all: Map<String, Value> = if source.is_dir() {
        let files = fs::read_dir(source)?.map(|file| Ok(file?.path())).collect::<Result<Vec<_>>>()?;
        let files = files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "json"));
        files.map(|path| Ok((name(path), read(path)?))).collect::<Result<_>>()?
    } else {
        let all = read(source)?.as_object().cloned().unwrap_or_default();
        all.into_iter().map(|(file, report)| (name(Path::new(&file)), report)).collect()
    };
    let benches: Map<_, _> = all.into_iter().filter(|(_, report)| report["rows"].is_array()).collect();
    if benches.is_empty() { Err(format!("{}: no bench results", source.display()).into()) } else { Ok(benches.into()) }
}

/// One row of the table.
fn cells(row: &Value) -> [String; 6] {
    let text = |key: &str| row[key].as_str().unwrap_or_default();
    let goal = row["goal"].as_f64();
    let forms = [("ratio", ""), ("difference_ns", " ns"), ("time_ns", " ns")];
    let result = forms.iter().find_map(|(form, unit)| Some(format!("{}{unit}", digits(row[*form].as_f64()?, 4))));
    let judgement = match (row["met"].as_bool(), goal) {
        (Some(true), _) => "yes",
        (Some(false), _) => "NO",
        (None, Some(_)) => "needs a GPU",
        (None, None) => "",
    };
    let of = |side: &str| row[side]["median_ns"].as_f64().map(time).unwrap_or_default();
    [
        text("what").to_owned(),
        if row["skipped"].is_string() { format!("not measured: {}", text("skipped")) } else { of("ours") },
        format!("{}  {}", of("peer"), text("peer_is")).trim().to_owned(),
        result.unwrap_or_default(),
        goal.map(|goal| format!("<= {}", digits(goal, 4))).unwrap_or_default(),
        judgement.to_owned(),
    ]
}

/// A number with some significant digits.
fn digits(value: f64, count: i32) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    #[expect(clippy::cast_possible_truncation, reason = "at most the exponent of an f64")]
    let scale = 10_f64.powi(count - 1 - value.abs().log10().floor() as i32);
    ((value * scale).round() / scale).to_string()
}

/// A number of nanoseconds, with a suitable unit.
pub(crate) fn time(nanoseconds: f64) -> String {
    let unit = [(1.0, "ns"), (1e3, "us"), (1e6, "ms")].into_iter().find(|(unit, _)| nanoseconds < unit * 999.5);
    let (unit, name) = unit.unwrap_or((1e9, "s"));
    format!("{} {name}", digits(nanoseconds / unit, 3))
}

/// The table of all rows, and the number of missed goals.
pub(crate) fn table(benches: &Value) -> (String, usize) {
    let reports = benches.as_object().into_iter().flatten();
    let all: Vec<&Value> = reports.flat_map(|(_, report)| report["rows"].as_array().into_iter().flatten()).collect();
    let mut rows = vec![["what", "ours", "peer", "result", "goal", "met"].map(str::to_owned)];
    rows.extend(all.iter().map(|row| cells(row)));
    // The reason of a row that was not measured extends into the next columns.
    let counts = |row: &[String; 6], column: usize| column != 1 || !row[1].starts_with("not measured");
    let width =
        |column: usize| rows.iter().filter(|row| counts(row, column)).map(|row| row[column].chars().count()).max();
    let widths: [usize; 6] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let line = |row: &[String; 6]| {
        let cells: [String; 6] = std::array::from_fn(|column| format!("{:1$}", row[column], widths[column]));
        cells.join("  ").trim_end().to_owned() + "\n"
    };
    let judged = all.iter().filter(|row| row["met"].is_boolean()).count();
    let missed = all.iter().filter(|row| row["met"] == false).count();
    let rows: String = rows.iter().map(line).collect();
    (format!("{}\n{rows}\n{} of {judged} goals met\n", heads(benches), judged - missed), missed)
}

fn heads(benches: &Value) -> String {
    let mut text = String::new();
    let named: Vec<_> = benches.as_object().into_iter().flatten().collect();
    if let Some(machine) = named.iter().find_map(|(_, report)| report["machine"].as_object()) {
        let facts = machine.values().filter_map(Value::as_str);
        text += &(facts.collect::<Vec<_>>().join(" | ") + "\n");
        if machine["simulated"] == true {
            text += "SIMULATED driver, no GPU: its times are not those of hardware; ratios show what this library adds on the CPU.\n";
        }
    }
    let quick: Vec<_> =
        named.iter().filter(|(_, report)| report["quick"] == true).map(|(name, _)| name.as_str()).collect();
    if !quick.is_empty() {
        text += &format!("QUICK run of {}: too few measurements to judge the goals.\n", quick.join(", "));
    }
    text
}
