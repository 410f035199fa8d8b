//! Checks a function's statements one by one and lowers them to operations.
//!
//! This file handles scopes, labels and guards; the other files lower the instructions, by group.

mod arithmetic;
mod atomic;
mod cache;
mod call;
mod control;
mod convert;
mod data;
mod float;
mod logic;
mod matrix;
mod mbarrier;
mod memory;
mod modifiers;
mod operand;
mod scope;
mod stack;
mod symbols;
mod synchronise;
mod warp;

pub(crate) use modifiers::UNSUPPORTED;
pub(crate) use symbols::{MOST_LOCAL, MOST_PARAMETERS, SharedVariable, Symbol, Symbols, formals, kernel_parameters};

use crate::ast::{self, Declaration, Instruction, Operand, Statement};
use crate::error::{LoadError, Reason};
use crate::op::{Constant, FIRST_SLOT, Function, Op, Slot};
use crate::span::Span;
use crate::types::Space;
use modifiers::{Lowered, Modifiers};
use scope::{Entity, Scopes};
use std::collections::HashMap;

pub(crate) struct Lower<'m, 'a> {
    symbols: &'m mut Symbols<'a>,
    source: &'a str,
    is_entry: bool,
    function: Function,
    scopes: Scopes<'a>,
    /// Label positions: indices into the code.
    labels: Vec<u32>,
    constants: HashMap<Constant, Slot>,
    /// The current statement.
    span: Span,
}

/// Lowers the body of a function.
pub(crate) fn lower<'a>(
    source: &'a str,
    symbols: &mut Symbols<'a>,
    function: &ast::Function<'a>,
    body: &[Statement<'a>],
) -> Result<Function, LoadError> {
    let mut lower = Lower {
        symbols,
        source,
        is_entry: function.is_entry,
        function: Function { is_defined: true, ..Function::default() },
        scopes: Scopes::default(),
        labels: Vec::new(),
        constants: HashMap::new(),
        span: function.span,
    };
    lower.function.constants = vec![Constant::Zero; FIRST_SLOT as usize];
    lower.head(function).map_err(|reason| lower.error(reason))?;
    lower.collect_labels(body)?;
    for statement in body {
        lower.statement(statement).map_err(|reason| lower.error(reason))?;
    }
    lower.emit(Op::Return);
    lower.resolve_labels();
    Ok(lower.function)
}

