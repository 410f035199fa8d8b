//! The live contexts by handle. A handle is only looked up, never dereferenced.

use std::sync::Arc;

use super::stale;
use super::state::Context;
use crate::code::{CONTEXT_IS_DESTROYED, Code, INVALID_CONTEXT};
use crate::handle::{self, Handles};

static CONTEXTS: Handles<Arc<Context>> = Handles::new(CONTEXT_IS_DESTROYED);

/// The live context of that handle.
pub(crate) fn find(handle: usize) -> Option<Arc<Context>> {
    CONTEXTS.find(handle)
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
    CONTEXTS.lock().keys().copied().collect()
}

pub(crate) fn insert(context: Arc<Context>) {
    CONTEXTS.insert_at(context.owner().context, context);
}

/// Removes a context from the table. It stays on the threads' stacks.
pub(crate) fn remove(handle: usize) -> Result<Arc<Context>, Code> {
    get(handle)?;
    CONTEXTS.remove(handle)
}
