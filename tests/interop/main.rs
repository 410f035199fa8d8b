//! Memory in the types of other crates.

mod cudarc;
