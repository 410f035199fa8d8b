//! The syntax tree: a module's variables and functions, the latter as flat lists of statements. Only the syntax is
//! checked so far.

use crate::lexer::Number;
use crate::span::Span;
use crate::types::{Space, Type};

#[derive(Debug, Default)]
pub(crate) struct Source<'a> {
    pub(crate) version: (u32, u32),
    /// The number of `sm_NN`.
    pub(crate) target: u32,
    pub(crate) variables: Vec<Declaration<'a>>,
    pub(crate) functions: Vec<Function<'a>>,
}

/// A variable, parameter or register, or a range of registers.
#[derive(Clone, Debug)]
pub(crate) struct Declaration<'a> {
    pub(crate) linkage: Linkage,
    pub(crate) space: Space,
    pub(crate) type_: Type,
    /// 1, 2 or 4.
    pub(crate) vector: u32,
    pub(crate) name: &'a str,
    /// `%r<10>` has ten.
    pub(crate) range: Option<u32>,
    /// Elements over all dimensions; `None` for `[]`.
    pub(crate) elements: Option<u64>,
    pub(crate) is_array: bool,
    pub(crate) align: Option<u64>,
    pub(crate) is_managed: bool,
    /// Element by element, from the first.
    pub(crate) initial: Vec<(u64, Initial<'a>)>,
    pub(crate) span: Span,
}

impl Declaration<'_> {
    /// The size in bytes; 0 for an array without a length.
    pub(crate) fn size(&self) -> u64 {
        self.element_size().saturating_mul(self.elements.unwrap_or(0))
    }

    pub(crate) fn element_size(&self) -> u64 {
        u64::from(self.type_.bytes()) * u64::from(self.vector)
    }

    pub(crate) fn alignment(&self) -> u64 {
        self.align.unwrap_or_else(|| self.element_size()).max(1)
    }
}

/// The linkage of a variable. Its visibility makes no difference here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Linkage {
    Here,
    Extern,
    /// Gives way to a definition that is not weak, and to a weak one before it.
    Weak,
    /// Of several with one name, the largest stands for all.
    Common,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Initial<'a> {
    Number(Number),
    /// An address, or the part of it that the mask selects.
    Symbol {
        name: &'a str,
        addend: u64,
        mask: Option<u64>,
    },
}

#[derive(Debug)]
pub(crate) struct Function<'a> {
    pub(crate) is_entry: bool,
    pub(crate) is_weak: bool,
    pub(crate) name: &'a str,
    pub(crate) signature: Signature<'a>,
    pub(crate) max_threads: Option<u32>,
    pub(crate) required_block: Option<[u32; 3]>,
    /// None for a declaration.
    pub(crate) body: Option<Vec<Statement<'a>>>,
    pub(crate) span: Span,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Signature<'a> {
    pub(crate) returns: Vec<Declaration<'a>>,
    pub(crate) parameters: Vec<Declaration<'a>>,
}

#[derive(Debug)]
pub(crate) enum Statement<'a> {
    /// `{`
    Open(Span),
    /// `}`
    Close,
    Label(&'a str, Span),
    Declaration(Declaration<'a>),
    /// `label: .branchtargets …`
    BranchTargets(&'a str, Vec<&'a str>, Span),
    /// `label: .callprototype …`
    Prototype(&'a str, Signature<'a>, Span),
    /// `label: .calltargets …`
    CallTargets(&'a str, Vec<&'a str>, Span),
    Instruction(Instruction<'a>),
    /// What the parser does not know, up to its semicolon.
    Unsupported(String, Span),
}

#[derive(Clone, Debug)]
pub(crate) struct Instruction<'a> {
    pub(crate) guard: Option<Guard<'a>>,
    pub(crate) opcode: &'a str,
    /// Without their dots.
    pub(crate) modifiers: Vec<&'a str>,
    pub(crate) operands: Vec<Operand<'a>>,
    pub(crate) span: Span,
}

/// `@p` or `@!p`
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard<'a> {
    pub(crate) name: &'a str,
    pub(crate) negated: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operand<'a> {
    Name(&'a str),
    /// `%tid.x`
    Member(&'a str, &'a str),
    Number(Number),
    /// `symbol+4`
    Sum(&'a str, u64),
    /// `[base+offset]`; without a base, an absolute address.
    Address(Option<&'a str>, u64),
    /// `{a, b}`
    Vector(Vec<Operand<'a>>),
    /// `p|q`
    Pair(&'a str, &'a str),
    /// `!p`
    Not(&'a str),
    /// `(a, b)`
    List(Vec<Operand<'a>>),
}
