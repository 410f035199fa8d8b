//! Pools: allocation, reuse by stream, bookkeeping, and random traces compared with a model.

mod bookkeeping;
mod model;
mod pool;
mod streams;
