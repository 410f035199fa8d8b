//! The live contexts by handle. A handle is only looked up, never dereferenced.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};

use super::state::Context;
use crate::code::{CONTEXT_IS_DESTROYED, Code, INVALID_CONTEXT};
use crate::handle;
use crate::sync::lock;

static CONTEXTS: LazyLock<Mutex<BTreeMap<usize, Arc<Context>>>> = LazyLock::new(Mutex::default);

/// The live context of that handle.
pub(crate) fn find(handle: usize) -> Option<Arc<Context>> {
    lock(&CONTEXTS).get(&handle).cloned()
}

/// The context of a handle, or the error for a stale or an unknown handle.
pub(crate) fn get(handle: usize) -> Result<Arc<Context>, Code> {
    let missing = if handle::was_issued(handle) { CONTEXT_IS_DESTROYED } else { INVALID_CONTEXT };
    find(handle).ok_or(missing)
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
