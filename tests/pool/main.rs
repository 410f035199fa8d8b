//! Pools: allocation, reuse by stream, bookkeeping, and random traces compared with a model.

mod bookkeeping;
mod chunks;
mod churn;
mod idle;
mod model;
mod pool;
mod races;
mod streams;
mod waiting;
