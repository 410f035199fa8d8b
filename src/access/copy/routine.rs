//! [`CopyRoutine`], and its choice once per process, for write-combined memory, from the CPU's features or `VKGDR_COPY`.
#![forbid(unsafe_code)]

use std::env;
use std::fmt;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use super::{CHOSEN, Table};
use crate::report::report;

/// Forces a routine, by name.
const VARIABLE: &str = "VKGDR_COPY";

/// How the CPU copies to and from memory that it shares with the device.
///
/// Memory that the CPU caches is copied with libc's `memcpy`, and by a few moves if it is short. Memory that it does not cache,
/// such as that behind the PCIe BAR, is copied with the widest accesses that the CPU has. For tests, the
/// environment variable `VKGDR_COPY` forces one routine, by its [`name`](Self::name), on all memory that the CPU copies.
///
/// # Examples
///
/// ```
/// use vkgdr::CopyRoutine;
///
/// let supported = CopyRoutine::ALL.into_iter().filter(|routine| routine.is_supported());
/// println!("{} of {:?}", CopyRoutine::chosen(), supported.collect::<Vec<_>>());
/// assert!(CopyRoutine::chosen().is_supported());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CopyRoutine {
    /// Single bytes, for CPUs that support no other routine.
    Portable,
    /// x86-64, 16 bytes at a time: MOVNTDQA, MOVNTDQ.
    Sse41,
    /// x86-64, 32 bytes at a time.
    Avx2,
    /// x86-64, 64 bytes at a time.
    Avx512,
    /// AArch64, 32 bytes at a time: LDNP, STNP.
    Neon,
    /// The routine of cached memory: a few moves for small sizes, libc's `memcpy` for others.
    Ordinary,
}

impl CopyRoutine {
    /// Every routine: first those for write-combined memory, from worst to best.
    pub const ALL: [Self; 6] = [Self::Portable, Self::Sse41, Self::Avx2, Self::Avx512, Self::Neon, Self::Ordinary];

    /// The name, as in `VKGDR_COPY`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Sse41 => "sse41",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Neon => "neon",
            Self::Ordinary => "ordinary",
        }
    }

    /// Whether this CPU has the instructions.
    #[must_use]
    pub fn is_supported(self) -> bool {
        Table::of(self).is_some()
    }

    /// The routine for memory that the CPU does not cache: that of `VKGDR_COPY`, otherwise the best that this CPU supports.
    #[must_use]
    pub fn chosen() -> Self {
        Choice::made().routine
    }
}

impl fmt::Display for CopyRoutine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The choice of the process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Choice {
    pub(super) routine: CopyRoutine,
    pub(super) table: &'static Table,
    /// Whether it copies cached memory too.
    pub(super) forced: bool,
}

static CHOICE: OnceLock<Choice> = OnceLock::new();

impl Choice {
    pub(super) fn made() -> &'static Self {
        CHOICE.get().unwrap_or_else(|| Self::make())
    }

    /// Chooses, and logs once if the requested routine cannot be used.
    #[cold]
    fn make() -> &'static Self {
        let mut complaint = None;
        let choice = CHOICE.get_or_init(|| {
            let asked = env::var_os(VARIABLE);
            let (choice, reason) = choose(asked.as_ref().map(|name| name.to_string_lossy()).as_deref(), Table::of);
            complaint = reason;
            CHOSEN.store(ptr::from_ref(choice.table).cast_mut(), Ordering::Relaxed);
            choice
        });
        // After the choice was made, since a logger may copy.
        if let Some(complaint) = complaint {
            report!(Warn, "{complaint}");
        }
        choice
    }
}

/// The routine of that name, or the best; and a complaint if it is not the named one. An empty name requests none.
fn choose(asked: Option<&str>, table: impl Fn(CopyRoutine) -> Option<&'static Table>) -> (Choice, Option<String>) {
    let best = || {
        let uncached = CopyRoutine::ALL.into_iter().filter(|routine| *routine != CopyRoutine::Ordinary).rev();
        let mut found = uncached.filter_map(|routine| Some(Choice { routine, table: table(routine)?, forced: false }));
        found.next().unwrap_or(Choice { routine: CopyRoutine::Portable, table: Table::PORTABLE, forced: false })
    };
    let Some(name) = asked.filter(|name| !name.is_empty()) else {
        return (best(), None);
    };
    let named = CopyRoutine::ALL.into_iter().find(|routine| routine.name() == name);
    if let Some((routine, table)) = named.and_then(|routine| Some((routine, table(routine)?))) {
        return (Choice { routine, table, forced: true }, None);
    }
    let choice = best();
    let reason = if named.is_some() { "this CPU does not support it" } else { "there is no such routine" };
    let supported: Vec<_> =
        CopyRoutine::ALL.into_iter().filter(|routine| table(*routine).is_some()).map(CopyRoutine::name).collect();
    let complaint = format!(
        "{VARIABLE}={name:?}: {reason}; copying as if it were not set, with {} (supported: {})",
        choice.routine,
        supported.join(", "),
    );
    (choice, Some(complaint))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A CPU that has just these.
    fn cpu(routines: &[CopyRoutine]) -> impl Fn(CopyRoutine) -> Option<&'static Table> {
        move |routine| routines.contains(&routine).then_some(Table::PORTABLE)
    }

    const OLD: [CopyRoutine; 3] = [CopyRoutine::Portable, CopyRoutine::Sse41, CopyRoutine::Ordinary];

    #[test]
    fn the_best_routine_that_the_cpu_has_is_chosen() {
        let best = |routines: &[CopyRoutine]| choose(None, cpu(routines)).0.routine;
        assert_eq!(best(&OLD), CopyRoutine::Sse41);
        assert_eq!(best(&CopyRoutine::ALL[..4]), CopyRoutine::Avx512);
        assert_eq!(best(&[CopyRoutine::Ordinary, CopyRoutine::Portable]), CopyRoutine::Portable);
        assert_eq!(best(&[]), CopyRoutine::Portable);
    }

    #[test]
    fn a_name_forces_its_routine_if_the_cpu_has_it() {
        for routine in OLD {
            let (choice, complaint) = choose(Some(routine.name()), cpu(&OLD));
            assert_eq!((choice.routine, choice.forced, complaint), (routine, true, None));
        }
        let (choice, complaint) = choose(Some(""), cpu(&OLD));
        assert_eq!((choice.routine, choice.forced, complaint), (CopyRoutine::Sse41, false, None));
    }

    #[test]
    fn a_name_that_cannot_be_had_is_named_with_those_that_can() {
        for (name, reason) in [("avx2", "does not support it"), ("AVX2", "no such"), ("x\ny", "no such")] {
            let (choice, complaint) = choose(Some(name), cpu(&OLD));
            assert_eq!((choice.routine, choice.forced), (CopyRoutine::Sse41, false));
            let line = complaint.unwrap_or_default();
            assert!(line.contains(reason) && line.contains("with sse41"), "{line}");
            assert!(line.contains("VKGDR_COPY=") && line.contains("supported: portable, sse41, ordinary"), "{line}");
            assert!(!line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn what_this_cpu_chose_is_supported() {
        assert!(CopyRoutine::chosen().is_supported());
        assert!(CopyRoutine::Portable.is_supported() && CopyRoutine::Ordinary.is_supported());
    }
}
