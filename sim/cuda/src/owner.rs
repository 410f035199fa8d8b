//! The owner of an object: one incarnation of a context.

use crate::handle;

/// The incarnation of a context that owns an object. The handle alone is ambiguous: a primary context that is
/// created again has the same one. Owners with one id are equal, whatever the device: memory of a pool may be
/// another device's.
#[derive(Clone, Copy)]
pub(crate) struct Owner {
    pub(crate) context: usize,
    pub(crate) device: i32,
    pub(crate) id: u64,
}

impl PartialEq for Owner {
    fn eq(&self, other: &Owner) -> bool {
        self.id == other.id
    }
}

impl Owner {
    /// No context.
    pub(crate) const NONE: Self = Self { context: 0, device: 0, id: 0 };

    /// A new incarnation of the context with this handle.
    pub(crate) fn new(context: usize, device: i32) -> Owner {
        Owner { context, device, id: handle::next_id() }
    }
}
