//! Copies between private memory and memory of the device, by the CPU and by the copy engine.

mod engine;
mod pinned;
mod policy;
mod routines;
