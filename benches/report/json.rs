//! A report as JSON.

use super::machine::Machine;
use super::{Finding, Goal, Report, Row, Sample};
use crate::pairs::{self, median, minimum};

pub(super) fn of(report: &Report, machine: &Machine) -> String {
    let judged = report.is_judged(machine);
    let facts: Vec<_> =
        report.facts.iter().map(|(name, value)| format!("{}: {}", quoted(name), quoted(value))).collect();
    let rows: Vec<_> = report.rows.iter().map(|line| format!("    {}", row(line, judged))).collect();
    let samples: Vec<_> = report.samples.iter().map(|one| format!("    {}", sample(one))).collect();
    let nvidia = machine.nvidia.as_deref().map_or_else(|| "null".to_owned(), quoted);
    format!(
        "{{\n  \"driver\": {},\n  \"simulated\": {},\n  \"nvidia_driver\": {nvidia},\n  \"cpu\": {},\n  \"cores\": {},\n  \
         \"kernel\": {},\n  \"date\": {},\n  \"quick\": {},\n  \"facts\": {{{}}},\n  \"rows\": [\n{}\n  ],\n  \
         \"samples\": [\n{}\n  ]\n}}\n",
        quoted(&machine.driver),
        machine.simulated,
        quoted(&machine.cpu),
        machine.cores,
        quoted(&machine.kernel),
        quoted(&machine.date),
        pairs::is_quick(),
        facts.join(", "),
        rows.join(",\n"),
        samples.join(",\n"),
    )
}

fn row(row: &Row, judged: bool) -> String {
    let what = quoted(&row.what);
    let (peer_name, pairs, goal) = match &row.finding {
        Finding::Compared { peer_name, pairs, goal } => (peer_name, pairs, *goal),
        Finding::Counted { number, most } => {
            let met = bool_or_null(row.is_met().filter(|_| judged));
            return format!(r#"{{"what": {what}, "count": {number}, "goal": {most}, "met": {met}}}"#);
        }
        Finding::Skipped { reason } => return format!(r#"{{"what": {what}, "skipped": {}}}"#, quoted(reason)),
    };
    let (form, limit) = match goal {
        Goal::Ratio(limit) => ("ratio", limit.to_string()),
        Goal::Nanoseconds(limit) => ("difference_ns", limit.to_string()),
        Goal::Faster(limit) => ("times_as_fast", limit.to_string()),
        Goal::Time(limit) => ("time_ns", limit.to_string()),
        Goal::None => ("ratio", "null".to_owned()),
    };
    format!(
        r#"{{"what": {what}, "ours": {}, "peer_is": {}, "peer": {}, "rounds": {}, "{form}": {}, "goal": {limit}, "met": {}}}"#,
        summary(&pairs.ours),
        quoted(peer_name),
        summary(&pairs.peer),
        pairs.ours.len(),
        number(row.result(), 6),
        bool_or_null(row.is_met().filter(|_| judged)),
    )
}

fn sample(sample: &Sample) -> String {
    format!(
        r#"{{"series": {}, "way": {}, "bytes": {}, "rounds": {}, "time": {}}}"#,
        quoted(&sample.series),
        quoted(&sample.way),
        sample.bytes,
        sample.times.len(),
        summary(&sample.times),
    )
}

fn summary(values: &[f64]) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let ninetieth = sorted.get(sorted.len() * 9 / 10).copied().unwrap_or(f64::NAN);
    format!(
        r#"{{"min_ns": {}, "median_ns": {}, "p90_ns": {}}}"#,
        number(minimum(values), 3),
        number(median(values.iter().copied()), 3),
        number(ninetieth, 3)
    )
}

/// A JSON number; `null` for infinities, which JSON does not have.
fn number(value: f64, digits: usize) -> String {
    if value.is_finite() { format!("{value:.digits$}") } else { "null".to_owned() }
}

fn bool_or_null(value: Option<bool>) -> String {
    value.map_or_else(|| "null".to_owned(), |value| value.to_string())
}

/// A JSON string. The texts are names; only control characters with a JSON escape of their own occur.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\t', "\\t"))
}
