//! [`Failure`], the error type of this library, and [`Outcome`].
#![forbid(unsafe_code)]

use vkgdr_rs::Error;

use crate::status::vkgdr_status as Status;

/// Why an export failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A null pointer where null is not allowed; the name of the parameter.
    Null(&'static str),
    /// Options of a size that no version of this library's header has.
    OptionsSize(usize),
    /// An unknown copy policy.
    CopyPolicy(u32),
    /// A region where whole memory is required.
    Region,
    /// An address in no memory of this library.
    NotFound,
    /// An error of the crate.
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
    /// The error number of a system call that failed.
    pub(crate) const fn errno(&self) -> Option<i32> {
        match self {
            Self::Library(Error::System { code, .. }) => Some(*code),
            _ => None,
        }
    }

    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Null(_) | Self::OptionsSize(_) | Self::CopyPolicy(_) | Self::Region => {
                Status::VKGDR_ERROR_INVALID_ARGUMENT
            }
            Self::NotFound => Status::VKGDR_ERROR_NOT_FOUND,
            Self::Library(error) => error.into(),
            Self::Panic => Status::VKGDR_ERROR_INTERNAL,
        }
    }
}

pub(crate) type Outcome<T = ()> = Result<T, Failure>;
