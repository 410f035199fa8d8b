//! Why an export failed.
#![forbid(unsafe_code)]

use vkgdr_rs::Error;

use crate::status::vkgdr_status as Status;

/// Why an export failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A pointer that must not be null is.
    Null(&'static str),
    /// Options that are larger than this library knows, or smaller than they ever were.
    OptionsSize(usize),
    /// A policy of copies that this library does not know.
    CopyPolicy(u32),
    /// A region where only whole memory will do.
    Region,
    /// The library's own error.
    Library(Error),
    /// A panic: a defect of this library.
    Panic,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

impl Failure {
    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Null(_) | Self::OptionsSize(_) | Self::CopyPolicy(_) | Self::Region => {
                Status::VKGDR_ERROR_INVALID_ARGUMENT
            }
            Self::Library(error) => error.into(),
            Self::Panic => Status::VKGDR_ERROR_INTERNAL,
        }
    }
}

pub(crate) type Outcome<T = ()> = Result<T, Failure>;
