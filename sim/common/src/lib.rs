//! What the simulated CUDA driver and the Vulkan layers share, which are two libraries in one process.
//!
//! | module | contents |
//! |---|---|
//! | [`trace`] | the calls of both, a line each, in one file |
//! | [`label`] | properties of exported memory, behind its descriptor |
//! | [`payload`] | semaphores and events that several drivers and processes share |

pub mod label;
pub mod payload;
pub mod trace;
