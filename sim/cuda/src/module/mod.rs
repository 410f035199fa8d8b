//! Modules and libraries: PTX that was loaded, in one context or in all.
//!
//! `image` extracts the PTX from an image, `options` reads the options of a load, `loaded` loads a program into a
//! context: `variables` is the memory of its variables, `function` its kernels. `table` has the handles; `exports`,
//! `library` and `link` are the driver calls. `join` makes one text of several, whose private names `private` tells apart.
//! `kernel` launches the kernels, and the crate `ptx` reads and runs them.

mod compression;
mod exports;
pub(crate) mod function;
mod image;
mod join;
pub(crate) mod library;
pub(crate) mod link;
mod loaded;
mod options;
mod private;
pub(crate) mod table;
mod variables;
