//! `docs/reliability.md`, from the logs of the parts and from `docs/found.md`, which is kept by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::log::{Facts, Log};
use crate::Result;

const HEAD: &str = "\
# Reliability

Stress tests of this library and their results. `make reliability` runs all of them and rewrites this page;
`cargo xtask reliability PART...` runs parts. All results are from the simulated CUDA driver on lavapipe, at the
time stated in each section. `make test` always runs the failure sweep, the process tests and some thousand steps of
the sequences.
";

const SWEEP: &str = "\
Each driver call of an operation fails in turn, with several codes of each driver (`tests/failures`). The error must
name the call and keep its code, and live objects of both drivers, the current context, descriptors and mappings must
be unchanged afterwards. Operations with 0 calls are checked to make none.
";

const SEQUENCES: &str = "\
Random steps over all public operations, checked against a model of every byte as the CPU and the device must see it;
afterwards the drivers' ledgers of live objects must be unchanged (`tests/sequences`). *Refused* counts allocations
that exceed the memory of a device profile.
";

const PROCESSES: &str = "\
In a forked child every operation that needs a driver is refused: opening, allocating, map guards, streams, copies by
the copy engine, flushes and invalidates of memory that is not coherent. The CPU's copies from and to coherent memory
are not refused, nor are `gdr_map` and `gdr_copy_*` by the CPU of memory that was pinned before. Nothing of the
parent's is released however the child ends, and the parent works on (`fork…`). Children killed at random moments
leave nothing behind; SIGTERM and SIGINT terminate a copying process without output; with 64 descriptors errors name
the limit, and operations succeed again once descriptors are free (`ends`).
";

const FUZZ: &str = "\
libFuzzer with AddressSanitizer. Coverage counts edges of the code; features are libFuzzer's.
";

const FLUSH: &str = "\
`cargo xtask mutations` applies each patch of `tests/mutations`, which breaks flush, to a copy of the sources; at
least three tests must then fail on non-coherent memory.
";

const SOAK: &str = "\
Sixteen threads of sequences; `tests/sequences/soak.rs` defines the limits. Heap and resident memory are the minima of
the first and of the last third.
";

/// The cases of gdrcopy's sanity suite.
const SANITY: &str = include_str!("sanity.md");

/// Writes the page. A section without a log stays as the page has it.
pub(super) fn write(logs: &Path, page: &Path) -> Result {
    type Section = fn(&Log) -> String;
    let sections: [(&str, &str, Section); 7] = [
        ("sweep", "Failure sweep", sweep),
        ("sequences", "Random sequences and threads", sequences),
        ("processes", "Forks, kills, limits, signals, and gdrcopy's sanity suite", processes),
        ("sanitizers", "Sanitizers", sanitizers),
        ("fuzz", "Fuzzing", fuzz),
        ("flush", "Broken flush", flush),
        ("soak", "Soak", soak),
    ];
    let old = if page.exists() { fs::read_to_string(page)? } else { String::new() };
    let mut parts = vec![HEAD.to_owned()];
    for (name, title, section) in sections {
        let log = Log::read(&logs.join(name).with_extension("log"))?;
        let kept = if log.has_run() { None } else { kept(&old, title) };
        parts.push(kept.unwrap_or_else(|| format!("## {title}\n\n{}\n\n{}", log.when(), section(&log))));
    }
    parts.push(fs::read_to_string(page.with_file_name("found.md"))?);
    Ok(fs::write(page, parts.join("\n"))?)
}

/// The section of a page with this heading, up to the next one of its level.
fn kept(page: &str, title: &str) -> Option<String> {
    let heading = format!("## {title}");
    let mut lines = page.lines().skip_while(|line| **line != heading);
    let head = lines.next()?;
    let body: Vec<&str> = lines.take_while(|line| !line.starts_with("## ")).collect();
    Some(format!("{head}\n{}\n", body.join("\n").trim_end()))
}

/// A number with thousands separators.
fn number(text: &str) -> String {
    let digits = text.chars().all(|c| c.is_ascii_digit());
    let mut result = String::new();
    for (index, character) in text.chars().enumerate() {
        if digits && index > 0 && (text.len() - index).is_multiple_of(3) {
            result.push(',');
        }
        result.push(character);
    }
    result
}

