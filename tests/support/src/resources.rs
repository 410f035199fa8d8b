//! The descriptors and mappings of the process, counted to detect leaks.
//!
//! Take the first snapshot after a warm-up cycle, in which the drivers open files and start threads that they keep.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

pub use rustix::process::Resource;
use rustix::process::{Rlimit, getrlimit, setrlimit};

use crate::driver::is_real;

/// The permitted change in private anonymous mappings, by malloc and thread stacks; ThreadSanitizer, whose runtime splits them,
/// needs some 130 in a long run.
fn allocator_slack() -> usize {
    if std::env::var_os("TSAN_OPTIONS").is_some() { 256 } else { 64 }
}

/// The permitted change in mappings of the driver's own, which it makes and ends at times of its own.
const DRIVER_MAPPINGS: usize = 16;
/// The permitted change in descriptors of NVIDIA's driver: a context opens a dozen or so.
const DRIVER_DESCRIPTORS: usize = 64;

/// The process's file descriptors and mappings at one moment.
///
/// `==` compares every count. Leak tests use [`Snapshot::assert_unchanged`], which tolerates changes by malloc and
/// thread stacks, and some by a real driver. Where growth in each of many rounds is to be found, their number must be far
/// above what it tolerates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Open descriptors, by target.
    fds: BTreeMap<String, usize>,
    /// Open descriptors of NVIDIA's driver.
    driver_fds: usize,
    /// Mappings of a real driver's own.
    driver_mappings: usize,
    /// Shared or file-backed mappings of `/proc/self/maps`, by file.
    mappings: BTreeMap<String, usize>,
    /// Private anonymous mappings: heap, stacks.
    anonymous: usize,
    /// Bytes of shared mappings, such as exported and imported memory.
    shared_bytes: u64,
}

impl Snapshot {
    /// Takes a snapshot, without the descriptors used for taking it.
    ///
    /// # Panics
    /// When `/proc` cannot be read.
    #[must_use]
    pub fn take() -> Self {
        let (fds, driver_fds) = fds();
        let mut snapshot = Self { fds, driver_fds, ..Self::default() };
        let maps = File::open("/proc/self/maps").unwrap_or_else(|error| panic!("/proc/self/maps: {error}"));
        for line in BufReader::new(maps).lines() {
            let line = line.unwrap_or_else(|error| panic!("/proc/self/maps: {error}"));
            snapshot.count_mapping(&line);
        }
        snapshot
    }

    /// Checks that descriptors, shared and file-backed mappings and shared bytes are the same as `before`, and that the
    /// numbers of private anonymous mappings, of a real driver's mappings and of its descriptors are about the same.
    ///
    /// # Panics
    /// When they differ, with a list of the differences.
    #[track_caller]
    pub fn assert_unchanged(before: &Self) {
        let difference = Self::take().difference(before);
        assert!(difference.is_empty(), "the resources of the process changed:\n{difference}");
    }

    /// One line for each count that differs from `before`.
    pub(crate) fn difference(&self, before: &Self) -> String {
        let mut text = String::new();
        compare(&mut text, "descriptors of", &before.fds, &self.fds);
        compare(&mut text, "mappings of", &before.mappings, &self.mappings);
        if self.driver_fds.abs_diff(before.driver_fds) > DRIVER_DESCRIPTORS {
            line(&mut text, "descriptors of the driver", before.driver_fds, self.driver_fds);
        }
        if self.driver_mappings.abs_diff(before.driver_mappings) > DRIVER_MAPPINGS {
            line(&mut text, "mappings of the driver", before.driver_mappings, self.driver_mappings);
        }
        if self.shared_bytes != before.shared_bytes {
            line(&mut text, "bytes mapped shared", before.shared_bytes, self.shared_bytes);
        }
        if self.anonymous.abs_diff(before.anonymous) > allocator_slack() {
            line(&mut text, "private anonymous mappings", before.anonymous, self.anonymous);
        }
        text
    }

    /// `start-end perms offset device inode   path`, see proc_pid_maps(5).
    fn count_mapping(&mut self, line: &str) {
        let mut fields = line.splitn(6, ' ');
        let range = fields.next().unwrap_or_default();
        let shared = fields.next().is_some_and(|permissions| permissions.ends_with('s'));
        // A mapped library that has been rebuilt meanwhile counts as the same file.
        let path = fields.nth(3).unwrap_or_default().trim().trim_end_matches(" (deleted)");
        if is_the_drivers(shared, path) {
            self.driver_mappings += 1;
            return;
        }
        if shared {
            self.shared_bytes += length(range);
        }
        if shared || path.starts_with('/') {
            *self.mappings.entry(path.to_owned()).or_default() += 1;
        } else {
            self.anonymous += 1;
        }
    }
}

