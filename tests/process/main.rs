//! Processes that fork, are killed, run out of descriptors or share memory.

mod ends;
mod fork;
mod fork_ends;
mod ipc;
mod limits;

use vkgdr::{MemoryKind, OpenFlags};

const NONE: OpenFlags = OpenFlags::empty();
const FORCED: OpenFlags = OpenFlags::FORCE_NON_COHERENT;
const MAPPED: MemoryKind = MemoryKind::Mapped;
/// Not a multiple of an atom.
const SIZE: usize = 4097;
