//! Streams: queues of work in order, each with a worker thread of its own once it needs one.
//!
//! `crate::queue` is the ordering; `table` has the handles, `exports` the driver calls, `callbacks` the host functions,
//! `values` the waits and writes on memory words, `event` the events.

mod callbacks;
pub(crate) mod event;
mod exports;
pub(crate) mod table;
mod values;

pub(crate) use callbacks::HostCall;
