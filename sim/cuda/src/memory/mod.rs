//! Memory: the table of every address range that the device knows, and the functions that fill it.

mod allocate;
pub(crate) mod bytes;
mod heap;
mod host;
mod info;
pub(crate) mod table;
pub(crate) mod view;

use crate::boundary::Export;
pub(crate) use heap::{Block, capacity};

pub(crate) fn exports() -> Vec<Export> {
    [allocate::exports(), host::exports(), info::exports()].concat()
}
