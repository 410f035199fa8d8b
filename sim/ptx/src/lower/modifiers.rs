//! Consumes an instruction's modifiers one by one. A modifier that is left over is not supported.

use crate::error::Reason;
use crate::types::Type;
use std::borrow::Cow;

/// Only the reason of an error: the caller adds the instruction's line and text.
pub(crate) type Lowered<T> = Result<T, Reason>;

pub(crate) const UNSUPPORTED: Reason =
    Reason { text: Cow::Borrowed("instruction is not supported"), is_unsupported: true };

#[derive(Debug)]
pub(crate) struct Modifiers<'a> {
    left: Vec<&'a str>,
}

impl<'a> Modifiers<'a> {
    pub(crate) fn new(modifiers: &[&'a str]) -> Modifiers<'a> {
        Modifiers { left: modifiers.to_vec() }
    }

    /// Takes a modifier at any position.
    pub(crate) fn take(&mut self, name: &str) -> bool {
        let found = self.left.iter().position(|&left| left == name);
        if let Some(at) = found {
            self.left.remove(at);
        }
        found.is_some()
    }

    /// Takes the first that is one of these.
    pub(crate) fn take_any(&mut self, names: &[&str]) -> Option<&'a str> {
        let at = self.left.iter().position(|left| names.contains(left))?;
        Some(self.left.remove(at))
    }

    /// Takes the first for which there is a value.
    pub(crate) fn take_with<T>(&mut self, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let (at, value) = self.left.iter().enumerate().find_map(|(at, left)| Some((at, parse(left)?)))?;
        self.left.remove(at);
        Some(value)
    }

    /// Takes the first type.
    pub(crate) fn take_type(&mut self) -> Option<Type> {
        self.take_with(Type::parse)
    }

    /// Takes all with this prefix.
    pub(crate) fn drop_prefixed(&mut self, prefix: &str) {
        self.left.retain(|left| !left.starts_with(prefix));
    }

    pub(crate) fn first(&self) -> Option<&'a str> {
        self.left.first().copied()
    }
}
