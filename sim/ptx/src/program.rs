//! The program that linking produces from a module, its kernels, and launches of them.

use crate::error::LoadError;
use crate::link::{Linked, LinkedKernel, link};
use crate::module::{Module, Parameter};
use std::sync::Arc;

impl Module {
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

    /// The statement that is not supported, for which it cannot be launched: the first of the kernel, otherwise of a function
    /// that it calls. `None` if it can be launched.
    pub fn unsupported(&self) -> Option<&LoadError> {
        self.linked().unsupported.as_ref()
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

    /// The size of its module's `.const` variables in bytes.
    pub fn constant_bytes(&self) -> u64 {
        self.program.constants.iter().map(|range| range.end - range.start).sum()
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

/// One launch of a kernel.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The kernel to run.
    pub kernel: Arc<Kernel>,
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// The size of dynamic shared memory in bytes.
    pub dynamic_shared: u32,
    /// For a cooperative launch, the address of two words in global memory, of which the second is 0: the barrier of
    /// CUDA's cooperative groups (`grid_workspace` in its `driver_abi.h`). Otherwise 0.
    pub workspace: u64,
    /// The parameter block, laid out as in [`Kernel::parameters`]. Missing bytes read as zero.
    pub parameters: Vec<u8>,
}
