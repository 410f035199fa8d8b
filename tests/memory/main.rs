//! Memory and its parts: allocation, access by both sides, contexts, export, and its end.

mod access;
mod contexts;
mod cycles;
mod export;
mod map;
mod memory;
mod raw;
mod region;
mod sharing;
