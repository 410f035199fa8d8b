//! The atomics and cells of what loom model-checks: the standard library's, or loom's under `--cfg loom`.
//!
//! `RUSTFLAGS='--cfg loom' cargo test --release --lib --target-dir target/loom loom` runs the models, which stand in a
//! module `loom_tests` of each file that uses this one.
#![cfg_attr(not(all(test, loom)), forbid(unsafe_code))]

#[cfg(all(test, loom))]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread::yield_now,
};
#[cfg(not(all(test, loom)))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread::yield_now,
};

/// The standard library's cell with the interface of loom's.
#[cfg(not(all(test, loom)))]
#[derive(Debug, Default)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(all(test, loom)))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline]
    pub(crate) fn with_mut<R>(&self, work: impl FnOnce(*mut T) -> R) -> R {
        work(self.0.get())
    }
}
