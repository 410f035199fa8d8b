//! Our memory in other crates' terms.

mod cudarc;
