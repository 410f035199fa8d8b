//! Objects of the program that graphs keep alive: the last reference that is released calls the program's destructor.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use super::state;
use crate::boundary::{self, exports};
use crate::code::{Code, INVALID_VALUE, Outcome};
use crate::ffi::{HostFunction, Out};
use crate::handle;
use crate::sync::lock;

// CU_USER_OBJECT_NO_DESTRUCTOR_SYNC, which is required, and CU_GRAPH_USER_OBJECT_MOVE.
const NO_SYNC: u32 = 1;
const MOVE: u32 = 1;

/// An object, whose destructor may not call the driver.
pub(super) struct UserObject {
    handle: usize,
    destructor: HostFunction,
    argument: usize,
}

impl Drop for UserObject {
    fn drop(&mut self) {
        boundary::host_function(|| self.destructor.call(self.argument));
    }
}

/// References of one holder to an object.
#[derive(Clone)]
pub(super) struct References {
    object: Arc<UserObject>,
    count: u32,
}

/// The references of one holder.
#[derive(Clone, Default)]
pub(super) struct Held(Vec<References>);

impl Held {
    fn add(&mut self, object: &Arc<UserObject>, count: u32) {
        match self.0.iter_mut().find(|held| Arc::ptr_eq(&held.object, object)) {
            Some(held) => held.count = held.count.saturating_add(count),
            None => self.0.push(References { object: Arc::clone(object), count }),
        }
    }

    /// Gives up references. The result keeps the object until no lock is held.
    fn remove(&mut self, handle: usize, count: u32) -> Result<Option<References>, Code> {
        let held = self.0.iter().position(|held| held.object.handle == handle && held.count >= count);
        let index = held.ok_or(INVALID_VALUE)?;
        self.0[index].count -= count;
        Ok((self.0[index].count == 0).then(|| self.0.swap_remove(index)))
    }
}

/// The program's references, by handle.
static OBJECTS: LazyLock<Mutex<HashMap<usize, References>>> = LazyLock::new(Mutex::default);

fn create(out: Out<usize>, argument: usize, destructor: HostFunction, count: u32, flags: u32) -> Outcome {
    out.required()?;
    destructor.required()?;
    if count == 0 || i32::try_from(count).is_err() || flags != NO_SYNC {
        return Err(INVALID_VALUE);
    }
    let handle = handle::next();
    let object = Arc::new(UserObject { handle, destructor, argument });
    lock(&OBJECTS).insert(handle, References { object, count });
    out.set(handle)
}

fn retain(handle: usize, count: u32) -> Outcome {
    let mut objects = lock(&OBJECTS);
    let held = objects.get_mut(&handle).filter(|_| count > 0).ok_or(INVALID_VALUE)?;
    held.count = held.count.checked_add(count).ok_or(INVALID_VALUE)?;
    Ok(())
}

fn release(handle: usize, count: u32) -> Outcome {
    let mut objects = lock(&OBJECTS);
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
    let object = lock(&OBJECTS).get(&handle).map(|held| Arc::clone(&held.object)).ok_or(INVALID_VALUE)?;
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
