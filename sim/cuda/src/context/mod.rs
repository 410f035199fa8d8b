//! Contexts: which one is current, and what is set and asked about it. `lifecycle` creates and destroys them.

mod current;
mod exports;
mod limits;
pub(crate) mod stack;
pub(crate) mod stale;
mod state;
pub(crate) mod table;

pub(crate) use current::{check_owner, current, given, of, usable, wait_for_kernels};
pub(crate) use state::{Context, check_flags};
