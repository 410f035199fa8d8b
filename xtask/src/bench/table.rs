//! The table of all rows of the benches, and what it says of the goals.

use serde_json::Value;

use super::summary::Summary;

/// One row of the table.
#[derive(Clone, Default)]
pub(super) struct Line {
    what: String,
    /// Rows of the same group share one row of the short table.
    group: Vec<String>,
    pub(super) met: Option<bool>,
    ours: String,
    peer: String,
    ratio: String,
    goal: String,
    /// The result relative to the goal: up to 1 it is met, above it is missed.
    strain: f64,
    /// The amount by which the goal is missed.
    excess: String,
    /// Whether the row has a goal that could not be judged.
    unjudged: bool,
}

impl Line {
    fn new(bench: &str, row: &Value) -> Self {
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let what = text("what");
        let group = vec![bench.to_owned(), what.split(',').next().unwrap_or_default().to_owned()];
        let mut line = Self { what, group, met: row["met"].as_bool(), ..Self::default() };
        let has_goal = row["goal"].as_f64();
        let goal = has_goal.unwrap_or(1.0);
        if row["skipped"].is_string() {
            line.ours = format!("not measured: {}", text("skipped"));
            line.group.push("skipped".into());
            return line;
        }
        if let Some(count) = row["count"].as_f64() {
            line.ours = count.to_string();
            line.goal = format!("<= {}", digits(goal, 6));
            line.strain = (count + 1e-9) / (goal + 1e-9);
            line.excess = format!("{} too many", count - goal);
            return line;
        }
        let peer_is = text("peer_is");
        line.ours = time(row["ours"]["median_ns"].as_f64());
        line.peer = format!("{}, {peer_is}", time(row["peer"]["median_ns"].as_f64()));
        line.group.push(peer_is.split(':').next().unwrap_or_default().to_owned());
        line.group.push(row["goal"].to_string());
        line.unjudged = has_goal.is_some() && line.met.is_none();
        if let Some(result) = row["difference_ns"].as_f64() {
            (line.ratio, line.goal) = (format!("{result:+.2} ns"), format!("<= {goal:+} ns"));
            (line.strain, line.excess) = (result / goal, format!("{:.2} ns too much", result - goal));
        } else if let Some(result) = row["time_ns"].as_f64() {
            (line.ratio, line.goal) = (time(Some(result)), format!("<= {} ns", digits(goal, 6)));
            (line.strain, line.excess) = (result / goal, format!("{:.2} ns too much", result - goal));
        } else if let Some(result) = row["times_as_fast"].as_f64() {
            (line.ratio, line.goal) = (format!("1 / {}", digits(result, 3)), format!("<= 1 / {}", digits(goal, 6)));
            line.strain = goal / result;
            line.excess = format!("{} times as fast instead of {goal}", digits(result, 3));
        } else {
            let result = row["ratio"].as_f64().unwrap_or_default();
            (line.ratio, line.strain) = (digits(result, 4), result / goal);
            if has_goal.is_some() {
                line.goal = format!("<= {}", digits(goal, 6));
                line.excess = format!("{} times the goal", digits(line.strain, 3));
            }
        }
        line
    }
}

/// A number with some significant digits.
fn digits(value: f64, count: i32) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    #[expect(clippy::cast_possible_truncation, reason = "at most the exponent of an f64")]
    let scale = 10f64.powi(count - 1 - value.abs().log10().floor() as i32);
    ((value * scale).round() / scale).to_string()
}

/// A number of nanoseconds, with a suitable unit.
fn time(nanoseconds: Option<f64>) -> String {
    let Some(nanoseconds) = nanoseconds else { return "-".into() };
    let unit = [(1.0, "ns"), (1e3, "us"), (1e6, "ms")].into_iter().find(|(unit, _)| nanoseconds < unit * 999.5);
    let (unit, name) = unit.unwrap_or((1e9, "s"));
    format!("{} {name}", digits(nanoseconds / unit, 3))
}

/// The rows of all benches.
pub(super) fn lines(summary: &Summary) -> Vec<Line> {
    let rows = |report: &Value| report["rows"].as_array().cloned().unwrap_or_default();
    summary
        .reports
        .iter()
        .flat_map(|(bench, report)| rows(report).into_iter().map(|row| Line::new(bench, &row)))
        .collect()
}

