//! The live contexts, by handle. A handle is only ever looked up here.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};

use super::{Context, primary};
use crate::code::{CONTEXT_IS_DESTROYED, Code, INVALID_CONTEXT, Outcome};
use crate::handle;
use crate::sync::lock;

static CONTEXTS: LazyLock<Mutex<BTreeMap<usize, Arc<Context>>>> = LazyLock::new(Mutex::default);

/// The live context of that handle.
pub(crate) fn find(handle: usize) -> Option<Arc<Context>> {
    lock(&CONTEXTS).get(&handle).cloned()
}

/// The context of that handle, or the error for a handle that is stale or never was one.
pub(crate) fn get(handle: usize) -> Result<Arc<Context>, Code> {
    let missing = if handle::was_issued(handle) { CONTEXT_IS_DESTROYED } else { INVALID_CONTEXT };
    find(handle).ok_or(missing)
}

/// How many contexts of `cuCtxCreate` are live.
pub(crate) fn count() -> usize {
    lock(&CONTEXTS).keys().filter(|&&handle| !primary::is(handle)).count()
}

pub(super) fn insert(context: Arc<Context>) {
    lock(&CONTEXTS).insert(context.owner.context, context);
}

/// Takes a context out of the table and releases all that it owns. It stays on the stacks of threads.
pub(super) fn destroy(handle: usize) -> Outcome {
    let missing = get(handle).err();
    let context = lock(&CONTEXTS).remove(&handle);
    let Some(context) = context else { return Err(missing.unwrap_or(CONTEXT_IS_DESTROYED)) };
    context.close();
    Ok(())
}
