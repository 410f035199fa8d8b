//! Copies. Every form (1D, 2D, 3D; host, device, unified; synchronous or on a stream) becomes two sides and a shape,
//! which `plan` checks and `run` orders and carries out.

mod linear;
pub(crate) mod plan;
mod run;
mod strided;

pub(crate) use strided::transfer;
