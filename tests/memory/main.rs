//! Memory and regions: allocation, access from both sides, contexts, export, sharing and freeing.

mod access;
mod conformance;
mod contexts;
mod cycles;
mod export;
mod fallback;
mod ipc;
mod ipc_hostile;
mod lookup;
mod map;
mod memory;
mod raw;
mod reset;
mod sharing;
mod trace;
