//! The pools by handle, and each device's default and current one.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};

use super::state::Pool;
use crate::code::{Code, INVALID_DEVICE, INVALID_VALUE};
use crate::device;
use crate::handle;
use crate::sync::lock;

struct Pools {
    all: BTreeMap<usize, Arc<Pool>>,
    // Indexed by device. They are never destroyed.
    default: Vec<Arc<Pool>>,
    current: Vec<Arc<Pool>>,
}

static POOLS: LazyLock<Mutex<Pools>> = LazyLock::new(|| {
    let default: Vec<_> = (0..device::how_many()).map(|device| Pool::new(handle::next(), device, 0)).collect();
    let all = default.iter().map(|pool| (pool.handle, Arc::clone(pool))).collect();
    Mutex::new(Pools { all, current: default.clone(), default })
});

/// The number of live pools of `cuMemPoolCreate`.
pub(crate) fn count() -> usize {
    let pools = lock(&POOLS);
    pools.all.len() - pools.default.len()
}

/// Releases what the pools hold above their thresholds. Called when the program has synchronised.
pub(crate) fn release_unused() {
    all().iter().for_each(|pool| pool.trim_to_threshold());
}

pub(super) fn all() -> Vec<Arc<Pool>> {
    lock(&POOLS).all.values().cloned().collect()
}

/// The pool of that handle.
pub(super) fn get(handle: usize) -> Result<Arc<Pool>, Code> {
    lock(&POOLS).all.get(&handle).cloned().ok_or(INVALID_VALUE)
}

pub(super) fn insert(pool: Arc<Pool>) {
    lock(&POOLS).all.insert(pool.handle, pool);
}

fn index(device: i32) -> Result<usize, Code> {
    device::check(device)?;
    usize::try_from(device).map_err(|_| INVALID_DEVICE)
}

pub(super) fn default_of(device: i32) -> Result<Arc<Pool>, Code> {
    let index = index(device)?;
    Ok(Arc::clone(&lock(&POOLS).default[index]))
}

pub(super) fn current_of(device: i32) -> Result<Arc<Pool>, Code> {
    let index = index(device)?;
    Ok(Arc::clone(&lock(&POOLS).current[index]))
}

/// Makes a pool the current one of its device.
pub(super) fn set_current(device: i32, pool: &Arc<Pool>) -> Result<(), Code> {
    let index = index(device)?;
    if pool.device != device {
        return Err(INVALID_VALUE);
    }
    lock(&POOLS).current[index] = Arc::clone(pool);
    Ok(())
}

/// Removes a pool that is not a default one. Where it was the current one, the default one becomes it.
pub(super) fn remove(handle: usize) -> Result<Arc<Pool>, Code> {
    let mut pools = lock(&POOLS);
    if pools.default.iter().any(|pool| pool.handle == handle) {
        return Err(INVALID_VALUE);
    }
    let removed = pools.all.remove(&handle).ok_or(INVALID_VALUE)?;
    let Pools { default, current, .. } = &mut *pools;
    for (current, default) in current.iter_mut().zip(default) {
        if current.handle == handle {
            *current = Arc::clone(default);
        }
    }
    Ok(removed)
}
