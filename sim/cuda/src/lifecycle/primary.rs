//! The devices' primary contexts: shared and reference-counted. The last release destroys one, the next retain creates
//! it again with a new id, and with the same handle unless other contexts may have got that.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex};

use super::destroy::destroy;
use crate::boundary::exports;
use crate::code::{Code, INVALID_CONTEXT, INVALID_DEVICE, Outcome};
use crate::context::{Context, check_flags, stale, table};
use crate::device;
use crate::ffi::Out;
use crate::sync::lock;

/// The part of a device's primary context that outlives it.
struct Primary {
    // Written with `flags` locked. 0 while there is none.
    handle: AtomicUsize,
    // Written with `flags` locked; read without the lock, since a host function may query it while a release waits.
    retains: AtomicUsize,
    // The flags of the next context. Locked while a context is created or destroyed.
    flags: Mutex<u32>,
}

// Indexed by device.
static PRIMARIES: LazyLock<Vec<Primary>> = LazyLock::new(|| {
    let new = |_| Primary { handle: AtomicUsize::new(0), retains: AtomicUsize::new(0), flags: Mutex::new(0) };
    (0..device::how_many()).map(new).collect()
});

impl Primary {
    fn handle(&self) -> usize {
        self.handle.load(Ordering::Relaxed)
    }

    /// Destroys the context, if there is one. `flags` is locked.
    fn destroy(&self) {
        let handle = self.handle();
        if stale::reuses() {
            self.handle.store(0, Ordering::Relaxed);
        }
        if table::find(handle).is_some() {
            let _ = destroy(handle);
        }
    }
}

fn of(device: i32) -> Result<&'static Primary, Code> {
    usize::try_from(device).ok().and_then(|device| PRIMARIES.get(device)).ok_or(INVALID_DEVICE)
}

/// Whether the handle is a primary context's.
pub(crate) fn is(handle: usize) -> bool {
    handle != 0 && PRIMARIES.iter().any(|primary| primary.handle() == handle)
}

/// The number of retains without a release.
pub(crate) fn retains() -> usize {
    PRIMARIES.iter().map(|primary| primary.retains.load(Ordering::Relaxed)).sum()
}

fn retain(out: Out<usize>, device: i32) -> Outcome {
    out.required()?;
    let primary = of(device)?;
    let flags = lock(&primary.flags);
    if primary.handle() == 0 {
        primary.handle.store(stale::address(), Ordering::Relaxed);
    }
    if table::find(primary.handle()).is_none() {
        table::insert(Context::new(primary.handle(), device, *flags));
    }
    primary.retains.fetch_add(1, Ordering::Relaxed);
    out.set(primary.handle())
}

fn release(device: i32) -> Outcome {
    let primary = of(device)?;
    let _flags = lock(&primary.flags);
    let left = primary.retains.load(Ordering::Relaxed).checked_sub(1).ok_or(INVALID_CONTEXT)?;
    primary.retains.store(left, Ordering::Relaxed);
    if left == 0 {
        // A reset may have destroyed it already.
        primary.destroy();
    }
    Ok(())
}

// Destroys the context but not the retains, each of which still needs its release.
fn reset(device: i32) -> Outcome {
    let primary = of(device)?;
    let _flags = lock(&primary.flags);
    primary.destroy();
    Ok(())
}

fn state(device: i32, flags: Out<u32>, active: Out<i32>) -> Outcome {
    flags.required()?;
    active.required()?;
    let primary = of(device)?;
    flags.set(*lock(&primary.flags))?;
    active.set(i32::from(table::find(primary.handle()).is_some()))
}

fn set_flags(device: i32, flags: u32) -> Outcome {
    let primary = of(device)?;
    check_flags(flags)?;
    *lock(&primary.flags) = flags;
    if let Some(context) = table::find(primary.handle()) {
        context.set_flags(flags);
    }
    Ok(())
}

exports! {
    cuDevicePrimaryCtxRetain => retain(out: Out<usize>, device: i32);
    cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease => release(device: i32), Release;
    cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset => reset(device: i32), Release;
    cuDevicePrimaryCtxGetState => state(device: i32, flags: Out<u32>, active: Out<i32>);
    cuDevicePrimaryCtxSetFlags_v2, cuDevicePrimaryCtxSetFlags => set_flags(device: i32, flags: u32);
}
