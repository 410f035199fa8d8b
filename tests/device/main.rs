//! What a handle and a GPU are: how they are opened, and the facts that they report.

mod facts;
mod open;
