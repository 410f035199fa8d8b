//! Streams: queues of work in order, each with a worker thread of its own once it needs one.
//!
//! `queue` is the ordering, `table` the handles, `exports` the driver calls, `callbacks` the host functions,
//! `values` the waits and writes on memory words.

mod callbacks;
mod exports;
mod queue;
pub(crate) mod table;
mod values;

pub(crate) use queue::{Marker, Placement, Stream};

pub(crate) const LEAST_PRIORITY: i32 = 0;
pub(crate) const GREATEST_PRIORITY: i32 = -5;
