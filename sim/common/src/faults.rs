#![forbid(unsafe_code)]
//! Injected failures: each waits for the nth call of one function, or of any, and fires once.

use crate::stop;

/// The name that stands for any function.
pub const ANY: &str = "*";

/// The name by which calls of a function are counted; `None` where no call of it can fail with that code.
pub type Check = fn(function: &str, code: i32) -> Option<&str>;

#[derive(Debug)]
struct Fault {
    function: String,
    calls_left: u64,
    code: i32,
}

/// The pending failures, and the function that failed last.
#[derive(Debug, Default)]
pub struct Faults {
    pending: Vec<Fault>,
    last: Option<&'static str>,
}

impl Faults {
    /// Those that a variable lists: `function:nth:code,…`. A mistake ends the process, since a test that
    /// injects nothing would pass without testing anything. The line on stderr begins with `owner`, and ends
    /// with `what` an entry must be.
    #[must_use]
    pub fn from_environment(owner: &str, variable: &str, check: Check, what: &str) -> Faults {
        let mut faults = Faults::default();
        let text = std::env::var(variable).unwrap_or_default();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let added = parse(entry).and_then(|(function, nth, code)| faults.add(function, nth, code, check));
            added.unwrap_or_else(|| stop!("{owner}: {variable} has {entry:?}, which is not {what}"));
        }
        faults
    }

    /// Makes the nth call from now fail; 1 is the next. `None` for arguments that are not possible.
    pub fn add(&mut self, function: &str, nth: u64, code: i32, check: Check) -> Option<()> {
        let function = check(function, code).filter(|_| nth > 0)?.to_owned();
        self.pending.push(Fault { function, calls_left: nth, code });
        Some(())
    }

    /// Counts a call, for [`ANY`] if `any` says so; the code of a failure that is due. Of two that are due at
    /// one call, the first counts, and both are consumed.
    pub fn count(&mut self, function: &'static str, any: bool) -> Option<i32> {
        let mut code = None;
        self.pending.retain_mut(|fault| {
            if fault.function == function || any && fault.function == ANY {
                fault.calls_left -= 1;
            }
            let due = fault.calls_left == 0;
            code = code.or(due.then_some(fault.code));
            !due
        });
        if code.is_some() {
            self.last = Some(function);
        }
        code
    }

    /// Whether none is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The function that failed last by injection.
    #[must_use]
    pub fn last(&self) -> Option<&'static str> {
        self.last
    }
}

/// `function:nth:code`
fn parse(entry: &str) -> Option<(&str, u64, i32)> {
    let mut parts = entry.split(':');
    let (function, nth, code) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next().is_none().then_some((function, nth, code))
}

/// The name of a function of the CUDA driver without suffixes for versions and default streams: `cuMemFree` for `cuMemFree_v2`.
#[must_use]
pub fn base_name(name: &str) -> &str {
    let name = name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds")).unwrap_or(name);
    match name.rsplit_once("_v") {
        Some((base, version)) if version.bytes().all(|b| b.is_ascii_digit()) => base,
        _ => name,
    }
}
