//! [`Liveness`] of CUDA contexts, found out by a [`Witness`], without passing a possibly destroyed handle to the driver.
//!
//! A `CUcontext` that was destroyed must not reach the driver: the effect is undefined, and another context may have its
//! address by then. Three queries are always safe: the current context (pass null), a device's primary context, and the
//! attributes of an address. So a context that is not a primary one is remembered with its witnesses, addresses of memory
//! that CUDA has in that context only: the driver forgets them with the context. A witness is removed from the record before
//! its memory is freed, so that this crate's own frees never look like a destroyed context.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use cudarc::driver::sys::{CUdevice, CUdeviceptr};

use super::cuda::{Cuda, PointerAttributes, cuda};
use super::fork;
use crate::Result;
use crate::error::CudaCode;
use crate::lock::Lock;

/// The contexts that were seen alive and are not known to be gone, by address. A remembered context that is missing
/// here, or has another id here, was destroyed.
static KNOWN: Lock<BTreeMap<usize, Known>> = Lock::new(BTreeMap::new());

#[derive(Debug)]
struct Known {
    id: Option<u64>,
    /// The device whose primary context it is.
    primary: Option<CUdevice>,
    witnesses: BTreeMap<CUdeviceptr, PointerAttributes>,
}

/// The identity of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ContextKey {
    pub(super) address: usize,
    /// Unique in the process; none before CUDA 12.
    pub(super) id: Option<u64>,
}

impl ContextKey {
    pub(super) const fn is_at_address_of(self, other: Self) -> bool {
        self.address == other.address
    }
}

/// Whether a context exists, as far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Liveness {
    Alive,
    Destroyed,
    /// Neither is proven: a context of `cuCtxCreate` without memory of this crate, or a driver that cannot tell.
    Unknown,
}

/// Records a context, which is alive. `primary` finds out whether it is a device's primary context.
pub(super) fn add(context: ContextKey, primary: impl FnOnce() -> Option<CUdevice>) {
    if with(context, |_| ()).is_some() {
        return;
    }
    // Without the lock: this asks the driver.
    let primary = primary();
    let mut known = KNOWN.lock();
    let at = known.entry(context.address);
    let new = || Known { id: context.id, primary, witnesses: BTreeMap::new() };
    let found = at.or_insert_with(new);
    if found.id != context.id {
        // The context before was destroyed, and this one has its address.
        *found = new();
    }
}

/// Records that a context was destroyed.
pub(super) fn remove(context: ContextKey) {
    let mut known = KNOWN.lock();
    if known.get(&context.address).is_some_and(|known| known.id == context.id) {
        known.remove(&context.address);
    }
}

/// The record of a context; none once it is known to be gone.
fn with<T>(context: ContextKey, change: impl FnOnce(&mut Known) -> T) -> Option<T> {
    KNOWN.lock().get_mut(&context.address).filter(|known| known.id == context.id).map(change)
}

/// Whether the context, which is not current, still exists. `is_primary` finds out whether it is a device's primary context
/// now.
///
/// # Errors
///
/// The driver's errors for questions about a primary context, and `CUDA_ERROR_DEINITIALIZED` when CUDA has shut down with the
/// process.
pub(super) fn ask(context: ContextKey, cuda: &Cuda, is_primary: impl Fn(CUdevice) -> Result<bool>) -> Result<Liveness> {
    /// Other threads may be freeing the memory that is asked about.
    const WITNESSES: usize = 4;
    for _ in 0..WITNESSES {
        let Some((witness, primary)) =
            with(context, |known| (known.witnesses.last_key_value().map(|(at, then)| (*at, *then)), known.primary))
        else {
            return Ok(Liveness::Destroyed);
        };
        let liveness = match witness {
            // Whether the driver answers where no context is current is not documented.
            Some((address, then)) => match cuda.pointer_attributes(address) {
                Ok(now) if now == then && then.is_unique() => return Ok(Liveness::Alive),
                Ok(now) if now != then => {
                    // This crate may have freed the memory since.
                    if with(context, |known| known.witnesses.get(&address) == Some(&then)) != Some(true) {
                        continue;
                    }
                    Liveness::Destroyed
                }
                Err(error) if error.cuda_code() == Some(CudaCode::DEINITIALIZED) => return Err(error),
                _ => ask_primary(primary, &is_primary)?,
            },
            None => ask_primary(primary, &is_primary)?,
        };
        if liveness == Liveness::Destroyed {
            remove(context);
        }
        return Ok(liveness);
    }
    Ok(Liveness::Unknown)
}

/// Whether the context is still the device's primary context.
fn ask_primary(primary: Option<CUdevice>, is_primary: impl Fn(CUdevice) -> Result<bool>) -> Result<Liveness> {
    let Some(device) = primary else { return Ok(Liveness::Unknown) };
    Ok(if is_primary(device)? { Liveness::Alive } else { Liveness::Destroyed })
}

/// Memory of this crate by which the driver shows that a context exists. Dropped before the memory is freed.
#[derive(Debug)]
pub(crate) struct Witness {
    context: ContextKey,
    address: CUdeviceptr,
}

impl Witness {
    /// Whether only a witness can show that `context`, which is alive, still exists. False for a device's primary
    /// context, and before CUDA 12, where a context cannot be told from a later one at its address.
    pub(crate) fn is_needed(context: ContextKey) -> bool {
        context.id.is_some() && with(context, |known| known.primary.is_none()).unwrap_or(false)
    }

    /// An address in memory that CUDA has in `context`, which is alive, and in no other. `None` where it
    /// [needs none](Self::is_needed), and where the driver does not know the address.
    pub(crate) fn new(context: ContextKey, address: CUdeviceptr) -> Option<Self> {
        if !Self::is_needed(context) {
            return None;
        }
        let then = cuda().and_then(|cuda| cuda.pointer_attributes(address)).ok()?;
        if then == PointerAttributes::default() {
            return None;
        }
        with(context, |known| known.witnesses.insert(address, then))?;
        Some(Self { context, address })
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        // A thread that a forked child does not have may hold the lock.
        if !fork::is_forked() {
            with(self.context, |known| known.witnesses.remove(&self.address));
        }
    }
}