impl<'a> Lower<'_, 'a> {
    fn error(&self, reason: Reason) -> LoadError {
        reason.at(self.span, self.source)
    }

    /// Parameters and results: a kernel's are in its parameter block, a function's in its frame.
    fn head(&mut self, function: &ast::Function<'a>) -> Lowered<()> {
        if self.is_entry {
            for (parameter, offset) in symbols::kernel_parameters(&function.signature.parameters).0 {
                self.scopes.declare(parameter.name, Entity::KernelParameter { offset })?;
            }
            return Ok(());
        }
        let (shape, bytes, slots) = formals(&function.signature)?;
        self.function.local_bytes = bytes;
        self.function.constants.resize((FIRST_SLOT + slots) as usize, Constant::Zero);
        let declared = function.signature.returns.iter().chain(&function.signature.parameters);
        let aligns = declared.clone().map(Declaration::alignment);
        self.function.local_align = aligns.max().unwrap_or(1);
        for (declaration, formal) in declared.zip(shape.results.iter().chain(&shape.parameters)) {
            self.scopes.declare(declaration.name, Entity::of_formal(declaration, *formal))?;
        }
        self.function.shape = shape;
        Ok(())
    }

    /// Done before any instruction, since branches may go forwards.
    fn collect_labels(&mut self, body: &[Statement<'a>]) -> Result<(), LoadError> {
        for statement in body {
            let result = match statement {
                Statement::Open(span) => {
                    self.span = *span;
                    self.scopes.open()
                }
                Statement::Close => {
                    self.scopes.close();
                    Ok(())
                }
                Statement::Label(name, span) => {
                    self.span = *span;
                    let label = self.new_label();
                    self.scopes.declare(name, Entity::Label(label))
                }
                Statement::BranchTargets(name, targets, span) => {
                    self.span = *span;
                    self.scopes.declare(name, Entity::BranchTargets(targets.clone()))
                }
                Statement::CallTargets(name, targets, span) => {
                    self.span = *span;
                    self.scopes.declare(name, Entity::CallTargets(targets.clone()))
                }
                Statement::Prototype(name, signature, span) => {
                    self.span = *span;
                    formals(signature).and_then(|(shape, ..)| self.scopes.declare(name, Entity::Prototype(shape)))
                }
                Statement::Declaration(_) | Statement::Instruction(_) | Statement::Unsupported(..) => Ok(()),
            };
            result.map_err(|reason| self.error(reason))?;
        }
        self.scopes.restart();
        Ok(())
    }

    fn statement(&mut self, statement: &Statement<'a>) -> Lowered<()> {
        match statement {
            Statement::Open(_) => self.scopes.open()?,
            Statement::Close => self.scopes.close(),
            Statement::Label(name, _) => {
                if let Some(Entity::Label(label)) = self.scopes.find(name) {
                    let label = *label;
                    self.place(label);
                }
            }
            Statement::Declaration(declaration) => {
                self.span = declaration.span;
                self.declaration(declaration)?;
            }
            Statement::Instruction(instruction) => {
                self.span = instruction.span;
                self.guarded(instruction)?;
            }
            Statement::BranchTargets(..) | Statement::CallTargets(..) | Statement::Prototype(..) => {}
            Statement::Unsupported(reason, span) => {
                self.span = *span;
                return Err(Reason::unsupported(reason.clone()));
            }
        }
        Ok(())
    }

    fn declaration(&mut self, declaration: &Declaration<'a>) -> Lowered<()> {
        let name = declaration.name;
        if !declaration.initial.is_empty() {
            return Err("only variables in .global and .const have an initial value".into());
        }
        match declaration.space {
            Space::Register if declaration.vector > 1 || declaration.is_array => {
                Err(Reason::unsupported("vectors and arrays of registers are not supported"))
            }
            Space::Register => match declaration.range {
                Some(count) => self.scopes.declare_range(name, count, declaration.type_),
                None => {
                    let slot = self.temporary();
                    self.scopes.declare(name, Entity::Register(slot, declaration.type_))
                }
            },
            Space::Param | Space::Local => {
                let offset = self.allocate_local(declaration.size(), declaration.alignment())?;
                self.scopes.declare(name, Entity::Local { offset, size: declaration.size() })
            }
            Space::Shared => {
                let symbol = self.symbols.add_shared(declaration)?;
                self.scopes.declare(name, Entity::Module(symbol))
            }
            Space::Global | Space::Const => Err("global variables must be declared outside functions".into()),
        }
    }

    /// Returns the offset from the frame's base.
    fn allocate_local(&mut self, size: u64, align: u64) -> Lowered<u64> {
        let offset = self.function.local_bytes.next_multiple_of(align);
        let end = offset.saturating_add(size);
        if end > MOST_LOCAL {
            return Err(format!("a thread has at most {MOST_LOCAL} bytes of local memory").into());
        }
        self.function.local_bytes = end;
        self.function.local_align = self.function.local_align.max(align);
        Ok(offset)
    }

    /// An instruction and its guard: a jump over the instruction if the guard is false.
    fn guarded(&mut self, instruction: &Instruction<'a>) -> Lowered<()> {
        let Some(guard) = instruction.guard else { return self.instruction(instruction) };
        let p = self.predicate(guard.name)?;
        if instruction.opcode == "bra" {
            let target = self.branch_target(instruction)?;
            self.emit(Op::BranchIf { p, negated: guard.negated, target });
            return Ok(());
        }
        let after = self.new_label();
        self.emit(Op::BranchIf { p, negated: !guard.negated, target: after });
        self.instruction(instruction)?;
        self.place(after);
        Ok(())
    }

    fn instruction(&mut self, i: &Instruction<'a>) -> Lowered<()> {
        if let Some(access) = self.without_policy(i)? {
            return self.instruction(&access);
        }
        if !matches!(i.opcode, "mov" | "cvt") && i.operands.iter().any(|operand| self.is_special(operand)) {
            return Err("special registers are operands of mov and cvt only".into());
        }
        if matches!(i.opcode, "vote" | "shfl")
            && !i.modifiers.contains(&"sync")
            && self.symbols.target >= 70
            && self.symbols.version >= (6, 4)
        {
            return Err(format!("{} needs .sync from sm_70 on, since PTX 6.4", i.opcode).into());
        }
        let mut modifiers = Modifiers::new(&i.modifiers);
        let m = &mut modifiers;
        let lowered = match Group::of(i.opcode).ok_or(UNSUPPORTED)? {
            Group::Arithmetic => self.arithmetic(i, m),
            Group::Logic => self.logic(i, m),
            Group::Float => self.float(i, m),
            Group::Data => self.data(i, m),
            Group::Memory => self.memory(i, m),
            Group::Cache => self.cache(i, m),
            Group::Atomic => self.atomic(i, m),
            Group::Synchronise => self.synchronise(i, m),
            Group::Warp => self.warp(i, m),
            Group::Control => self.control(i, m),
            Group::Call => self.call(i, m),
            Group::Matrix => self.matrix(i, m),
            Group::Mbarrier => self.mbarrier(i, m),
            Group::Stack => self.stack(i, m),
        };
        // A modifier that is left may be why the operands seem wrong.
        match (lowered, m.first()) {
            (Ok(()), Some(left)) => Err(Reason::unsupported_modifier(left)),
            (Err(reason), Some(left)) if !reason.is_unsupported => Err(Reason::unsupported_modifier(left)),
            (lowered, _) => lowered,
        }
    }

    fn emit(&mut self, op: Op) {
        self.function.code.push(op);
        self.function.spans.push(self.span);
    }

    fn here(&self) -> u32 {
        // A source is smaller than that, and an instruction has few operations.
        u32::try_from(self.function.code.len()).unwrap_or(u32::MAX)
    }

    fn new_label(&mut self) -> u32 {
        append(&mut self.labels, 0)
    }

    fn place(&mut self, label: u32) {
        self.labels[label as usize] = self.here();
    }

    /// Replaces labels by their positions.
    fn resolve_labels(&mut self) {
        let labels = &self.labels;
        for op in &mut self.function.code {
            if let Op::Branch { target } | Op::BranchIf { target, .. } = op {
                *target = labels[*target as usize];
            }
        }
        for target in self.function.tables.iter_mut().flatten() {
            *target = labels[*target as usize];
        }
    }
}

