//! Why a launch ended early.

use std::error::Error;
use std::fmt;

/// What went wrong while a kernel ran, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What went wrong.
    pub kind: FaultKind,
    /// The kernel that was launched.
    pub kernel: String,
    /// The line of the instruction in the source, from 1; 0 where no instruction is to blame.
    pub line: u32,
    /// The instruction, as the source has it.
    pub instruction: String,
    /// The address that was accessed; 0 where the fault is not about one.
    pub address: u64,
    /// The bytes that were accessed there.
    pub bytes: u32,
    /// The block's index.
    pub block: [u32; 3],
    /// The thread's index in its block.
    pub thread: [u32; 3],
    /// More in words, such as the text of a failed assertion; mostly empty.
    pub detail: String,
}

/// The kinds of [`Fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// An access outside everything that is allocated.
    IllegalAddress,
    /// An address that is no multiple of the access's size.
    MisalignedAddress,
    /// `trap` or `brkpt`.
    Trap,
    /// A failed `assert`: `detail` holds its text.
    Assert,
    /// An indirect branch or call to something that is none of its targets.
    InvalidPc,
    /// A barrier whose number is not below 16.
    InvalidBarrier,
    /// Calls that nest too deep, or their local memory does not fit.
    StackOverflow,
    /// The launch asks for what the kernel or the machine cannot give: `detail` says what.
    InvalidLaunch,
    /// [`Memory::interrupted`](crate::Memory::interrupted) said so.
    Interrupted,
    /// Every thread of a block waits at a barrier or for its warp, for ever.
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
            FaultKind::InvalidBarrier => "invalid barrier",
            FaultKind::StackOverflow => "stack overflow",
            FaultKind::InvalidLaunch => "invalid launch",
            FaultKind::Interrupted => "interrupted",
            FaultKind::Deadlock => "deadlock",
        }
    }
}

impl Fault {
    /// A fault that no instruction is to blame for.
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
