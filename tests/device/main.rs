//! Handles and GPUs: opening, and queries.

mod facts;
mod open;
