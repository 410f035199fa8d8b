//! Reads PTX and executes its kernels over a memory that it is given.
//!
//! The way of a kernel through the house: the lexer cuts the text into tokens, the parser makes statements of them,
//! lowering checks every statement and turns each function into flat operations over register slots, linking
//! fills in the addresses of variables, and [`run`] executes. Everything that is not supported is refused by
//! [`Module::load`], with its line; what has loaded can be executed.
//!
//! The crate knows nothing of CUDA's driver API: see `sim/cuda` for that. The reader is our own because the
//! published ones do not serve: `ptx-syntax` is 126,000 generated lines with a type for each variant of each
//! instruction, and `singe-ptx` and `ptx-parser` read only a part of the language and lose the line numbers that our
//! errors name.
//!
//! Facts about PTX are from NVIDIA's "Parallel Thread Execution ISA".

#![forbid(unsafe_code)]

mod arithmetic;
mod ast;
mod error;
mod execute;
mod fault;
mod lexer;
mod link;
mod load;
mod lower;
mod memory;
mod module;
mod op;
mod parser;
mod span;
mod types;

pub use error::LoadError;
pub use execute::{RESIDENT, run};
pub use fault::{Fault, FaultKind};
pub use memory::Memory;
pub use module::{Kernel, Module, Parameter, Program, Space, Variable};

use std::sync::Arc;

/// One launch of a kernel.
#[derive(Clone, Debug)]
pub struct Launch {
    /// What runs.
    pub kernel: Arc<Kernel>,
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Bytes of shared memory beside the kernel's static ones.
    pub dynamic_shared: u32,
    /// The parameter block, laid out as [`Kernel::parameters`] says. Bytes that are missing read as zero.
    pub parameters: Vec<u8>,
}
