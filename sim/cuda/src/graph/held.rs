//! Objects of the program, and the references to them that graphs hold: the last reference that is released calls the
//! program's destructor.

use std::sync::Arc;

use crate::call;
use crate::code::{Code, INVALID_VALUE};
use crate::ffi::HostFunction;

/// An object, whose destructor may not call the driver.
pub(super) struct UserObject {
    pub(super) handle: usize,
    pub(super) destructor: HostFunction,
    pub(super) argument: usize,
}

impl Drop for UserObject {
    fn drop(&mut self) {
        call::host_function(|| self.destructor.call(self.argument));
    }
}

/// References of one holder to an object.
#[derive(Clone)]
pub(super) struct References {
    pub(super) object: Arc<UserObject>,
    pub(super) count: u32,
}

/// The references of one holder.
#[derive(Clone, Default)]
pub(super) struct Held(Vec<References>);

impl Held {
    pub(super) fn add(&mut self, object: &Arc<UserObject>, count: u32) {
        match self.0.iter_mut().find(|held| Arc::ptr_eq(&held.object, object)) {
            Some(held) => held.count = held.count.saturating_add(count),
            None => self.0.push(References { object: Arc::clone(object), count }),
        }
    }

    /// Gives up references. The result keeps the object until no lock is held.
    pub(super) fn remove(&mut self, handle: usize, count: u32) -> Result<Option<References>, Code> {
        let held = self.0.iter().position(|held| held.object.handle == handle && held.count >= count);
        let index = held.ok_or(INVALID_VALUE)?;
        self.0[index].count -= count;
        Ok((self.0[index].count == 0).then(|| self.0.swap_remove(index)))
    }
}
