//! A context's legacy default stream as a `CudaStream`, which does not own the context.
#![expect(unsafe_code, reason = "wraps contexts that it does not own")]

use std::collections::HashMap;
use std::mem::{self, ManuallyDrop};
use std::sync::{Arc, Weak};

use cudarc::driver::{CudaContext, CudaStream, DriverError};

use crate::Error;
use crate::driver::context::Context;
use crate::driver::fork;
use crate::lock::Lock;

/// The legacy default stream of a context that this crate does not own.
///
/// One for each context while there is memory that uses it.
#[derive(Debug)]
pub(crate) struct DefaultStream {
    public: Borrowed,
    private: Borrowed,
}

/// A stream of a `CudaContext` that is never dropped, since the drop would destroy the context. Only its heap memory is
/// freed.
#[derive(Debug)]
struct Borrowed(ManuallyDrop<Arc<CudaStream>>);

/// Why no `CudaContext` can be made of a context.
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
        fork::check()?;
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

    /// The stream that users of this crate get.
    pub(crate) fn stream(&self) -> &Arc<CudaStream> {
        &self.public.0
    }

    /// The stream that this crate itself uses. No program makes streams of its `CudaContext`, so that cudarc adds no
    /// order of its own.
    pub(super) fn private(&self) -> &Arc<CudaStream> {
        &self.private.0
    }
}

impl Borrowed {
    /// The context must be current.
    fn new(context: Context, device: i32) -> Result<Self, DriverError> {
        let ordinal = usize::try_from(device).unwrap_or_default();
        // If cudarc cannot make the context current, it drops the value, which destroys the context. The context is
        // current already.
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
        if !fork::is_forked() {
            let mut kept = KEPT.lock();
            kept.push(context);
            *kept = mem::take(&mut *kept).into_iter().filter_map(without_others).collect();
        }
    }
}

/// `CudaContext`s kept because the program still has a clone of their stream. Dropping one would destroy a context that
/// this crate does not own. When another one is added, the heap memory of those without a clone is freed.
static KEPT: Lock<Vec<ManuallyDrop<Arc<CudaContext>>>> = Lock::new(Vec::new());

/// Frees the heap memory of a `CudaContext` without dropping the value, which has no heap memory of its own. Returns
/// the context if it has other references.
fn without_others(context: ManuallyDrop<Arc<CudaContext>>) -> Option<ManuallyDrop<Arc<CudaContext>>> {
    Arc::try_unwrap(ManuallyDrop::into_inner(context)).map(ManuallyDrop::new).map_err(ManuallyDrop::new).err()
}
