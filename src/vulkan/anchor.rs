//! [`Anchor`]: memory of CUDA that shows whether the context of a semaphore still exists.
#![expect(unsafe_code, reason = "frees its own memory")]

use cudarc::driver::sys::CUdeviceptr;

use crate::Result;
use crate::driver::context::Context;
use crate::driver::cuda::cuda;
use crate::driver::known_contexts::Witness;

/// One byte of device memory in a context, for objects of CUDA without an address, of which the driver may not be asked once
/// their context was destroyed ([`known_contexts`](crate::driver::known_contexts)).
///
/// Not freed when dropped: the context may be gone.
#[derive(Debug)]
pub(super) struct Anchor {
    witness: Option<Witness>,
    address: CUdeviceptr,
}

impl Anchor {
    /// An anchor in the current context, `context`; none where no witness is needed.
    pub(super) fn new(context: Context) -> Result<Option<Self>> {
        if !Witness::is_needed(context.key()) {
            return Ok(None);
        }
        let address = cuda()?.memory_allocate(1)?;
        Ok(Some(Self { witness: Witness::new(context.key(), address), address }))
    }

    /// Frees the memory, in the context of its creation, which must be current.
    pub(super) fn release(self) -> Result<()> {
        let Self { witness, address } = self;
        // A witness that is gone would count as the context's end.
        drop(witness);
        // SAFETY: allocated by this value, which nothing uses from here on.
        unsafe { cuda()?.memory_free(address) }
    }
}
