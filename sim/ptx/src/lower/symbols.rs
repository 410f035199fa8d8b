//! The names of a module, and the layout of parameters.

use super::modifiers::Lowered;
use crate::ast::{Declaration, Linkage, Signature};
use crate::op::{FIRST_SLOT, Formal, Place, Shape};
use crate::types::Space;
use std::collections::{HashMap, HashSet};

/// The maximum local memory of a thread on any GPU.
pub(crate) const MOST_LOCAL: u64 = 512 << 10;
/// More than the limit of any GPU.
const MOST_SHARED: u64 = 1 << 20;
/// PTX's limit is 32764 bytes.
pub(crate) const MOST_PARAMETERS: u64 = 32764;

/// The meaning of a name in the module: an index into one of its tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Symbol {
    /// In `.global` or `.const`.
    Variable(usize),
    Shared(usize),
    /// The dynamic shared memory, whose size is a parameter of the launch.
    DynamicShared,
    Function(usize),
    /// Declared, not defined.
    Undefined,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SharedVariable {
    pub(crate) size: u64,
    pub(crate) align: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Symbols<'a> {
    /// The module's PTX version, and the number of its `sm_NN`.
    pub(crate) version: (u32, u32),
    pub(crate) target: u32,
    pub(crate) names: HashMap<&'a str, Symbol>,
    pub(crate) shared: Vec<SharedVariable>,
    /// The alignment of dynamic shared memory.
    pub(crate) dynamic_align: u64,
    /// Indexed by function; empty for kernels.
    pub(crate) shapes: Vec<Shape>,
    pub(crate) defined: Vec<bool>,
    /// Functions that are declared with a result, and defined without.
    pub(crate) without_result: HashSet<usize>,
}

impl<'a> Symbols<'a> {
    pub(crate) fn add_shared(&mut self, declaration: &Declaration<'a>) -> Lowered<Symbol> {
        if !declaration.initial.is_empty() {
            return Err("shared variables have no initial value".into());
        }
        // `.extern .shared .b8 s[256]` is static memory of that size.
        if declaration.linkage == Linkage::Extern && declaration.size() == 0 {
            self.dynamic_align = self.dynamic_align.max(declaration.alignment());
            return Ok(Symbol::DynamicShared);
        }
        let (size, align) = (declaration.size(), declaration.alignment());
        if size > MOST_SHARED {
            return Err(format!("a block has at most {MOST_SHARED} bytes of shared memory").into());
        }
        self.shared.push(SharedVariable { size, align });
        Ok(Symbol::Shared(self.shared.len() - 1))
    }
}

/// The offsets of a kernel's parameters in its parameter block, and the block's size in bytes.
pub(crate) fn kernel_parameters<'p, 'a>(parameters: &'p [Declaration<'a>]) -> (Vec<(&'p Declaration<'a>, u64)>, u64) {
    let mut end = 0u64;
    let mut placed = Vec::new();
    for parameter in parameters {
        let offset = end.saturating_add(parameter.alignment() - 1) & !(parameter.alignment() - 1);
        end = offset.saturating_add(parameter.size());
        placed.push((parameter, offset));
    }
    (placed, end)
}

/// The locations of results and parameters in a function's frame, with the local memory and slots that they need.
pub(crate) fn formals(signature: &Signature<'_>) -> Lowered<(Shape, u64, u32)> {
    let (mut bytes, mut slots) = (0u64, 0);
    let mut place = |declaration: &Declaration<'_>| {
        let size = declaration.size();
        if declaration.space == Space::Register {
            slots += 1;
            return Formal { place: Place::Slot(FIRST_SLOT + slots - 1), bytes: u64::from(declaration.type_.bytes()) };
        }
        let offset = bytes.saturating_add(declaration.alignment() - 1) & !(declaration.alignment() - 1);
        bytes = offset.saturating_add(size);
        Formal { place: Place::Local(offset), bytes: size }
    };
    let results = signature.returns.iter().map(&mut place).collect();
    let parameters = signature.parameters.iter().map(&mut place).collect();
    if bytes > MOST_LOCAL {
        return Err("the parameters are too large".into());
    }
    Ok((Shape { results, parameters }, bytes, slots))
}
