//! The live contexts by handle. A handle is only looked up, never dereferenced.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};

use super::stale;
use super::state::Context;
use crate::code::{CONTEXT_IS_DESTROYED, Code, INVALID_CONTEXT};
use crate::handle;
use crate::sync::lock;

static CONTEXTS: LazyLock<Mutex<BTreeMap<usize, Arc<Context>>>> = LazyLock::new(Mutex::default);

/// The live context of that handle.
pub(crate) fn find(handle: usize) -> Option<Arc<Context>> {
    lock(&CONTEXTS).get(&handle).cloned()
}

/// The context of a handle that a caller gives, or the error for a stale or an unknown handle.
pub(crate) fn get(handle: usize) -> Result<Arc<Context>, Code> {
    if let Some(context) = find(handle) {
        return Ok(context);
    }
    if !handle::was_issued(handle) {
        return Err(INVALID_CONTEXT);
    }
    stale::context(handle);
    Err(CONTEXT_IS_DESTROYED)
}

/// The handles of all live contexts.
pub(crate) fn handles() -> Vec<usize> {
    lock(&CONTEXTS).keys().copied().collect()
}

pub(crate) fn insert(context: Arc<Context>) {
    lock(&CONTEXTS).insert(context.owner().context, context);
}

/// Removes a context from the table. It stays on the threads' stacks.
pub(crate) fn remove(handle: usize) -> Result<Arc<Context>, Code> {
    let missing = get(handle).err();
    lock(&CONTEXTS).remove(&handle).ok_or(missing.unwrap_or(CONTEXT_IS_DESTROYED))
}
