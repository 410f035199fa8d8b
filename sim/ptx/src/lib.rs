//! An interpreter of PTX kernels over memory that the caller provides.
//!
//! The stages: the lexer splits the text into tokens, the parser builds statements, lowering checks them and turns each
//! function into flat operations over register slots, linking fills in the addresses of variables, and [`run`] executes.
//! [`Module::load`] refuses what is invalid, with its line. A statement of a function that is not supported refuses the kernels
//! that need the function, and the module if no kernel is left; what comes after it in the function is not checked. Outside
//! functions, what is not supported refuses the module.
//!
//! The crate is independent of CUDA's driver API, which is in `sim/cuda`. It has a parser of its own because the
//! published ones are unsuitable: `ptx-syntax` is 126,000 generated lines with a type for each variant of each
//! instruction, and `singe-ptx` and `ptx-parser` read only a part of the language and lose the line numbers that our
//! errors name.
//!
//! Facts about PTX are from NVIDIA's "Parallel Thread Execution ISA".

mod arithmetic;
mod ast;
mod error;
mod execute;
mod fault;
mod lanes;
mod lexer;
mod link;
mod live;
mod load;
mod lower;
mod memory;
mod module;
mod op;
mod parser;
mod program;
mod span;
mod types;
mod window;

pub use error::LoadError;
pub use execute::{RESIDENT, max_cooperative_blocks, run};
pub use fault::{Fault, FaultKind};
pub use lanes::{each_lane, members};
pub use memory::{Memory, Scope};
pub use module::{Module, Parameter, Space, Variable};
pub use program::{Kernel, Launch, Program};
