//! Streams: bindings, copies on them, streams of other libraries, and drops that wait for them.

mod binding;
mod captures;
mod copies;
mod drops;
mod foreign;
