//! The GPU's copy engine: copies between private memory and the device, and when they are worth it.
//!
//! [`policy`] decides (pure), [`engine`] copies, [`counters`] counts. What is kept here is one GPU's. Callers know the
//! context, and the addresses.
#![expect(unsafe_code, reason = "copies to and from addresses that are vouched for")]

pub(crate) mod calibration;
mod context_engine;
pub(crate) mod counters;
pub(crate) mod policy;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::CUdeviceptr;

use crate::Result;
use crate::driver::context::{Context, Entered};
use crate::driver::fill_pattern::FillPattern;
use crate::driver::process;
use context_engine::ContextEngine;
use counters::Counters;
use policy::{CopyThresholds, Direction, SharedThresholds};

/// What all contexts of a GPU share.
#[derive(Debug, Default)]
pub(crate) struct CopyEngines {
    thresholds: SharedThresholds,
    counters: Counters,
    /// None until they were measured.
    measured: Mutex<Option<CopyThresholds>>,
    /// Each made when it is first needed.
    engines: Mutex<Vec<Shared>>,
}

/// A context's engine. One copy at a time uses it.
#[derive(Debug, Clone)]
struct Shared {
    context: Context,
    engine: Arc<Mutex<ContextEngine>>,
}

/// Why a copy failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It has not begun.
    Unavailable(crate::Error),
    /// Some of the bytes may have been copied.
    Copy(crate::Error),
    /// As `Copy`, and the device may still be at it: waiting failed, too.
    Unfinished(crate::Error),
}

impl From<Failure> for crate::Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unavailable(error) | Failure::Copy(error) | Failure::Unfinished(error) => error,
        }
    }
}

impl CopyEngines {
    pub(crate) const fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn thresholds(&self) -> CopyThresholds {
        self.thresholds.get()
    }

    pub(crate) fn set_thresholds(&self, thresholds: CopyThresholds) {
        self.thresholds.set(thresholds);
    }

    #[inline]
    pub(crate) fn threshold(&self, direction: Direction) -> usize {
        self.thresholds.of(direction)
    }

    /// The thresholds that were measured, or those that `measure` finds now. They hold from here on. Of threads that
    /// measure at once, the first to be done is right.
    pub(crate) fn measured(&self, measure: impl FnOnce() -> Result<CopyThresholds>) -> Result<CopyThresholds> {
        let known = *lock(&self.measured);
        let thresholds = match known {
            Some(thresholds) => thresholds,
            None => {
                // Unlocked: the drivers' side may log, and the logger come here.
                let found = measure()?;
                *lock(&self.measured).get_or_insert(found)
            }
        };
        self.set_thresholds(thresholds);
        Ok(thresholds)
    }

    /// Copies `source` to the device in `context`, and waits.
    ///
    /// # Safety
    ///
    /// `source.len()` bytes must be valid at `to` in `context`, also after an `Unfinished` failure until the context
    /// has been waited for.
    pub(crate) unsafe fn write(
        &self,
        context: Context,
        to: CUdeviceptr,
        source: &[u8],
    ) -> std::result::Result<(), Failure> {
        // SAFETY: by this method's contract.
        self.within(context, |engine| unsafe { engine.write(to, source) })?;
        self.counters.count_dma(Direction::Write, source.len());
        Ok(())
    }

    /// Copies from the device in `context` to `target`, and waits.
    ///
    /// # Safety
    ///
    /// As of [`write`](Self::write), at `from`.
    pub(crate) unsafe fn read(
        &self,
        context: Context,
        from: CUdeviceptr,
        target: &mut [u8],
    ) -> std::result::Result<(), Failure> {
        let len = target.len();
        // SAFETY: by this method's contract.
        self.within(context, |engine| unsafe { engine.read(from, target) })?;
        self.counters.count_dma(Direction::Read, len);
        Ok(())
    }

    /// Repeats a value over `len` bytes of the device's in `context`, and waits. `len` is a multiple of the value's size.
    ///
    /// # Safety
    ///
    /// As of [`write`](Self::write).
    pub(crate) unsafe fn fill(
        &self,
        context: Context,
        to: CUdeviceptr,
        pattern: FillPattern,
        len: usize,
    ) -> std::result::Result<(), Failure> {
        // SAFETY: by this method's contract.
        self.within(context, |engine| unsafe { engine.fill(to, pattern, len) })?;
        self.counters.count_dma(Direction::Write, len);
        Ok(())
    }

    /// Uses the context's engine, with the context current. No copy of nothing begins: that needs no driver.
    fn within(
        &self,
        context: Context,
        copy: impl FnOnce(&mut ContextEngine) -> Result<()>,
    ) -> std::result::Result<(), Failure> {
        let mut failed = Failure::Unavailable as fn(_) -> _;
        let result = context.run(|| {
            // No lock is touched in a process that was forked off: entering the context fails there.
            let engine = self.engine(context)?;
            let mut engine = lock(&engine);
            let copied = copy(&mut engine);
            failed = if engine.is_busy() { Failure::Unfinished } else { Failure::Copy };
            copied
        });
        result.map_err(failed)
    }

    /// Whether the engine of a context is kept for further copies.
    pub(crate) const fn keeps_engine(context: Context) -> bool {
        context.is_unmistakable()
    }

    /// The engine of the context, which must be current. One that cannot be told from a later context at its address has
    /// one for each copy: the driver would not survive a stream of the earlier.
    fn engine(&self, context: Context) -> Result<Arc<Mutex<ContextEngine>>> {
        if !Self::keeps_engine(context) {
            return Ok(Arc::new(Mutex::new(ContextEngine::new()?)));
        }
        let find = |engines: &[Shared]| engines.iter().find(|shared| shared.context == context).cloned();
        if let Some(found) = find(&lock(&self.engines)) {
            return Ok(found.engine);
        }
        // Each new context pays for looking whether others are gone.
        self.collect();
        // Unlocked, as is dropping it again: the drivers' side may log, and the logger copy.
        let made = Shared { context, engine: Arc::new(Mutex::new(ContextEngine::new()?)) };
        let mut engines = lock(&self.engines);
        // Another thread may have been faster.
        let kept = find(&engines).unwrap_or_else(|| {
            engines.push(made.clone());
            made.clone()
        });
        drop(engines);
        Ok(kept.engine)
    }

    /// Lets the engines of contexts go that were destroyed. Nothing in a process that was forked off.
    pub(crate) fn collect(&self) {
        if process::is_forked() {
            return;
        }
        // Not with the lock held, since the driver is asked.
        let engines = lock(&self.engines).clone();
        for shared in engines.into_iter().filter(|shared| shared.is_orphaned()) {
            lock(&self.engines).retain(|other| !Arc::ptr_eq(&other.engine, &shared.engine));
            lock(&shared.engine).abandon();
        }
    }
}

impl Shared {
    /// Whether the context is gone, and with it what CUDA has of the engine.
    fn is_orphaned(&self) -> bool {
        matches!(self.context.try_enter(), Ok(Entered::Destroyed(_)))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