/// The resident bytes of the process, files and shared memory included.
///
/// # Panics
/// When `/proc` cannot be read.
#[must_use]
pub fn resident_bytes() -> u64 {
    let status =
        std::fs::read_to_string("/proc/self/status").unwrap_or_else(|error| panic!("/proc/self/status: {error}"));
    let value = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    let kib = value.trim().trim_end_matches(" kB").parse::<u64>();
    kib.unwrap_or_else(|error| panic!("VmRSS is {value:?}: {error}")) << 10
}

fn length(range: &str) -> u64 {
    let parse = |text| u64::from_str_radix(text, 16).unwrap_or(0);
    range.split_once('-').map_or(0, |(start, end)| parse(end).saturating_sub(parse(start)))
}

/// The file that glibc's malloc opens briefly, to count the CPUs, when a new thread first allocates.
const CPUS: &str = "/sys/devices/system/cpu/online";

/// The descriptors by target, and the number of those of NVIDIA's driver.
fn fds() -> (BTreeMap<String, usize>, usize) {
    let folder = std::fs::read_dir("/proc/self/fd").unwrap_or_else(|error| panic!("/proc/self/fd: {error}"));
    let own = format!("/proc/{}/fd", std::process::id());
    let (mut fds, mut driver_fds) = (BTreeMap::new(), 0);
    // A descriptor closed by another thread meanwhile has no target and is not counted.
    let targets = folder.flatten().flat_map(|entry| std::fs::read_link(entry.path()));
    for target in targets.filter(|target| target != Path::new(CPUS)) {
        let target = target.to_string_lossy();
        if is_driver_file(&target) {
            driver_fds += 1;
        } else {
            *fds.entry(kind_of(&target)).or_default() += 1;
        }
    }
    // One of the descriptors in this folder is the one that reads it.
    if let Some(count) = fds.get_mut(&own) {
        *count -= 1;
    }
    fds.retain(|_, count| *count > 0);
    (fds, driver_fds)
}

/// Prefixes of the files that NVIDIA's driver opens, maps and closes whenever it likes: its device nodes, and the memory files of
/// its graphics libraries, which its Vulkan driver uses (seen in `/proc/*/maps` of programs with libnvidia-glcore 470).
const DRIVER_PATHS: [&str; 3] = ["/dev/nvidia", "/memfd:/.gl", "/memfd:/.nvidia_drv"];

/// Whether a file is NVIDIA's driver's.
fn is_driver_file(path: &str) -> bool {
    DRIVER_PATHS.into_iter().any(|start| path.starts_with(start))
}

/// Whether a mapping is a real driver's: of its files, or anonymous and shared, which Linux shows as /dev/zero.
fn is_the_drivers(shared: bool, path: &str) -> bool {
    is_driver_file(path) || (shared && path == "/dev/zero" && is_real())
}

/// The target without the number of a pipe or socket.
fn kind_of(target: &str) -> String {
    let target = target.trim_end_matches(" (deleted)");
    let numbered = ["pipe:", "socket:"].iter().find(|kind| target.starts_with(**kind));
    numbered.map_or_else(|| target.to_owned(), |kind| (*kind).to_owned())
}

fn compare(text: &mut String, what: &str, before: &BTreeMap<String, usize>, now: &BTreeMap<String, usize>) {
    let count = |of: &BTreeMap<String, usize>, name| of.get(name).copied().unwrap_or(0);
    for name in before.keys().chain(now.keys().filter(|name| !before.contains_key(*name))) {
        if count(before, name) != count(now, name) {
            line(text, &format!("{what} {name}"), count(before, name), count(now, name));
        }
    }
}

fn line<T: std::fmt::Display>(text: &mut String, what: &str, before: T, now: T) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "  {what}: {before} -> {now}");
}

/// Sets a soft limit, at most to the hard one, and returns what it was; `u64::MAX` is no limit.
///
/// # Panics
/// When the system refuses.
#[track_caller]
pub fn limit(which: Resource, most: u64) -> u64 {
    let before = getrlimit(which);
    let current = Some(most.min(before.maximum.unwrap_or(u64::MAX)));
    setrlimit(which, Rlimit { current, ..before }).unwrap_or_else(|error| panic!("setrlimit: {error}"));
    before.current.unwrap_or(u64::MAX)
}
