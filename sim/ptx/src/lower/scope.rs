//! The names of a function: registers, variables and labels, in scopes that braces nest.

use super::modifiers::Lowered;
use super::symbols::Symbol;
use crate::ast::Declaration;
use crate::op::{Formal, Place, Shape, Slot};
use crate::types::Type;
use std::collections::HashMap;

/// Compilers nest two or three scopes.
const DEEPEST: usize = 64;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Entity<'a> {
    Register(Slot, Type),
    /// A `.local` or `.param` variable: its offset in the frame's local memory.
    Local {
        offset: u64,
        size: u64,
    },
    /// Its offset in the parameter block.
    KernelParameter {
        offset: u64,
    },
    Label(u32),
    BranchTargets(Vec<&'a str>),
    CallTargets(Vec<&'a str>),
    Prototype(Shape),
    Module(Symbol),
}

impl Entity<'_> {
    pub(super) fn of_formal(declaration: &Declaration<'_>, formal: Formal) -> Self {
        match formal.place {
            Place::Slot(slot) => Entity::Register(slot, declaration.type_),
            Place::Local(offset) => Entity::Local { offset, size: formal.bytes },
        }
    }
}

/// Scopes are numbered in the order in which they open, identically in every walk over the body.
#[derive(Debug, Default)]
pub(super) struct Scopes<'a> {
    /// The open scopes, innermost last, without the function's own, 0.
    open: Vec<u32>,
    opened: u32,
    entities: HashMap<(u32, &'a str), Entity<'a>>,
    /// `%r<10>`, by its prefix.
    ranges: HashMap<(u32, &'a str), (u32, Type)>,
}

impl<'a> Scopes<'a> {
    pub(super) fn open(&mut self) -> Lowered<()> {
        if self.open.len() == DEEPEST {
            return Err(format!("more than {DEEPEST} nested scopes are not supported").into());
        }
        self.opened += 1;
        self.open.push(self.opened);
        Ok(())
    }

    pub(super) fn close(&mut self) {
        self.open.pop();
    }

    /// Restarts the numbering for another walk.
    pub(super) fn restart(&mut self) {
        self.open.clear();
        self.opened = 0;
    }

    fn current(&self) -> u32 {
        self.open.last().copied().unwrap_or(0)
    }

    pub(super) fn declare(&mut self, name: &'a str, entity: Entity<'a>) -> Lowered<()> {
        match self.entities.insert((self.current(), name), entity) {
            // Prototypes name their parameters `_`.
            Some(_) if name != "_" => Err(format!("{name} is declared twice").into()),
            _ => Ok(()),
        }
    }

    pub(super) fn declare_range(&mut self, prefix: &'a str, count: u32, type_: Type) -> Lowered<()> {
        match self.ranges.insert((self.current(), prefix), (count, type_)) {
            Some(_) => Err(format!("{prefix}<> is declared twice").into()),
            None => Ok(()),
        }
    }

    /// Searches from the innermost scope outwards.
    pub(super) fn find(&self, name: &'a str) -> Option<&Entity<'a>> {
        self.chain().find_map(|scope| self.entities.get(&(scope, name)))
    }

    /// The scope and type of a register of a range, which has no slot yet.
    pub(super) fn find_in_range(&self, name: &'a str) -> Option<(u32, Type)> {
        let prefix = name.trim_end_matches(|digit: char| digit.is_ascii_digit());
        // `%r01` is not one of `%r<10>`, and a prefix may itself end in digits.
        (prefix.len()..name.len()).find_map(|cut| {
            let (prefix, digits) = name.split_at(cut);
            // Before the digits are parsed, which takes as long as there are zeros.
            if digits.len() > 1 && digits.starts_with('0') {
                return None;
            }
            let number: u32 = digits.parse().ok()?;
            self.chain().find_map(|scope| {
                let &(count, type_) = self.ranges.get(&(scope, prefix))?;
                (number < count).then_some((scope, type_))
            })
        })
    }

    pub(super) fn assign(&mut self, scope: u32, name: &'a str, slot: Slot, type_: Type) {
        self.entities.insert((scope, name), Entity::Register(slot, type_));
    }

    fn chain(&self) -> impl Iterator<Item = u32> {
        self.open.iter().rev().copied().chain([0])
    }
}
