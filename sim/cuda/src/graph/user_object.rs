//! Objects of the program that graphs keep alive.

use std::sync::Arc;

use super::held::{References, UserObject};
use super::state;
use crate::boundary::exports;
use crate::code::{INVALID_VALUE, Outcome};
use crate::ffi::{HostFunction, Out};
use crate::handle::{self, Handles};
use crate::sync::lock;

// CU_USER_OBJECT_NO_DESTRUCTOR_SYNC, which is required, and CU_GRAPH_USER_OBJECT_MOVE.
const NO_SYNC: u32 = 1;
const MOVE: u32 = 1;

/// The program's references, by handle.
static OBJECTS: Handles<References> = Handles::new(INVALID_VALUE);

fn create(out: Out<usize>, argument: usize, destructor: HostFunction, count: u32, flags: u32) -> Outcome {
    out.required()?;
    destructor.required()?;
    if count == 0 || i32::try_from(count).is_err() || flags != NO_SYNC {
        return Err(INVALID_VALUE);
    }
    let handle = handle::next();
    let object = Arc::new(UserObject { handle, destructor, argument });
    OBJECTS.insert_at(handle, References { object, count });
    out.set(handle)
}

fn retain(handle: usize, count: u32) -> Outcome {
    let mut objects = OBJECTS.lock();
    let held = objects.get_mut(&handle).filter(|_| count > 0).ok_or(INVALID_VALUE)?;
    held.count = held.count.checked_add(count).ok_or(INVALID_VALUE)?;
    Ok(())
}

fn release(handle: usize, count: u32) -> Outcome {
    let mut objects = OBJECTS.lock();
    let held = objects.get_mut(&handle).filter(|held| (1..=held.count).contains(&count)).ok_or(INVALID_VALUE)?;
    held.count -= count;
    let gone = if held.count == 0 { objects.remove(&handle) } else { None };
    // The destructor runs with nothing locked.
    drop(objects);
    drop(gone);
    Ok(())
}

fn retain_in_graph(graph: usize, handle: usize, count: u32, flags: u32) -> Outcome {
    let graph = state::get(graph)?;
    let object = OBJECTS.get(handle)?.object;
    if count == 0 || flags & !MOVE != 0 {
        return Err(INVALID_VALUE);
    }
    if flags == MOVE {
        release(handle, count)?;
    }
    lock(&graph.objects).add(&object, count);
    Ok(())
}

fn release_in_graph(graph: usize, handle: usize, count: u32) -> Outcome {
    let graph = state::get(graph)?;
    if count == 0 {
        return Err(INVALID_VALUE);
    }
    let gone = lock(&graph.objects).remove(handle, count)?;
    drop(gone);
    Ok(())
}

exports! {
    cuUserObjectCreate =>
        create(out: Out<usize>, argument: usize, destructor: HostFunction, count: u32, flags: u32);
    cuUserObjectRetain => retain(handle: usize, count: u32);
    cuUserObjectRelease => release(handle: usize, count: u32), Release;
    cuGraphRetainUserObject => retain_in_graph(graph: usize, handle: usize, count: u32, flags: u32);
    cuGraphReleaseUserObject => release_in_graph(graph: usize, handle: usize, count: u32), Release;
}
