//! Counts of live objects, taken from the object tables themselves.

use crate::memory::table::{self, Kind};
use crate::{external, graph, lifecycle, module, pool, semaphore, stream, virtual_memory};

const NOUNS: [&str; 17] = [
    "memory",
    "pool",
    "graph",
    "executable",
    "host",
    "external",
    "semaphore",
    "allocation",
    "reservation",
    "mapped",
    "stream",
    "event",
    "module",
    "library",
    "linker",
    "context",
    "primary",
];

/// The number of live objects of all nouns.
pub(crate) fn total() -> usize {
    NOUNS.iter().filter_map(|noun| of(noun)).sum()
}

/// The number of live objects of one noun.
pub(crate) fn of(noun: &str) -> Option<usize> {
    Some(match noun {
        "memory" => table::count(|kind| matches!(kind, Kind::Device | Kind::Pooled { .. } | Kind::Managed)),
        "pool" => pool::count(),
        "graph" => graph::count(),
        "executable" => graph::executables(),
        "host" => table::count(|kind| matches!(kind, Kind::Host { .. } | Kind::Registered { .. })),
        "mapped" => table::count(|kind| matches!(kind, Kind::Imported | Kind::Shared)),
        "external" => external::count(),
        "semaphore" => semaphore::count(),
        "allocation" => virtual_memory::allocations(),
        "reservation" => virtual_memory::reservations(),
        "stream" => stream::table::STREAMS.count(),
        "event" => stream::event::count(),
        "module" => module::table::count(),
        "library" => module::library::count(),
        "linker" => module::link::count(),
        "context" => lifecycle::create::count(),
        "primary" => lifecycle::primary::retains(),
        _ => return None,
    })
}
