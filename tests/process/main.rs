//! Processes that fork, are killed, run out of descriptors or share memory, and the cases of gdrcopy's sanity suite.

mod ends;
mod fork;
mod fork_ends;
mod fork_pool;
mod ipc;
mod limits;
mod sanity;
