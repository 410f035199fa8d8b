//! Memory: the table of every address range that the device knows, and the functions that fill it.

mod advice;
mod allocate;
pub(crate) mod bytes;
mod cache;
mod host;
mod imported_pages;
mod info;
pub(crate) mod kernel_heap;
pub(crate) mod quiet;
mod range_handle;
mod ranges;
pub(crate) mod table;
pub(crate) mod view;
pub(crate) mod weak;
pub(crate) mod window;
