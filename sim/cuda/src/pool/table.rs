//! The pools by handle, and each device's default and current one.

use std::sync::{Arc, LazyLock, Mutex};

use super::state::Pool;
use crate::code::{Code, INVALID_DEVICE, INVALID_VALUE};
use crate::device;
use crate::handle::{self, Handles};
use crate::sync::lock;

/// The devices' default pools, by device. They are never destroyed.
static DEFAULTS: LazyLock<Vec<Arc<Pool>>> =
    LazyLock::new(|| (0..device::how_many()).map(|device| Pool::new(handle::next(), device, 0)).collect());
/// The devices' current pools, by device.
static CURRENT: LazyLock<Mutex<Vec<Arc<Pool>>>> = LazyLock::new(|| Mutex::new(DEFAULTS.clone()));
/// The pools of `cuMemPoolCreate`.
static POOLS: Handles<Arc<Pool>> = Handles::new(INVALID_VALUE);

/// The number of live pools of `cuMemPoolCreate`.
pub(crate) fn count() -> usize {
    POOLS.count()
}

/// Releases what the pools hold above their thresholds. Called when the program has synchronised.
pub(crate) fn release_unused() {
    all().iter().for_each(|pool| pool.trim_to_threshold());
}

pub(super) fn all() -> Vec<Arc<Pool>> {
    DEFAULTS.iter().chain(POOLS.lock().values()).cloned().collect()
}

/// The pool of that handle.
pub(super) fn get(handle: usize) -> Result<Arc<Pool>, Code> {
    let default = DEFAULTS.iter().find(|pool| pool.handle == handle);
    default.map_or_else(|| POOLS.get(handle), |pool| Ok(Arc::clone(pool)))
}

pub(super) fn insert(pool: Arc<Pool>) {
    POOLS.insert_at(pool.handle, pool);
}

fn index(device: i32) -> Result<usize, Code> {
    device::check(device)?;
    usize::try_from(device).map_err(|_| INVALID_DEVICE)
}

pub(super) fn default_of(device: i32) -> Result<Arc<Pool>, Code> {
    Ok(Arc::clone(&DEFAULTS[index(device)?]))
}

pub(super) fn current_of(device: i32) -> Result<Arc<Pool>, Code> {
    Ok(Arc::clone(&lock(&CURRENT)[index(device)?]))
}

/// Makes a pool the current one of its device.
pub(super) fn set_current(device: i32, pool: &Arc<Pool>) -> Result<(), Code> {
    let index = index(device)?;
    if pool.device != device {
        return Err(INVALID_VALUE);
    }
    lock(&CURRENT)[index] = Arc::clone(pool);
    Ok(())
}

/// Removes a pool that is not a default one. Where it was the current one, the default one becomes it.
pub(super) fn remove(handle: usize) -> Result<Arc<Pool>, Code> {
    let removed = POOLS.remove(handle)?;
    for (current, default) in lock(&CURRENT).iter_mut().zip(&*DEFAULTS) {
        if current.handle == handle {
            *current = Arc::clone(default);
        }
    }
    Ok(removed)
}
