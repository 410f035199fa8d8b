//! Errors of the extension module, and the exception class of `vkgdr._errors` for each of them.
#![forbid(unsafe_code)]

use pyo3::exceptions::{PyEOFError, PyOSError, PyOverflowError, PyTimeoutError};
use pyo3::prelude::*;
use vkgdr::Error;

/// An error of the extension module: one of the crate's, one of this package's own, or a Python exception.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Driver(#[from] Error),
    /// An invalid argument: `InvalidArgumentError`.
    #[error("{0}")]
    Invalid(String),
    /// The memory was freed or the handle was closed: `FreedError`.
    #[error("{0}")]
    Gone(&'static str),
    #[error(transparent)]
    Python(#[from] PyErr),
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// `CUDA_ERROR_INVALID_CONTEXT`: no context is current.
pub(crate) const INVALID_CONTEXT: i32 = 201;

impl Failure {
    /// The failure as Python's sockets report it: an `OSError` for an error of the system.
    pub(crate) fn of_socket(self, py: Python<'_>) -> Self {
        match self {
            Self::Driver(ref error @ Error::System { code, .. }) if !error.is_out_of_memory() => {
                let text = py.import("os").and_then(|os| os.call_method1("strerror", (code,)));
                Self::Python(text.map_or_else(|error| error, |text| PyOSError::new_err((code, text.unbind()))))
            }
            other => other,
        }
    }
}

/// The exception class of this name.
pub(crate) fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("vkgdr._errors")?.getattr(name)
}

/// The exception of this class, with the driver's codes as attributes.
fn exception(py: Python<'_>, name: &str, failure: &Failure) -> PyResult<PyErr> {
    let exception = class(py, name)?.call1((failure.to_string(),))?;
    if let Failure::Driver(error) = failure {
        let operation = match error {
            Error::Cuda { operation, .. } | Error::Vulkan { operation, .. } => Some(*operation),
            Error::Allocation { operation, .. } => *operation,
            _ => None,
        };
        exception.setattr("operation", operation)?;
        exception.setattr("cu_result", error.cuda_code())?;
        exception.setattr("vk_result", error.vulkan_code())?;
    }
    // Gets the one that is being handled as its context when it is raised (PEP 3134), unlike one of `from_value`.
    Ok(PyErr::from_type(exception.get_type(), exception.unbind()))
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        let name = match failure {
            Failure::Python(error) => return error,
            // As Python's queues and sockets report them.
            Failure::Driver(Error::Disconnected | Error::RingClosed) => {
                return PyEOFError::new_err(failure.to_string());
            }
            Failure::Driver(Error::RingTimeout { .. }) => return PyTimeoutError::new_err(failure.to_string()),
            Failure::Driver(ref error) if error.is_out_of_memory() => "AllocationError",
            Failure::Driver(ref error) if error.is_unexported() => "InvalidArgumentError",
            Failure::Driver(Error::Freed) | Failure::Gone(_) => "FreedError",
            Failure::Driver(Error::OutOfRange { .. } | Error::ReversedRange { .. }) => "OutOfRangeError",
            Failure::Driver(Error::NoHostView { .. }) => "NoHostViewError",
            Failure::Invalid(_)
            | Failure::Driver(
                Error::ZeroSize { .. }
                | Error::UnknownFlags { .. }
                | Error::Misaligned { .. }
                | Error::WrongDevice { .. }
                | Error::ForeignStream
                | Error::PerThreadStream
                | Error::PoolOption { .. }
                | Error::Pooled
                | Error::NoExport { .. }
                | Error::NoDmaBuf { .. }
                | Error::NoMapping { .. }
                | Error::MessageTooLong { .. }
                | Error::ReadOnly
                | Error::System { code: libc::EBADF, .. },
            ) => "InvalidArgumentError",
            Failure::Driver(_) => "VkgdrError",
        };
        Python::attach(|py| exception(py, name, &failure).unwrap_or_else(|error| error))
    }
}

/// A number of bytes: any object with `__index__`, from 0 to `usize::MAX`.
pub(crate) struct Size(pub usize);

impl<'py> FromPyObject<'_, 'py> for Size {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        number(&value, "a number of bytes").map(Self)
    }
}

/// Extracts an integer; on overflow the error says that `value` is not `what`, such as "a number of bytes".
pub(crate) fn number<'py, T>(value: &Bound<'py, PyAny>, what: &str) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    let text = || format!("{value} is not {what}: it is negative or too large");
    value.extract().map_err(|error: PyErr| {
        if error.is_instance_of::<PyOverflowError>(value.py()) { PyOverflowError::new_err(text()) } else { error }
    })
}
