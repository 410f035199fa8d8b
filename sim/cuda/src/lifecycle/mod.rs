//! The life of contexts: created, destroyed with all that they own, and shared as primary contexts.

pub(crate) mod create;
mod destroy;
pub(crate) mod primary;
