//! Processes that fork, are killed or run out of descriptors, and the cases of gdrcopy's sanity suite.

mod ends;
mod fork;
mod fork_ends;
mod fork_pool;
mod sanity;
