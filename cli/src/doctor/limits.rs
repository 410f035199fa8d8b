//! Limits of the process.

use vkgdr::diagnosis::System;

use super::check::{Check, Level};
use crate::{linux, text};

/// The usual soft limit of open files.
const FILES: u64 = 1024;
/// The pinned memory of one context's copy engine, in bytes.
const PINNED: u64 = 2 << 20;

pub(super) fn all(system: &System) -> Vec<Check> {
    [files(system), locked(system)].into_iter().flatten().collect()
}

/// Each live allocation holds a descriptor on a real driver.
fn files(system: &System) -> Option<Check> {
    let limit = linux::limit(system, "Max open files")?;
    let check = |text: String| Check::ok("open-files", "open files", text);
    let Some(soft) = limit.soft else { return Some(check("no limit".to_owned())) };
    let found = check(format!("{soft}, of which each live allocation and each block of a pool holds one"));
    if soft >= FILES {
        return Some(found);
    }
    let raise = match limit.hard {
        // A process raises its limit up to the hard one.
        Some(hard) if hard <= soft => {
            "let root raise it (`LimitNOFILE=` of systemd, `--ulimit nofile=65536` of a container)".to_owned()
        }
        hard => format!("`ulimit -n {}`", hard.map_or_else(|| "unlimited".to_owned(), |hard| hard.to_string())),
    };
    Some(found.at(Level::Limited, format!("{raise}, or take small memory from a pool")))
}

/// Memory that is registered with CUDA, and the copy engine's, is page-locked.
fn locked(system: &System) -> Option<Check> {
    let limit = linux::limit(system, "Max locked memory")?;
    let check = |text: String| Check::ok("locked-memory", "locked memory", text);
    let Some(soft) = limit.soft else { return Some(check("no limit".to_owned())) };
    if soft >= PINNED {
        return Some(check(text::size(soft)));
    }
    // CUDA's documentation names no such limit of page-locked memory.
    let text = format!("{}: less than this library locks, if the driver counts that", text::size(soft));
    Some(check(text).at(Level::Note, "`ulimit -l unlimited`; for a container `--ulimit memlock=-1`"))
}