/// A Markdown table.
fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut lines = vec![format!("| {} |", head.join(" | ")), format!("|{}", "---|".repeat(N))];
    lines.extend(rows.into_iter().map(|row| format!("| {} |", row.join(" | "))));
    lines.join("\n") + "\n"
}

/// An operation's name without the kinds of memory and of contexts, which are variants of one operation.
fn operation(what: &str) -> String {
    let mut name = what.to_owned();
    for context in ["plain context", "primary context"] {
        if let Some(rest) = name.strip_suffix(context) {
            name = rest.trim_end_matches("of ").trim_end().trim_end_matches(',').to_owned();
        }
    }
    for kind in ["mapped", "host", "device"] {
        for words in [format!(" of {kind} memory"), format!(" {kind} memory")] {
            name = name.replace(&words, "");
        }
    }
    name
}

/// Operations, their driver calls, and the injected faults.
fn sweep(log: &Log) -> String {
    let mut groups: BTreeMap<String, [u64; 3]> = BTreeMap::new();
    for facts in log.all("sweep") {
        let group = groups.entry(operation(facts.get("what"))).or_default();
        let counts = [1, facts.count("calls"), facts.count("faults")];
        group.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let sum = |index: usize| number(&groups.values().map(|counts| counts[index]).sum::<u64>().to_string());
    let totals = format!("**{} operations, {} calls, {} faults.**", sum(0), sum(1), sum(2));
    let rows = groups
        .iter()
        .map(|(name, [count, calls, faults])| [name.clone(), count.to_string(), calls.to_string(), faults.to_string()]);
    let head = ["operation", "variants", "calls of both drivers", "faults injected"];
    format!("{SWEEP}\n{totals}\n\n{}", table(head, rows))
}

/// The steps of each profile.
fn sequences(log: &Log) -> String {
    let row = |facts: &Facts| {
        let how = match facts.get("what") {
            "alone" => "one thread",
            "threads" => "16 threads",
            "streams" => "one thread, cudarc's streams",
            "stream-threads" => "16 threads, cudarc's streams",
            other => other,
        };
        let [profile, copies, layers] = ["profile", "copies", "layers"].map(|name| facts.get(name).to_owned());
        let [sequences, steps, refused] = ["sequences", "steps", "refused"].map(|name| number(facts.get(name)));
        [how.to_owned(), profile, copies, layers, sequences, steps, refused]
    };
    let head = ["how", "device profile", "copies", "layers", "sequences", "steps", "refused"];
    let skipped: BTreeSet<&str> = log.text.lines().filter(|line| line.starts_with("skipped: ")).collect();
    let skipped: String = skipped.into_iter().map(|line| format!("* {line}\n")).collect();
    let separator = if skipped.is_empty() { "" } else { "\n" };
    format!("{SEQUENCES}\n{}{separator}{skipped}", table(head, log.all("sequences").map(row)))
}

/// The number of tests that passed, by file.
fn processes(log: &Log) -> String {
    let mut files: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for line in log.text.lines().filter(|line| line.contains("PASS")) {
        let Some((_, test)) = line.split_once(" vkgdr::") else { continue };
        if let Some((binary, (module, name))) =
            test.split_once(' ').and_then(|(binary, test)| Some((binary, test.trim().split_once("::")?)))
        {
            files.entry(format!("{binary}/{module}")).or_default().insert(name);
        }
    }
    let rows = files.iter().map(|(name, tests)| [format!("`tests/{name}.rs`"), tests.len().to_string()]);
    format!("{PROCESSES}\n{}\n{SANITY}", table(["tests", "passed"], rows))
}

/// One row for each sanitizer.
fn sanitizers(log: &Log) -> String {
    let what = [
        ("address", "AddressSanitizer, LeakSanitizer: the crate's tests"),
        (
            "thread",
            "ThreadSanitizer: what threads share in the crate and in the simulator; lavapipe's copies are left out",
        ),
        ("c", "AddressSanitizer, UBSan, LeakSanitizer and Valgrind: the C and C++ programs"),
        ("python", "AddressSanitizer: the Python tests, with the extension module and the simulator instrumented"),
        ("miri", "Miri: what needs no driver"),
        (
            "loom",
            "loom: every interleaving of what is lock-free, of the ring's ends those with up to three preemptions",
        ),
    ];
    let result =
        |name: &str| log.all("sanitizer").find(|facts| facts.get("name") == name).map(|facts| facts.get("result"));
    let rows = what.map(|(name, words)| [words.to_owned(), result(name).unwrap_or("not run, or failed").to_owned()]);
    table(["sanitizer", "result"], rows)
}

/// One row for each target.
fn fuzz(log: &Log) -> String {
    let rows = log.all("fuzz").map(|facts| {
        let [runs, coverage, features] = ["executions", "coverage", "features"].map(|name| number(facts.get(name)));
        [format!("`{}`", facts.get("target")), facts.get("seconds").to_owned(), runs, coverage, features]
    });
    format!("{FUZZ}\n{}", table(["target", "seconds", "executions", "coverage", "features"], rows))
}

/// The tests that detect each broken flush.
fn flush(log: &Log) -> String {
    let mut text = FLUSH.to_owned();
    for facts in log.all("flush") {
        let names: Vec<String> =
            facts.get("tests").split(',').filter(|name| !name.is_empty()).map(|name| format!("`{name}`")).collect();
        let (broken, count) = (facts.get("broken"), facts.get("result"));
        text += &format!("\n**{broken}: detected by {count} tests.**\n{}\n", names.join(", "));
    }
    text
}

/// The soak's figures.
fn soak(log: &Log) -> String {
    let Some(facts) = log.one("soak") else { return SOAK.to_owned() };
    let steps = log.one("sequences").map(|steps| number(steps.get("steps"))).unwrap_or_default();
    let [heap, resident] =
        ["heap_kib", "resident_kib"].map(|name| facts.get(name).split(':').map(number).collect::<Vec<_>>().join(" → "));
    let [minutes, rounds, fds, maps] = ["minutes", "rounds", "fds", "maps"].map(|name| facts.get(name).to_owned());
    let head = ["minutes", "rounds", "steps", "descriptors", "mappings", "heap, KiB", "resident, KiB"];
    format!("{SOAK}\n{}", table(head, [[minutes, rounds, steps, fds, maps, heap, resident]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_of_an_operation_share_its_name() {
        assert_eq!(operation("Memory::allocate of mapped memory, plain context"), "Memory::allocate");
        assert_eq!(operation("drop of bound memory"), "drop of bound memory");
    }

    #[test]
    fn a_section_without_a_log_stays_as_it_was() -> Result {
        let folder = xshell::Shell::new()?.create_temp_dir()?;
        let page = folder.path().join("reliability.md");
        let logs = folder.path().join("logs");
        fs::create_dir(&logs)?;
        fs::write(folder.path().join("found.md"), "## Found\n\nnothing\n")?;
        let old = "# Old\n\n## Fuzzing\n\nRan 2020.\n\n| a |\n|---|\n\n### More\n\nb\n\n## Soak\n\nRan 2021.\n\n## Found\n\nold\n";
        fs::write(&page, old)?;
        fs::write(logs.join("soak.log"), "reliability: ran date=2022-02-02 time=10:00 version=1 cores=2\n")?;
        // Cut short before it ran.
        fs::write(logs.join("fuzz.log"), "")?;
        write(&logs, &page)?;
        let new = fs::read_to_string(&page)?;
        assert!(
            new.contains("\n\n## Fuzzing\n\nRan 2020.\n\n| a |\n|---|\n\n### More\n\nb\n\n## Broken flush\n"),
            "{new}"
        );
        assert!(new.contains("\n\n## Soak\n\nRan 2022-02-02 10:00 UTC") && !new.contains("2021"), "{new}");
        assert!(
            new.contains("\n\n## Broken flush\n\nNot run yet.\n\n") && new.ends_with("## Found\n\nnothing\n"),
            "{new}"
        );
        write(&logs, &page)?;
        assert_eq!(fs::read_to_string(&page)?, new);
        Ok(())
    }

    #[test]
    fn numbers_have_thousands_separators() {
        assert_eq!(["7", "1234", "1234567", "a"].map(number), ["7", "1,234", "1,234,567", "a"]);
    }
}
