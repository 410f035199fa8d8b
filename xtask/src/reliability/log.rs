//! The log of a part: lines of `reliability: `, a kind and `NAME=VALUE` pairs, among the output of tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::Result;

/// The pairs of a line. A last pair named `what` may contain spaces.
#[derive(Default)]
pub(super) struct Facts(BTreeMap<String, String>);

impl Facts {
    fn parse(line: &str) -> Self {
        let mut pairs = BTreeMap::new();
        let mut rest = line;
        while let Some((word, after)) = next_word(rest) {
            if let Some((name, value)) = word.split_once('=') {
                let sentence =
                    rest.trim_start().strip_prefix("what=").filter(|text| !text.split(' ').skip(1).any(is_pair));
                pairs.insert(name.to_owned(), sentence.unwrap_or(value).to_owned());
                if sentence.is_some() {
                    break;
                }
            }
            rest = after;
        }
        Self(pairs)
    }

    /// A value; empty if there is none.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// A value as a number.
    pub(super) fn count(&self, name: &str) -> u64 {
        self.get(name).parse().unwrap_or(0)
    }
}

fn is_pair(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| !name.is_empty())
}

fn next_word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    (!text.is_empty()).then(|| text.split_once(' ').unwrap_or((text, "")))
}

/// A part's log. A missing one counts as empty.
pub(super) struct Log {
    pub(super) text: String,
    lines: Vec<(String, Facts)>,
}

impl Log {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = if path.exists() { String::from_utf8_lossy(&fs::read(path)?).into_owned() } else { String::new() };
        Ok(Self::parse(text))
    }

    fn parse(text: String) -> Self {
        let facts = text.lines().filter_map(|line| line.split_once("reliability: ")?.1.split_once(' '));
        let lines = facts.map(|(kind, rest)| (kind.to_owned(), Facts::parse(rest))).collect();
        Self { text, lines }
    }

    /// The lines of a kind.
    pub(super) fn all<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Facts> {
        self.lines.iter().filter(move |(found, _)| found == kind).map(|(_, facts)| facts)
    }

    /// The first line of a kind.
    pub(super) fn one<'a>(&'a self, kind: &'a str) -> Option<&'a Facts> {
        self.all(kind).next()
    }

    /// Whether it is that of a run, which begins with its time.
    pub(super) fn has_run(&self) -> bool {
        self.one("ran").is_some()
    }

    /// A sentence with the time of the run, the machine and the result.
    pub(super) fn when(&self) -> String {
        let Some(ran) = self.one("ran") else { return "Not run yet.".into() };
        let how = self.one("ended").map_or_else(
            || "did not finish".into(),
            |ended| format!("{}, {} s", ended.get("status"), ended.get("seconds")),
        );
        let [date, time, version, cores] = ["date", "time", "version", "cores"].map(|name| ran.get(name));
        format!("Ran {date} {time} UTC, version {version}, on {cores} cores: {how}.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_ends_a_line_of_facts() {
        let log = Log::parse("x\nreliability: sweep calls=3 faults=12 what=flags, == of a handle\n".into());
        let facts = log.one("sweep").map(|facts| (facts.count("calls"), facts.count("faults"), facts.get("what")));
        assert_eq!(facts, Some((3, 12, "flags, == of a handle")));
        assert_eq!(log.when(), "Not run yet.");
    }
}
