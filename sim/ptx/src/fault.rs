//! The faults that end a launch.

use std::error::Error;
use std::fmt;

/// An error of a running kernel, with its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind of error.
    pub kind: FaultKind,
    /// The kernel that was launched.
    pub kernel: String,
    /// The line of the instruction in the source, from 1; 0 if no instruction caused the fault.
    pub line: u32,
    /// The instruction, as the source has it.
    pub instruction: String,
    /// The accessed address; 0 if the fault is not an access.
    pub address: u64,
    /// The size of the access in bytes.
    pub bytes: u32,
    /// The block's index.
    pub block: [u32; 3],
    /// The thread's index in its block.
    pub thread: [u32; 3],
    /// Details in words, such as the text of a failed assertion; usually empty.
    pub detail: String,
}

/// The kinds of [`Fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// An access outside of all allocations.
    IllegalAddress,
    /// An address that is not a multiple of the access's size.
    MisalignedAddress,
    /// `trap` or `brkpt`.
    Trap,
    /// A failed `assert`: `detail` holds its text.
    Assert,
    /// An indirect branch or call to an address that is not one of its targets.
    InvalidPc,
    /// A call of a pointer to a function that is not supported.
    Unsupported,
    /// A barrier number above 15, a number of threads that is not a multiple of 32, or a wrong use of an mbarrier or of the
    /// cluster's barrier.
    InvalidBarrier,
    /// Calls that nest too deeply, or whose local memory does not fit.
    StackOverflow,
    /// A launch that the kernel or the machine does not permit; `detail` has the reason.
    InvalidLaunch,
    /// [`Memory::interrupted`](crate::Memory::interrupted) returned true.
    Interrupted,
    /// A deadlock: every thread of a block waits at a barrier or for its warp.
    Deadlock,
}

impl FaultKind {
    fn words(self) -> &'static str {
        match self {
            FaultKind::IllegalAddress => "illegal address",
            FaultKind::MisalignedAddress => "misaligned address",
            FaultKind::Trap => "trap",
            FaultKind::Assert => "assertion failed",
            FaultKind::InvalidPc => "invalid jump",
            FaultKind::Unsupported => "a called function is not supported",
            FaultKind::InvalidBarrier => "invalid barrier",
            FaultKind::StackOverflow => "stack overflow",
            FaultKind::InvalidLaunch => "invalid launch",
            FaultKind::Interrupted => "interrupted",
            FaultKind::Deadlock => "deadlock",
        }
    }
}

impl Fault {
    /// A fault that no instruction caused.
    pub(crate) fn new(kind: FaultKind, kernel: &str) -> Fault {
        let (instruction, detail) = (String::new(), String::new());
        let (line, address, bytes, block, thread) = (0, 0, 0, [0; 3], [0; 3]);
        Fault { kind, kernel: kernel.to_owned(), line, instruction, address, bytes, block, thread, detail }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([bx, by, bz], [tx, ty, tz]) = (self.block, self.thread);
        write!(f, "{} in kernel {}", self.kind.words(), self.kernel)?;
        if self.line > 0 {
            write!(f, ", line {}: '{}'", self.line, self.instruction)?;
        }
        if self.bytes > 0 {
            write!(f, ", {} bytes at {:#x}", self.bytes, self.address)?;
        }
        write!(f, ", block ({bx}, {by}, {bz}), thread ({tx}, {ty}, {tz})")?;
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        Ok(())
    }
}

impl Error for Fault {}
