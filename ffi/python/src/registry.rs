//! Every live allocation, to be found by its number or by an address within it.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::shared::{Shared, Use};

/// The allocations by their first device addresses. Weak, so that being registered keeps nothing alive.
type Table = BTreeMap<u64, Weak<Shared>>;

fn table() -> MutexGuard<'static, Table> {
    static TABLE: Mutex<Table> = Mutex::new(BTreeMap::new());
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn add(shared: &Arc<Shared>) {
    table().insert(shared.device_ptr, Arc::downgrade(shared));
}

/// Before the memory goes: its addresses may be another's right after.
pub(crate) fn remove(shared: &Shared) {
    table().remove(&shared.device_ptr);
}

/// The allocation with this number.
pub(crate) fn by_id(id: u64) -> Option<Use> {
    all().into_iter().find(|shared| shared.id == id).and_then(Use::join)
}

/// The allocation that `len` bytes at a device address lie in, and where in it.
pub(crate) fn by_device_ptr(address: u64, len: usize) -> Option<(Use, usize)> {
    let shared = table().range(..=address).next_back()?.1.upgrade()?;
    let offset = usize::try_from(address - shared.device_ptr).ok()?;
    within(shared, offset, len)
}

/// The allocation that `len` bytes at a host address lie in, and where in it. Looks at all of them: a second table
/// would make each allocation slower.
pub(crate) fn by_host_ptr(address: usize, len: usize) -> Option<(Use, usize)> {
    let start = |shared: &Arc<Shared>| shared.host_ptr.filter(|&start| start <= address);
    let nearest = all().into_iter().filter(|shared| start(shared).is_some()).max_by_key(start)?;
    let offset = address - nearest.host_ptr?;
    within(nearest, offset, len)
}

fn within(shared: Arc<Shared>, offset: usize, len: usize) -> Option<(Use, usize)> {
    // One past the end is not within: it may be the next allocation's first byte.
    let fits = offset < shared.len && len <= shared.len - offset;
    if fits { Some((Use::join(shared)?, offset)) } else { None }
}

/// Every live allocation.
pub(crate) fn all() -> Vec<Arc<Shared>> {
    table().values().filter_map(Weak::upgrade).collect()
}
