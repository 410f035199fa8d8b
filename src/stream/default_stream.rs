//! A context's legacy default stream as a `CudaStream`, which does not own the context.
#![expect(unsafe_code, reason = "wraps contexts that it does not own")]

use std::collections::HashMap;
use std::mem::{self, ManuallyDrop};
use std::sync::{Arc, Weak};

use cudarc::driver::{CudaContext, CudaStream, DriverError};

use crate::Error;
use crate::driver::context::Context;
use crate::driver::process;
use crate::lock::Lock;

/// The legacy default stream of a context that this crate does not own.
///
/// One for each context while there is memory that uses it.
#[derive(Debug)]
pub(crate) struct DefaultStream {
    public: Borrowed,
    private: Borrowed,
}

/// A stream of a `CudaContext` that is never dropped, which would destroy the context: only its heap is freed.
#[derive(Debug)]
struct Borrowed(ManuallyDrop<Arc<CudaStream>>);

/// Why a context cannot be cudarc's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    #[error(transparent)]
    Context(#[from] Error),
    #[error(transparent)]
    Cudarc(DriverError),
}

impl DefaultStream {
    /// The stream of a live context of `device`. Restores the current context.
    pub(crate) fn of(context: Context, device: i32) -> Result<Arc<Self>, Unusable> {
        static STREAMS: Lock<Option<HashMap<Context, Weak<DefaultStream>>>> = Lock::new(None);
        process::check()?;
        let streams = || STREAMS.lock();
        if let Some(stream) = streams().as_ref().and_then(|streams| streams.get(&context)?.upgrade()) {
            return Ok(stream);
        }
        let made = context.run(|| Ok(Self::wrap(context, device)))?.map_err(Unusable::Cudarc)?;
        let mut streams = streams();
        let streams = streams.get_or_insert_default();
        // Another thread may have been faster.
        if let Some(stream) = streams.get(&context).and_then(Weak::upgrade) {
            return Ok(stream);
        }
        let made = Arc::new(made);
        streams.retain(|_, stream| stream.strong_count() > 0);
        streams.insert(context, Arc::downgrade(&made));
        Ok(made)
    }

    /// The context must be current.
    fn wrap(context: Context, device: i32) -> Result<Self, DriverError> {
        Ok(Self { public: Borrowed::new(context, device)?, private: Borrowed::new(context, device)? })
    }

    /// For the users of this crate.
    pub(crate) fn stream(&self) -> &Arc<CudaStream> {
        &self.public.0
    }

    /// For this crate: no program makes streams of its `CudaContext`, so that cudarc orders nothing by itself.
    pub(super) fn private(&self) -> &Arc<CudaStream> {
        &self.private.0
    }
}

impl Borrowed {
    /// The context must be current.
    fn new(context: Context, device: i32) -> Result<Self, DriverError> {
        let ordinal = usize::try_from(device).unwrap_or_default();
        // cudarc drops the value, and so destroys the context, if it cannot make it current: it is.
        // SAFETY: the context is live and current, and its `CudaContext`, which would destroy it, is never dropped.
        let context = unsafe { CudaContext::from_raw_context(ordinal, device, context.raw()) }?;
        Ok(Self(ManuallyDrop::new(context.default_stream())))
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        let context = ManuallyDrop::new(self.0.context().clone());
        // SAFETY: this is the last use.
        drop(unsafe { ManuallyDrop::take(&mut self.0) });
        let Some(context) = without_others(context) else { return };
        // A forked child leaves it behind: another thread may have held the lock.
        if !process::is_forked() {
            let mut kept = KEPT.lock();
            kept.push(context);
            *kept = mem::take(&mut *kept).into_iter().filter_map(without_others).collect();
        }
    }
}

/// Of streams that a program still has a clone of, which must not destroy the context either. Freed when the next such
/// stream comes here, unless the program still has its clone.
static KEPT: Lock<Vec<ManuallyDrop<Arc<CudaContext>>>> = Lock::new(Vec::new());

/// Frees the heap of a `CudaContext` without other references. The value, which has no heap of its own, is not dropped.
fn without_others(context: ManuallyDrop<Arc<CudaContext>>) -> Option<ManuallyDrop<Arc<CudaContext>>> {
    Arc::try_unwrap(ManuallyDrop::into_inner(context)).map(ManuallyDrop::new).map_err(ManuallyDrop::new).err()
}
