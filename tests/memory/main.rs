//! Memory: allocation, access from both sides, contexts, export, sharing and freeing.

mod conformance;
mod contexts;
mod cycles;
mod export;
mod fallback;
mod ipc;
mod ipc_hostile;
mod lookup;
mod raw;
mod reset;
mod trace;

use vkgdr::{MemoryKind, OpenFlags};

const NONE: OpenFlags = OpenFlags::empty();
const FORCED: OpenFlags = OpenFlags::FORCE_NON_COHERENT;
const MAPPED: MemoryKind = MemoryKind::Mapped;
/// Not a multiple of an atom.
const SIZE: usize = 4097;
