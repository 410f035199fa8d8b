//! A loaded module.

use crate::lower::SharedVariable;
use crate::op::Function;
use std::sync::Arc;

/// The state space of a module's variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// `.global`: kernels read and write it.
    Global,
    /// `.const`: kernels read it.
    Const,
}

/// A `.global` or `.const` variable of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name in the source.
    pub name: String,
    /// Its space.
    pub space: Space,
    /// Its size in bytes.
    pub size: u64,
    /// The alignment of its address, a power of two.
    pub align: u64,
    /// Whether the CPU reads and writes it, too, at the same address.
    pub is_managed: bool,
}

/// A parameter of a kernel in its parameter block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its offset in the block, in bytes.
    pub offset: usize,
    /// Its size in bytes.
    pub size: usize,
    /// The alignment of its offset.
    pub align: usize,
}

/// The declared properties of a kernel.
#[derive(Debug)]
pub(crate) struct KernelHead {
    pub(crate) name: String,
    /// Its index among the functions.
    pub(crate) function: usize,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) parameter_bytes: usize,
    pub(crate) max_threads: Option<u32>,
    pub(crate) required_block: Option<[u32; 3]>,
}

/// The initial value of an element of a variable. Bytes without one are zero.
#[derive(Clone, Debug)]
pub(crate) struct FirstValue {
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
    pub(crate) value: Value,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Value {
    Number(u64),
    Variable { index: usize, addend: u64, mask: Option<u64> },
    Function { index: usize, addend: u64, mask: Option<u64> },
}

/// Parsed and checked PTX.
#[derive(Debug, Default)]
pub struct Module {
    pub(crate) text: Arc<str>,
    pub(crate) version: (u32, u32),
    pub(crate) target: u32,
    pub(crate) variables: Vec<Variable>,
    /// Indexed by variable.
    pub(crate) first_values: Vec<Vec<FirstValue>>,
    pub(crate) functions: Vec<Function>,
    pub(crate) kernels: Vec<KernelHead>,
    pub(crate) shared: Vec<SharedVariable>,
    pub(crate) dynamic_align: u64,
}

impl Module {
    /// Its `.global` and `.const` variables.
    pub fn variables(&self) -> &[Variable] {
        &self.variables
    }
}
