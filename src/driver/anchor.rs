//! [`Anchor`]: a one-byte CUDA allocation that shows whether its context still exists.
//!
//! For contexts that hold no other memory of this crate.
#![expect(unsafe_code, reason = "frees its own memory")]

use cudarc::driver::sys::CUdeviceptr;

use super::context::Context;
use super::cuda::cuda;
use super::fork;
use super::liveness::{ContextKey, Witness};
use crate::Result;
use crate::lock::Lock;

/// The anchors of [`keep`].
static KEPT: Lock<Vec<(ContextKey, Anchor)>> = Lock::new(Vec::new());

/// Keeps the destruction of `context`, which is alive, detectable: one anchor stays in each context that needs one, for
/// as long as the context exists.
pub(crate) fn keep(context: Context) -> Result<()> {
    // A forked child inherits the locks, which another thread of its parent may have held.
    fork::check()?;
    let is_kept = |kept: &[(ContextKey, Anchor)]| kept.iter().any(|(key, _)| *key == context.key());
    if !Witness::is_needed(context.key()) || is_kept(&KEPT.lock()) {
        return Ok(());
    }
    // A capture on this thread may forbid allocations.
    let Some(anchor) = context.run(|| cuda()?.outside_captures(|| Anchor::new(context)))? else { return Ok(()) };
    let mut kept = KEPT.lock();
    if is_kept(&kept) {
        drop(kept);
        return context.run(|| anchor.release());
    }
    // An earlier context at the same address was destroyed.
    let before: Vec<_> = kept.extract_if(.., |(key, _)| key.is_at_address_of(context.key())).collect();
    kept.push((context.key(), anchor));
    // Without the lock: a witness has one of its own.
    drop(kept);
    drop(before);
    Ok(())
}

/// One byte of device memory in a context, for CUDA objects that have no address: the driver must not be asked about
/// them once their context was destroyed ([`liveness`](crate::driver::liveness)).
///
/// Not freed when dropped: the context may be gone.
#[derive(Debug)]
pub(crate) struct Anchor {
    witness: Option<Witness>,
    address: CUdeviceptr,
}

impl Anchor {
    /// An anchor in the current context, `context`; `None` where no witness is needed.
    pub(crate) fn new(context: Context) -> Result<Option<Self>> {
        if !Witness::is_needed(context.key()) {
            return Ok(None);
        }
        let address = cuda()?.memory_allocate(1)?;
        Ok(Some(Self { witness: Witness::new(context.key(), address), address }))
    }

    /// Frees the memory, in the context of its creation, which must be current.
    pub(crate) fn release(self) -> Result<()> {
        let Self { witness, address } = self;
        // First: freed memory that is still a witness would count as the context's end.
        drop(witness);
        // SAFETY: allocated by this value, which nothing uses from here on.
        unsafe { cuda()?.memory_free(address) }
    }
}
