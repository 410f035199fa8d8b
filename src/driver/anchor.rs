//! [`Anchor`]: a one-byte CUDA allocation that reveals whether its context still exists, for contexts that hold no other
//! memory of this crate.
#![expect(unsafe_code, reason = "frees its own memory")]

use cudarc::driver::sys::CUdeviceptr;

use super::context::Context;
use super::cuda::cuda;
use super::known_contexts::{ContextKey, Witness};
use crate::Result;
use crate::lock::Lock;

/// The anchors of [`keep`].
static KEPT: Lock<Vec<(ContextKey, Anchor)>> = Lock::new(Vec::new());

/// Makes sure that the end of `context`, which is alive, can be found out at any later time: one anchor in each context that
/// needs one, for as long as the context exists.
pub(crate) fn keep(context: Context) -> Result<()> {
    let is_kept = |kept: &[(ContextKey, Anchor)]| kept.iter().any(|(key, _)| *key == context.key());
    if !Witness::is_needed(context.key()) || is_kept(&KEPT.lock()) {
        return Ok(());
    }
    let Some(anchor) = context.run(|| Anchor::new(context))? else { return Ok(()) };
    let mut kept = KEPT.lock();
    if is_kept(&kept) {
        drop(kept);
        return context.run(|| anchor.release());
    }
    // A context at the same address before was destroyed.
    let before: Vec<_> = kept.extract_if(.., |(key, _)| key.is_at_address_of(context.key())).collect();
    kept.push((context.key(), anchor));
    // Without the lock: a witness has one of its own.
    drop(kept);
    drop(before);
    Ok(())
}

/// One byte of device memory in a context, for objects of CUDA without an address, of which the driver may not be asked once
/// their context was destroyed ([`known_contexts`](crate::driver::known_contexts)).
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
        // A witness that is gone would count as the context's end.
        drop(witness);
        // SAFETY: allocated by this value, which nothing uses from here on.
        unsafe { cuda()?.memory_free(address) }
    }
}
