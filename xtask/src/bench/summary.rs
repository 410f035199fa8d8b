//! The reports of all benches, as one JSON value.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::Result;

const SIMULATED: &str = "SIMULATED driver, no GPU: times of drivers and of GPU memory are not times of hardware. \
    Ratios show what this library adds on the CPU.";

/// The order of the benches in the table; others follow.
const ORDER: [&str; 7] = ["pool", "copies", "vkgdr", "vkgdr-c", "gdrapi", "python_peer", "gpu"];
/// The keys of a report that describe the machine and the run.
const MACHINE: [&str; 8] = ["driver", "simulated", "nvidia_driver", "cpu", "cores", "kernel", "date", "quick"];

/// Reports by the names of the benches, in their order in the table.
pub(super) struct Summary {
    pub(super) machine: Map<String, Value>,
    pub(super) notes: Vec<String>,
    pub(super) reports: Vec<(String, Value)>,
}

impl Summary {
    /// Reads a folder of the benches' JSON files, the bench.json written by a GPU machine's run.sh, or a results.json.
    pub(super) fn read(source: &Path) -> Result<Self> {
        let mut reports = reports(source)?;
        if let Some(samples) = reports.get("python_peer").filter(|report| report["rows"].is_null()) {
            let report = python_report(samples);
            reports.insert("python_peer".into(), report);
        }
        let mut reports: Vec<_> = reports.into_iter().filter(|(_, report)| report["rows"].is_array()).collect();
        if reports.is_empty() {
            return Err(format!("{}: no bench results found", source.display()).into());
        }
        reports.sort_by_key(|(name, _)| ORDER.iter().position(|known| known == name).unwrap_or(ORDER.len()));

        let mut machine = Map::new();
        for (_, report) in &reports {
            let known = MACHINE.iter().filter_map(|key| Some(((*key).to_owned(), report.get(*key)?.clone())));
            machine.extend(known);
            machine.extend(report["facts"].as_object().cloned().unwrap_or_default());
        }
        let mut notes = Vec::new();
        if machine.get("simulated").is_some_and(|value| value == true) {
            notes.push(SIMULATED.to_owned());
        }
        // A GPU machine's stage.sh measures some benches in full and others quickly.
        let quick = reports.iter().filter(|(_, report)| report["quick"] == true);
        let quick: Vec<_> = quick.map(|(name, _)| name.as_str()).collect();
        if !quick.is_empty() {
            machine.insert("quick".into(), true.into());
            notes.push(format!("QUICK run of {}: too few measurements to judge the goals.", quick.join(", ")));
        }
        Ok(Self { machine, notes, reports })
    }

    /// The content of results.json.
    pub(super) fn to_json(&self) -> Result<String> {
        let benches: Map<String, Value> = self.reports.iter().cloned().collect();
        let all = json!({ "machine": self.machine, "notes": self.notes, "benches": benches });
        Ok(serde_json::to_string_pretty(&all)? + "\n")
    }
}

fn reports(source: &Path) -> Result<BTreeMap<String, Value>> {
    let stem = |name: &str| Path::new(name).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let read = |path: &Path| Ok::<Value, Box<dyn std::error::Error>>(serde_json::from_str(&fs::read_to_string(path)?)?);
    if source.is_dir() {
        let files = fs::read_dir(source)?.map(|file| Ok(file?.path())).collect::<Result<Vec<_>>>()?;
        let files = files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "json"));
        return files.map(|path| Ok((stem(&path.to_string_lossy()), read(path)?))).collect();
    }
    let mut content = read(source)?;
    if let Value::Object(benches) = content["benches"].take() {
        return Ok(benches.into_iter().collect());
    }
    // By file name, with criterion's estimates among them.
    let files = content.as_object().cloned().unwrap_or_default().into_iter();
    Ok(files.filter(|(name, _)| name.starts_with("bench/")).map(|(name, report)| (stem(&name), report)).collect())
}

/// Converts the samples and goals of benches/python_peer to a report; its ratio is that of the minima.
fn python_report(samples: &Value) -> Value {
    let seconds = |side: &str, name: &str| -> Option<Vec<f64>> {
        let mut values: Vec<f64> = samples[side][name].as_array()?.iter().filter_map(Value::as_f64).collect();
        values.sort_by(f64::total_cmp);
        (!values.is_empty()).then_some(values)
    };
    let rounded = |value: f64, digits: i32| (value * 10f64.powi(digits)).round() / 10f64.powi(digits);
    let side = |sorted: &[f64]| {
        let median = f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        let [min, median, ninetieth] =
            [sorted[0], median, sorted[sorted.len() * 9 / 10]].map(|time| rounded(time * 1e9, 3));
        json!({ "min_ns": min, "median_ns": median, "p90_ns": ninetieth })
    };
    let row = |(name, goal): (&String, &Value)| {
        let theirs = samples["instead"][name].as_str().unwrap_or(name);
        let what = format!("Python: {name}");
        let (Some(ours), Some(peer)) = (seconds("ours", name), seconds("peer", theirs)) else {
            return json!({ "what": what, "skipped": "one of the packages lacks it" });
        };
        let ratio = rounded(ours[0] / peer[0], 6);
        let peer_is = if theirs == name { "vkgdr 0.1".to_owned() } else { format!("vkgdr 0.1's {theirs}") };
        json!({
            "what": what, "ours": side(&ours), "peer_is": peer_is, "peer": side(&peer), "rounds": ours.len(),
            "ratio": ratio, "goal": goal, "met": goal.as_f64().map(|goal| ratio <= goal),
        })
    };
    let rows: Vec<Value> = samples["goals"].as_object().into_iter().flatten().map(row).collect();
    json!({ "rows": rows, "samples": [] })
}

#[test]
fn a_quick_bench_among_full_ones_is_named() -> Result {
    let folder = xshell::Shell::new()?.create_temp_dir()?;
    for (name, quick) in [("pool", true), ("gpu", false), ("copies", false)] {
        let report = json!({ "quick": quick, "simulated": false, "rows": [], "samples": [] });
        fs::write(folder.path().join(format!("{name}.json")), report.to_string())?;
    }
    let summary = Summary::read(folder.path())?;
    assert_eq!(summary.notes, ["QUICK run of pool: too few measurements to judge the goals."]);
    assert_eq!(summary.machine["quick"], true);
    Ok(())
}