/// Instructions by the file that lowers them.
enum Group {
    Arithmetic,
    Logic,
    Float,
    Data,
    Memory,
    Cache,
    Atomic,
    Synchronise,
    Warp,
    Control,
    Call,
    Stack,
    Mbarrier,
    Matrix,
}

impl Group {
    fn of(opcode: &str) -> Option<Group> {
        Some(match opcode {
            "add" | "sub" | "mul" | "mad" | "fma" | "div" | "rem" | "abs" | "neg" | "min" | "max" | "addc" | "subc"
            | "madc" | "mul24" | "mad24" | "sad" => Group::Arithmetic,
            "and" | "or" | "xor" | "not" | "cnot" | "lop3" | "shl" | "shr" | "shf" | "prmt" | "popc" | "clz"
            | "bfind" | "brev" | "bfe" | "bfi" | "fns" | "bmsk" | "szext" | "dp4a" | "dp2a" | "vabsdiff2"
            | "vabsdiff4" => Group::Logic,
            "rcp" | "sqrt" | "rsqrt" | "sin" | "cos" | "lg2" | "ex2" | "tanh" | "copysign" | "testp" => Group::Float,
            "setp" | "set" | "selp" | "slct" | "mov" | "cvt" | "cvta" | "isspacep" => Group::Data,
            "ld" | "ldu" | "st" | "cp" => Group::Memory,
            "createpolicy" | "discard" | "applypriority" | "prefetch" | "prefetchu" => Group::Cache,
            "atom" | "red" => Group::Atomic,
            "mma" | "wmma" | "ldmatrix" | "movmatrix" => Group::Matrix,
            "mbarrier" => Group::Mbarrier,
            "bar" | "barrier" | "membar" | "fence" | "nanosleep" => Group::Synchronise,
            "vote" | "match" | "shfl" | "redux" | "activemask" => Group::Warp,
            "bra" | "brx" | "ret" | "exit" | "trap" | "brkpt" => Group::Control,
            "call" => Group::Call,
            "alloca" | "stacksave" | "stackrestore" => Group::Stack,
            _ => return None,
        })
    }
}

/// Whether any form of an instruction is supported.
pub(crate) fn is_known(opcode: &str) -> bool {
    Group::of(opcode).is_some()
}

/// Appends an entry to a table; returns its index, which fits because a source is smaller than 4 GiB.
fn append<T>(table: &mut Vec<T>, entry: T) -> u32 {
    table.push(entry);
    u32::try_from(table.len() - 1).unwrap_or(u32::MAX)
}

/// The operands, if their number is `N`.
fn operands<'i, 'a, const N: usize>(i: &'i Instruction<'a>) -> Lowered<&'i [Operand<'a>; N]> {
    i.operands.as_slice().try_into().map_err(|_| format!("{N} operands were expected").into())
}
