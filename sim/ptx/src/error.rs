//! Errors of loading a module.

use crate::span::Span;
use std::borrow::Cow;
use std::error::Error;
use std::fmt;

/// A statement that [`Module::load`](crate::Module::load) refuses, because it is invalid or not supported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// The line of the source, from 1.
    pub line: u32,
    /// The instruction or directive, as the source has it.
    pub text: String,
    /// The reason.
    pub reason: String,
    /// Whether the statement is refused because it is not supported: a GPU's driver may take it.
    pub is_unsupported: bool,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: '{}': {}", self.line, self.text, self.reason)
    }
}

impl Error for LoadError {}

/// Why a statement is refused: it is invalid, unless marked as not supported.
#[derive(Debug)]
pub(crate) struct Reason {
    pub(crate) text: Cow<'static, str>,
    pub(crate) is_unsupported: bool,
}

impl Reason {
    pub(crate) fn unsupported(text: impl Into<Cow<'static, str>>) -> Reason {
        Reason { text: text.into(), is_unsupported: true }
    }

    pub(crate) fn unsupported_modifier(name: &str) -> Reason {
        Reason::unsupported(format!("modifier .{name} is not supported with this instruction"))
    }

    /// The error of the statement.
    pub(crate) fn at(self, statement: Span, source: &str) -> LoadError {
        let Reason { text, is_unsupported } = self;
        LoadError { line: statement.line, text: statement.text(source), reason: text.into_owned(), is_unsupported }
    }
}

impl From<&'static str> for Reason {
    fn from(text: &'static str) -> Reason {
        Reason { text: text.into(), is_unsupported: false }
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Reason {
        Reason { text: text.into(), is_unsupported: false }
    }
}
