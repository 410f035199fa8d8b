//! Memory as the types of other crates.

mod cudarc;
