//! Errors of loading a module.

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
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: '{}': {}", self.line, self.text, self.reason)
    }
}

impl Error for LoadError {}
