//! The end of a context, and of everything that it owns.

use crate::code::Outcome;
use crate::context::{Context, stale, table};
use crate::external;
use crate::graph;
use crate::memory;
use crate::module;
use crate::semaphore;
use crate::stream;

/// Removes a context from the table, lets its queued work finish, then releases everything that it owns. It stays on
/// the threads' stacks.
pub(super) fn destroy(context: usize) -> Outcome {
    end(&*table::remove(context)?);
    Ok(())
}

/// Lets the queued work of a context finish that is not in the table any more, then releases everything that it owns. No
/// lock may be held: signal handlers and host functions of the program run meanwhile.
pub(super) fn end(context: &Context) {
    let owner = context.owner();
    context.health.close();
    // There is no caller left to report the work's error to.
    let _ = context.streams.synchronize();
    context.streams.close();
    graph::capture::release_all_of(owner);
    stream::table::release_all_of(owner);
    stream::event::release_all_of(owner);
    module::library::release_all_of(owner);
    module::table::release_all_of(owner);
    memory::table::release_all_of(owner);
    external::release_all_of(owner);
    semaphore::release_all_of(owner);
    stale::release(owner.context);
}
