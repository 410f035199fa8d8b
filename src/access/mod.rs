//! The CPU's access to memory: checked ranges, flush and invalidate, copies, map guards.
//!
//! [`range`] checks ranges; [`view`] applies it to an allocation; [`copy`] holds the copy routines; [`guard`] ties
//! flush and invalidate to a scope; [`writer`] shares one fence among many writes; [`cached_bytes`] copies by host
//! addresses.

pub(crate) mod cached_bytes;
pub(crate) mod copy;
pub(crate) mod guard;
pub(crate) mod range;
pub(crate) mod view;
pub(crate) mod writer;
