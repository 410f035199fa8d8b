//! Copies between private memory and the device by a GPU's copy engine.
//!
//! [`policy`] chooses between CPU and engine and calls no driver, [`context_engine`] copies. Callers are responsible for
//! contexts and addresses.
#![expect(unsafe_code, reason = "copies to and from device addresses that callers vouch for")]

mod context_engine;
pub(crate) mod policy;

use std::mem::ManuallyDrop;
use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;

use crate::Result;
use crate::driver::context::{Context, Entered};
use crate::driver::fill_pattern::FillPattern;
use crate::driver::fork;
use crate::lock::Lock;
use context_engine::ContextEngine;

/// A handle's engines, one per context. They end with the handle, in their contexts.
#[derive(Debug, Default)]
pub(crate) struct CopyEngines {
    /// Created by [`prepare`](Self::prepare), and by a copy on [`CopyPath::Engine`](policy::CopyPath::Engine).
    engines: Lock<Vec<Shared>>,
}

/// The engine of a context, used by one copy at a time.
#[derive(Debug, Clone)]
struct Shared {
    context: Context,
    engine: Arc<Lock<ContextEngine>>,
}

/// Why a copy failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The copy has not begun.
    Unavailable(crate::Error),
    /// Some of the bytes may have been copied.
    Copy(crate::Error),
    /// Some of the bytes may have been copied, and the device may still be copying: the wait failed, too.
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
        self.within(context, |engine| unsafe { engine.write(to, source) })
    }

    /// Copies from the device in `context` to `target`, and waits.
    ///
    /// # Safety
    ///
    /// The contract of [`write`](Self::write), at `from`.
    pub(crate) unsafe fn read(
        &self,
        context: Context,
        from: CUdeviceptr,
        target: &mut [u8],
    ) -> std::result::Result<(), Failure> {
        // SAFETY: by this method's contract.
        self.within(context, |engine| unsafe { engine.read(from, target) })
    }

    /// Fills `len` bytes on the device in `context`, and waits. `len` is a multiple of the pattern's size.
    ///
    /// # Safety
    ///
    /// The contract of [`write`](Self::write).
    pub(crate) unsafe fn fill(
        &self,
        context: Context,
        to: CUdeviceptr,
        pattern: FillPattern,
        len: usize,
    ) -> std::result::Result<(), Failure> {
        // SAFETY: by this method's contract.
        self.within(context, |engine| unsafe { engine.fill(to, pattern, len) })
    }

    /// Runs `copy` with the context's engine, in that context.
    fn within(
        &self,
        context: Context,
        copy: impl FnOnce(&mut ContextEngine) -> Result<()>,
    ) -> std::result::Result<(), Failure> {
        let mut failed = Failure::Unavailable as fn(_) -> _;
        let result = context.run(|| {
            // A forked child fails to enter the context, and so does not wait for a lock that may be held for ever.
            let engine = self.engine(context)?;
            let mut engine = engine.lock_across_waits();
            failed = Failure::Copy;
            // For an earlier copy that failed: this one has not begun, so that its memory is not in use.
            engine.wait_for_all()?;
            let copied = copy(&mut engine);
            if engine.is_busy() {
                failed = Failure::Unfinished;
            }
            copied
        });
        result.map_err(failed)
    }

    /// Makes the context's engine unless it exists. Does nothing where engines are not kept, see [`engine`](Self::engine).
    pub(crate) fn prepare(&self, context: Context) -> Result<()> {
        fork::check()?;
        if !context.has_unique_id() || self.is_prepared(context) {
            return Ok(());
        }
        context.run(|| self.engine(context).map(drop))
    }

    /// Whether the context has an engine. False in a forked child.
    pub(crate) fn is_prepared(&self, context: Context) -> bool {
        // A thread that a forked child does not have may hold the lock.
        !fork::is_forked() && self.engines.lock().iter().any(|shared| shared.context == context)
    }

    /// The engine of the current context. A context that cannot be told from a later one at its address gets a new engine
    /// for each copy: the driver would crash on a stream of the earlier one.
    fn engine(&self, context: Context) -> Result<Arc<Lock<ContextEngine>>> {
        if !context.has_unique_id() {
            return Ok(Arc::new(Lock::new(ContextEngine::new()?)));
        }
        let find = |engines: &[Shared]| engines.iter().find(|shared| shared.context == context).cloned();
        if let Some(found) = find(&self.engines.lock()) {
            return Ok(found.engine);
        }
        // Made, and dropped, without the lock: a driver may log, and the logger copy.
        let made = Shared { context, engine: Arc::new(Lock::new(ContextEngine::new()?)) };
        let mut engines = self.engines.lock();
        // Another thread may have added one meanwhile.
        let kept = find(&engines).unwrap_or_else(|| {
            engines.push(made.clone());
            made.clone()
        });
        drop(engines);
        Ok(kept.engine)
    }
}

impl Drop for CopyEngines {
    fn drop(&mut self) {
        if fork::is_forked() {
            // Everything is the parent's.
            let _ = ManuallyDrop::new(std::mem::take(self.engines.get_mut()));
            return;
        }
        for Shared { context, engine } in self.engines.get_mut().drain(..) {
            // A context of `cuCtxCreate` may be gone: its owner need not keep it for the handle, whose memory in it is gone.
            let may_be_gone = context.primary_device().is_none() && !context.is_current().unwrap_or(false);
            if may_be_gone {
                engine.lock().leave();
                continue;
            }
            match context.try_enter() {
                Ok(Entered::Current(_)) => drop(engine),
                Ok(Entered::Destroyed(_) | Entered::ShutDown(_)) => engine.lock().abandon(),
                Err(_) => engine.lock().leave(),
            }
        }
    }
}
