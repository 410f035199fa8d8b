//! Pools: allocation, reuse by stream, bookkeeping, and random traces compared with a model.

mod bookkeeping;
mod churn;
mod model;
mod pool;
mod raw;
mod streams;
mod waiting;
