//! The device's primary context: shared, counted, destroyed with the last release and made anew by the next
//! retain, then with the same handle and a new id.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex};

use super::exports::check_flags;
use super::{Context, table};
use crate::boundary::exports;
use crate::code::{INVALID_CONTEXT, Outcome};
use crate::device;
use crate::ffi::Out;
use crate::handle;
use crate::sync::lock;

static HANDLE: LazyLock<usize> = LazyLock::new(handle::next);
// Written with `FLAGS` locked; readable without, since a host function may ask while a release waits for it.
static RETAINS: AtomicUsize = AtomicUsize::new(0);
// The flags of the next primary context. Its lock is held while one is made or destroyed.
static FLAGS: Mutex<u32> = Mutex::new(0);

/// Whether the handle is the primary context's.
pub(crate) fn is(handle: usize) -> bool {
    *HANDLE == handle
}

/// How many retains are not yet released.
pub(crate) fn retains() -> usize {
    RETAINS.load(Ordering::Relaxed)
}

fn retain(out: Out<usize>, device: i32) -> Outcome {
    out.required()?;
    device::check(device)?;
    let flags = lock(&FLAGS);
    if table::find(*HANDLE).is_none() {
        table::insert(Context::new(*HANDLE, *flags));
    }
    RETAINS.fetch_add(1, Ordering::Relaxed);
    out.set(*HANDLE)
}

fn release(device: i32) -> Outcome {
    device::check(device)?;
    let _flags = lock(&FLAGS);
    let left = retains().checked_sub(1).ok_or(INVALID_CONTEXT)?;
    RETAINS.store(left, Ordering::Relaxed);
    if left == 0 {
        // A reset may have destroyed it before.
        let _ = table::destroy(*HANDLE);
    }
    Ok(())
}

// Destroys the context and leaves the retains, each of which is still to be released.
fn reset(device: i32) -> Outcome {
    device::check(device)?;
    let _flags = lock(&FLAGS);
    let _ = table::destroy(*HANDLE);
    Ok(())
}

fn state(device: i32, flags: Out<u32>, active: Out<i32>) -> Outcome {
    flags.required()?;
    active.required()?;
    device::check(device)?;
    flags.set(*lock(&FLAGS))?;
    active.set(i32::from(table::find(*HANDLE).is_some()))
}

fn set_flags(device: i32, flags: u32) -> Outcome {
    device::check(device)?;
    check_flags(flags)?;
    *lock(&FLAGS) = flags;
    if let Some(context) = table::find(*HANDLE) {
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
