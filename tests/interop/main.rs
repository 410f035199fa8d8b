//! Memory as cudarc's views: copies, launches, their order, and the release after them.

mod order;
mod release;
mod views;
