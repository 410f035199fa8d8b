//! [`Failure`], the error type of this library, and [`Outcome`].
#![forbid(unsafe_code)]

use std::fmt::{Display, Formatter, Result as FmtResult};

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

    /// The status, CUDA's code and Vulkan's code.
    pub(crate) fn codes(&self) -> [i32; 3] {
        let of = |code: fn(&Error) -> Option<i32>| match self {
            Self::Library(error) => code(error).unwrap_or(0),
            _ => 0,
        };
        [self.status() as i32, of(Error::cuda_code), of(Error::vulkan_code)]
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

impl Display for Failure {
    fn fmt(&self, text: &mut Formatter<'_>) -> FmtResult {
        match self {
            Self::Null(what) => write!(text, "the {what} is NULL"),
            Self::OptionsSize(size) => write!(text, "this library knows no options of {size} bytes"),
            Self::CopyPolicy(value) => write!(text, "unknown copy policy {value}"),
            Self::Region => text.write_str("a region is given where whole memory is required"),
            Self::NotFound => text.write_str("no memory of vkgdr contains the address"),
            Self::Library(error) => error.fmt(text),
            Self::Panic => text.write_str("internal error in vkgdr: see stderr"),
        }
    }
}

pub(crate) type Outcome<T = ()> = Result<T, Failure>;
