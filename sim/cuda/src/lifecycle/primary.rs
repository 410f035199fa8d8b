//! The devices' primary contexts: shared and reference-counted. The last release destroys one, the next retain creates
//! it again with a new id, and with the same handle unless other contexts may have got that.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard};
use std::thread::{self, ThreadId};

use super::destroy::end;
use crate::boundary::exports;
use crate::code::{Code, INVALID_CONTEXT, INVALID_DEVICE, NOT_PERMITTED, Outcome};
use crate::context::{Context, check_flags, stale, table};
use crate::device;
use crate::ffi::Out;
use crate::sync::{Condition, lock};

type Lock<'a> = MutexGuard<'a, Option<ThreadId>>;

/// The part of a device's primary context that outlives it.
#[derive(Default)]
struct Primary {
    // `handle` and `retains` are written with `ending` locked and read without it. The handle is 0 while no context exists.
    handle: AtomicUsize,
    retains: AtomicUsize,
    // The flags of the next context.
    flags: AtomicU32,
    // The thread that ends the context. Locked while a context is created or taken out of the table, never while work is
    // waited for: signal handlers and other threads may ask for the state meanwhile.
    ending: Mutex<Option<ThreadId>>,
    ended: Condition,
}

// Indexed by device.
static PRIMARIES: LazyLock<Vec<Primary>> =
    LazyLock::new(|| (0..device::how_many()).map(|_| Primary::default()).collect());

impl Primary {
    fn handle(&self) -> usize {
        self.handle.load(Ordering::Relaxed)
    }

    /// Waits until no other thread ends the context. A signal handler of the thread that ends it would wait for itself, and
    /// is refused.
    fn settled<'a>(&'a self, mut ending: Lock<'a>) -> Result<Lock<'a>, Code> {
        while let Some(thread) = *ending {
            if thread == thread::current().id() {
                return Err(NOT_PERMITTED);
            }
            (ending, _) = self.ended.wait(&self.ending, ending, None);
        }
        Ok(ending)
    }

    /// Destroys the context, if there is one that no thread is ending.
    fn destroy(&self, mut ending: Lock<'_>) {
        let handle = self.handle();
        if stale::reuses() {
            self.handle.store(0, Ordering::Relaxed);
        }
        // A reset may have destroyed it already.
        if table::find(handle).is_none() {
            return;
        }
        let Ok(context) = table::remove(handle) else { return };
        *ending = Some(thread::current().id());
        drop(ending);
        let _end = Ending(self);
        end(&context);
    }
}

/// The end of a primary context, until it is dropped.
struct Ending<'a>(&'a Primary);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        *lock(&self.0.ending) = None;
        self.0.ended.notify_all();
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
    let _settled = primary.settled(lock(&primary.ending))?;
    if primary.handle() == 0 {
        primary.handle.store(stale::address(), Ordering::Relaxed);
    }
    if table::find(primary.handle()).is_none() {
        table::insert(Context::new(primary.handle(), device, primary.flags.load(Ordering::Relaxed)));
    }
    primary.retains.fetch_add(1, Ordering::Relaxed);
    out.set(primary.handle())
}

fn release(device: i32) -> Outcome {
    let primary = of(device)?;
    let ending = lock(&primary.ending);
    let left = primary.retains.load(Ordering::Relaxed).checked_sub(1).ok_or(INVALID_CONTEXT)?;
    primary.retains.store(left, Ordering::Relaxed);
    // Unless it was retained again meanwhile. A signal handler leaves the end to the call that it interrupted.
    if left == 0
        && let Ok(ending) = primary.settled(ending)
        && primary.retains.load(Ordering::Relaxed) == 0
    {
        primary.destroy(ending);
    }
    Ok(())
}

// Destroys the context but not the retains, each of which still needs its release.
fn reset(device: i32) -> Outcome {
    let primary = of(device)?;
    if let Ok(ending) = primary.settled(lock(&primary.ending)) {
        primary.destroy(ending);
    }
    Ok(())
}

fn state(device: i32, flags: Out<u32>, active: Out<i32>) -> Outcome {
    flags.required()?;
    active.required()?;
    let primary = of(device)?;
    flags.set(primary.flags.load(Ordering::Relaxed))?;
    active.set(i32::from(table::find(primary.handle()).is_some()))
}

fn set_flags(device: i32, flags: u32) -> Outcome {
    let primary = of(device)?;
    check_flags(flags)?;
    let _ending = lock(&primary.ending);
    primary.flags.store(flags, Ordering::Relaxed);
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
