//! The calling thread's current context, and the checks at the start of nearly every function.

use std::sync::Arc;

use super::state::Context;
use super::{stack, table};
use crate::code::{CONTEXT_IS_DESTROYED, Code, INVALID_CONTEXT, Outcome};
use crate::owner::Owner;

/// The calling thread's current context. `CUDA_ERROR_INVALID_CONTEXT` without one,
/// `CUDA_ERROR_CONTEXT_IS_DESTROYED` when it was destroyed.
pub(crate) fn current() -> Result<Arc<Context>, Code> {
    // Another context may have the address by now.
    of(stack::top().ok_or(INVALID_CONTEXT)?).ok_or(CONTEXT_IS_DESTROYED)
}

/// The current context, if no asynchronous work failed in it.
pub(crate) fn usable() -> Result<Arc<Context>, Code> {
    let context = current()?;
    context.health.check()?;
    Ok(context)
}

/// As [`usable`], of the context of a handle; null means the current one.
pub(crate) fn given(handle: usize) -> Result<Arc<Context>, Code> {
    let context = if handle == 0 { current()? } else { table::get(handle)? };
    context.health.check()?;
    Ok(context)
}

/// The live context of an owner.
pub(crate) fn of(owner: Owner) -> Option<Arc<Context>> {
    table::find(owner.context).filter(|context| context.owner() == owner)
}

/// Waits for the kernels that were launched in the owner's context, if that still lives.
pub(crate) fn wait_for_kernels(owner: Owner) {
    if let Some(context) = of(owner) {
        context.streams.wait_for_kernels();
    }
}

/// The error that asynchronous work left in the owner's context, if that still lives.
pub(crate) fn check_owner(owner: Owner) -> Outcome {
    of(owner).map_or(Ok(()), |context| context.health.check())
}
