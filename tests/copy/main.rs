//! Copies between private memory and the library's memory, by the CPU and by the copy engine.

mod engine;
mod policy;
mod routines;
