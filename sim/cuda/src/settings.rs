//! What the variables `SIMCUDA_*` say of the device, read once and all together.
//!
//! A variable with a value that it cannot have is ignored, and a line on stderr says so. `SIMCUDA_WEAK` ends the process
//! then, as `SIMCUDA_FAIL` does, since a test under it would test nothing.

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use simcommon::{say, stop};

pub(crate) struct Settings {
    /// Work starts when the program waits for it: `SIMCUDA_LATE`.
    pub(crate) late: bool,
    /// No work runs in the calling thread: `SIMCUDA_ASYNC`.
    pub(crate) asynchronous: bool,
    /// The seed of weak memory: `SIMCUDA_WEAK`.
    pub(crate) weak: Option<u64>,
    /// The use of a destroyed context ends the process: `SIMCUDA_STALE_CONTEXT`.
    pub(crate) stale_aborts: bool,
    /// Functions that are not simulated are not named: `SIMCUDA_QUIET`.
    pub(crate) quiet: bool,
    /// The number of devices: `SIMCUDA_DEVICES`.
    pub(crate) devices: i32,
    /// The devices' memory in MiB: `SIMCUDA_HEAP_MIB`.
    pub(crate) heap_mib: Option<usize>,
    /// The version of the driver: `SIMCUDA_DRIVER_VERSION`.
    pub(crate) driver_version: Option<i32>,
}

impl Settings {
    /// Whether no work runs in the calling thread.
    pub(crate) fn never_inline(&self) -> bool {
        self.late || self.asynchronous
    }
}

/// The number of devices of one machine: the GPUs of a large one.
const DEVICES: RangeInclusive<i32> = 1..=16;
/// 1000 for each major version, of which the first is 1.
const VERSIONS: RangeInclusive<i32> = 1_000..=i32::MAX;
/// Fewer bytes than there are addresses.
const MIB: RangeInclusive<usize> = 1..=usize::MAX >> 20;

/// The settings of this process. The boundary reads them at the first call of the driver, whichever it is.
pub(crate) fn settings() -> &'static Settings {
    static SETTINGS: LazyLock<Settings> = LazyLock::new(|| Settings {
        late: flag("SIMCUDA_LATE"),
        asynchronous: flag("SIMCUDA_ASYNC"),
        weak: seed("SIMCUDA_WEAK"),
        stale_aborts: word("SIMCUDA_STALE_CONTEXT", "abort or error", &["abort", "error"]) == Some("abort"),
        quiet: flag("SIMCUDA_QUIET"),
        devices: number("SIMCUDA_DEVICES", "a number from 1 to 16", DEVICES).unwrap_or(1),
        heap_mib: number("SIMCUDA_HEAP_MIB", "a number of MiB, such as 4096", MIB),
        driver_version: number("SIMCUDA_DRIVER_VERSION", "a number such as 12040 for CUDA 12.4", VERSIONS),
    });
    &SETTINGS
}

/// What `read` makes of a variable that is set and not empty; `None`, with a line on stderr, if that is nothing.
fn variable<T>(name: &str, must_be: &str, read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let value = std::env::var_os(name).filter(|value| !value.is_empty())?;
    let read = value.to_str().and_then(read);
    if read.is_none() {
        say!("simcuda: {name} is {value:?}, which is ignored: it must be {must_be}");
    }
    read
}

fn flag(name: &str) -> bool {
    word(name, "0 or 1", &["0", "1"]) == Some("1")
}

fn word(name: &str, must_be: &str, words: &[&'static str]) -> Option<&'static str> {
    variable(name, must_be, |value| words.iter().copied().find(|word| *word == value))
}

fn number<T: std::str::FromStr + PartialOrd>(name: &str, must_be: &str, range: RangeInclusive<T>) -> Option<T> {
    variable(name, must_be, |value| value.parse().ok().filter(|number| range.contains(number)))
}

fn seed(name: &str) -> Option<u64> {
    let text = std::env::var_os(name)?;
    let seed = text.to_str().and_then(|text| text.parse().ok());
    Some(seed.unwrap_or_else(|| stop!("simcuda: {name} has {text:?}, which is not a number")))
}
