//! A loaded module, the program that linking produces from it, and its kernels.

use crate::LoadError;
use crate::link::{Linked, LinkedKernel, link};
use crate::load::{FirstValue, load};
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

/// Parsed and checked PTX: everything in it can be executed.
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
    /// Reads and checks a module.
    ///
    /// # Errors
    ///
    /// The first statement that is invalid or not supported. Never panics, whatever the text.
    pub fn load(source: &str) -> Result<Module, LoadError> {
        load(source)
    }

    /// Its `.global` and `.const` variables.
    pub fn variables(&self) -> &[Variable] {
        &self.variables
    }

    /// Assigns addresses to the variables: `addresses[i]` belongs to `variables()[i]`.
    pub fn link(self, addresses: &[u64]) -> Program {
        Program { linked: Arc::new(link(self, addresses)) }
    }
}

/// A module whose variables have addresses.
#[derive(Clone, Debug)]
pub struct Program {
    linked: Arc<Linked>,
}

impl Program {
    /// The kernel (`.entry`) of that name.
    pub fn kernel(&self, name: &str) -> Option<Arc<Kernel>> {
        self.kernels().find(|kernel| kernel.name() == name)
    }

    /// Every kernel, in the order of the source.
    pub fn kernels(&self) -> impl Iterator<Item = Arc<Kernel>> {
        let program = Arc::clone(&self.linked);
        (0..self.linked.kernels.len()).map(move |index| Arc::new(Kernel { program: Arc::clone(&program), index }))
    }

    /// Each variable's address and initial bytes, zero where the source has no initialiser.
    pub fn initial(&self) -> Vec<(u64, Vec<u8>)> {
        self.linked.initial.clone()
    }
}

/// A kernel. It keeps the whole program alive.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub(crate) program: Arc<Linked>,
    index: usize,
}

impl Kernel {
    pub(crate) fn linked(&self) -> &LinkedKernel {
        &self.program.kernels[self.index]
    }

    /// Its name in the source.
    pub fn name(&self) -> &str {
        &self.linked().head.name
    }

    /// Its parameters, in the order of the source.
    pub fn parameters(&self) -> &[Parameter] {
        &self.linked().head.parameters
    }

    /// The size of its parameter block in bytes.
    pub fn parameter_bytes(&self) -> usize {
        self.linked().head.parameter_bytes
    }

    /// Its static shared memory in bytes.
    pub fn shared_bytes(&self) -> u64 {
        self.linked().shared_bytes
    }

    /// The local memory of a thread in bytes, without that of called functions.
    pub fn local_bytes(&self) -> u64 {
        self.program.functions[self.linked().head.function].function.local_bytes
    }

    /// The maximum number of threads in a block: the product of `.maxntid` or `.reqntid`.
    pub fn max_threads(&self) -> Option<u32> {
        self.linked().head.max_threads
    }

    /// The block's shape if `.reqntid` requires one.
    pub fn required_block(&self) -> Option<[u32; 3]> {
        self.linked().head.required_block
    }

    /// The `sm_NN` that the module was compiled for, as a number.
    pub fn target(&self) -> u32 {
        self.program.target
    }

    /// The module's PTX version.
    pub fn version(&self) -> (u32, u32) {
        self.program.version
    }
}