/// The worst row of each group, with a note of the group's size.
pub(super) fn shortened(lines: &[Line]) -> Vec<Line> {
    let mut groups: Vec<Vec<&Line>> = Vec::new();
    for line in lines {
        match groups.iter_mut().find(|group| group[0].group == line.group) {
            Some(group) => group.push(line),
            None => groups.push(vec![line]),
        }
    }
    let worst = |group: &Vec<&Line>| {
        let key = |line: &Line| (line.met == Some(false), line.strain);
        // The first of equals.
        let mut worst = group[0].clone();
        for line in group.iter().filter(|line| line.strain.is_finite()) {
            if key(line) > key(&worst) {
                worst = (*line).clone();
            }
        }
        let missed = group.iter().filter(|line| line.met == Some(false)).count();
        if group.len() > 1 {
            let missed = if missed > 0 { format!(", {missed} missed") } else { String::new() };
            worst.what += &format!(" (worst of {}{missed})", group.len());
        }
        worst
    };
    groups.iter().map(worst).collect()
}

/// The machine, the notes, the table, and the number of goals met with the misses among the shown rows.
pub(super) fn text(summary: &Summary, all: &[Line], shown: &[Line]) -> String {
    format!("{}\n\n{}\n\n{}\n", heading(summary), table(shown), verdict(all, shown))
}

fn heading(summary: &Summary) -> String {
    let fact = |key: &str| summary.machine.get(key).and_then(Value::as_str).map(str::to_owned);
    let cores = summary.machine.get("cores").map(|cores| format!("{cores} cores"));
    let routine = fact("copy routine").map(|routine| format!("copy routine {routine}"));
    let parts = [fact("driver"), fact("nvidia_driver"), fact("cpu"), cores, routine, fact("date")];
    let first = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" | ");
    [vec![first], summary.notes.clone()].concat().join("\n")
}

fn table(lines: &[Line]) -> String {
    let head = ["what", "ours", "peer", "ratio", "goal", "met"].map(str::to_owned);
    let row = |line: &Line| {
        let met = match line.met {
            _ if line.unjudged => "needs a GPU",
            Some(true) => "yes",
            Some(false) => "NO",
            None => "",
        };
        let Line { what, ours, peer, ratio, goal, .. } = line.clone();
        [what, ours, peer, ratio, goal, met.to_owned()]
    };
    let rows: Vec<[String; 6]> = std::iter::once(head).chain(lines.iter().map(row)).collect();
    let width = |column: usize| {
        // The reason of a skipped row may extend into the next columns.
        let counts = |row: &&[String; 6]| column != 1 || !row[3].is_empty() || !row[4].is_empty();
        rows.iter().filter(counts).map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let widths: [usize; 6] = std::array::from_fn(width);
    let join = |cells: [String; 6]| cells.join("  ").trim_end().to_owned();
    let padded = |row: &[String; 6]| join(std::array::from_fn(|column| format!("{:1$}", row[column], widths[column])));
    let mut text: Vec<String> = rows.iter().map(padded).collect();
    text.insert(1, widths.map(|width| "-".repeat(width)).join("  "));
    text.join("\n")
}

fn verdict(all: &[Line], shown: &[Line]) -> String {
    let judged = all.iter().filter(|line| line.met.is_some()).count();
    let missed = all.iter().filter(|line| line.met == Some(false)).count();
    let unjudged = all.iter().filter(|line| line.unjudged).count();
    let mut text = format!("{} of {judged} goals met", judged - missed);
    if unjudged > 0 {
        text += &format!(", {unjudged} need a GPU");
    }
    for line in shown.iter().filter(|line| line.met == Some(false)) {
        let against = line.peer.split_once(", ").map(|(_, peer)| format!(" against {peer}")).unwrap_or_default();
        let result = if line.ratio.is_empty() { &line.ours } else { &line.ratio };
        text += &format!("\n  missed: {}{against}: {result}, goal {}: {}", line.what, line.goal, line.excess);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_a_unit() {
        let times = [0.0, 7.25, 999.4, 999.6, 12_345.0, 2.5e9].map(|nanoseconds| time(Some(nanoseconds)));
        assert_eq!(times, ["0 ns", "7.25 ns", "999 ns", "1 us", "12.3 us", "2.5 s"]);
    }
}
