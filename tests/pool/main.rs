//! Pools: what they lend, when they lend it again, and a model that they are compared with.

mod bookkeeping;
mod churn;
mod model;
mod pool;
mod streams;
