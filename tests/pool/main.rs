//! Pools: what they lend, when they lend it again, and a model that they are compared with.

mod model;
mod pool;
mod streams;
