//! Modules and libraries: PTX that was loaded, in one context or in all.
//!
//! `image` extracts the PTX from an image, `options` reads the options of a load, `loaded` loads a program into a
//! context, `table` has the handles; `exports`, `library` and `link` are the driver calls. The kernels themselves are
//! in `kernel`, and the crate `ptx` reads and runs them.

mod exports;
mod image;
pub(crate) mod library;
mod link;
mod loaded;
mod options;
mod table;

use crate::context::Owner;
pub(crate) use link::count as link_count;
pub(crate) use loaded::Variables;
pub(crate) use table::count;

/// Removes everything that was loaded into a destroyed context.
pub(crate) fn release_all_of(owner: Owner) {
    library::release_all_of(owner);
    table::release_all_of(owner);
}
