//! The atomics and cells of `sync`: the standard library's, or loom's under `--cfg loom`.
//!
//! `cargo xtask sanitize loom` runs the models.
#![cfg_attr(not(all(test, loom)), forbid(unsafe_code))]

#[cfg(all(test, loom))]
pub(crate) use loom::{
    cell::{MutPtr, UnsafeCell},
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering},
    thread::yield_now,
};
#[cfg(not(all(test, loom)))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering},
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
    pub(crate) fn get_mut(&self) -> MutPtr<T> {
        MutPtr(self.0.get())
    }
}

/// A pointer to the content of a cell. loom's checks that nothing else reaches the content while it lives.
#[cfg(not(all(test, loom)))]
#[derive(Debug)]
pub(crate) struct MutPtr<T>(*mut T);

#[cfg(not(all(test, loom)))]
impl<T> MutPtr<T> {
    #[inline]
    pub(crate) fn with<R>(&self, work: impl FnOnce(*mut T) -> R) -> R {
        work(self.0)
    }
}
