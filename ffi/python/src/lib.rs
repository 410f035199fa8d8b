//! The extension module `vkgdr._vkgdr`: the parts of the Python package that need a C type or native speed.
//!
//! `Vkgdr`, `Event` and `Ring` are whole here. The other public classes are written in Python, in the package around this module.
//! A memory object has a `memory_view::MemoryView`, a range of an `allocation::Allocation`, which holds a [`vkgdr::Memory`].
//! `base::Base` gives it the protocols and accessors that must be fast. Driver calls and long copies run detached.

/// Read-only attributes of a class: each with its documentation, its type, and its value from the parts that `by` gives.
macro_rules! attributes {
    ($class:ident by $given:path: $($(#[$about:meta])* $name:ident: $type:ty = |$($part:ident),+| $value:expr;)+) => {
        #[pymethods]
        impl $class {
            $($(#[$about])*
            #[getter]
            fn $name(slf: &Bound<'_, Self>) -> Result<$type> {
                $given(slf, |$($part),+| Ok($value))
            })+
        }
    };
}

mod allocation;
mod base;
mod device;
mod dlpack;
mod error;
mod interpreter;
mod memory_view;
mod pool;
mod resource;
mod ring;
mod stream;
mod transfer;
mod vulkan;

use pyo3::prelude::*;

/// The native half of the package vkgdr.
#[pymodule(gil_used = false)]
mod _vkgdr {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::{
        allocation::defer_cleanup,
        base::{Base, HostBuffer},
        device::{Vkgdr, command, driver_version},
        dlpack::{dlpack_export, dlpack_import},
        memory_view::{MemoryView, check_user, find, find_id, foreign},
        pool::Pool,
        resource::Resource,
        ring::Ring,
        stream::{CudaHandle, Event, complete, record, stream_synchronize, stream_wait},
        transfer::{copy, fill},
        vulkan::Semaphore,
    };

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::interpreter::check_main()?;
        // An application that embeds Python may have installed its own logger, which then stays.
        if log::set_logger(&crate::interpreter::Logger).is_ok() {
            log::set_max_level(log::LevelFilter::Info);
        }
        let ends = wrap_pyfunction!(crate::interpreter::interpreter_ends, module)?;
        module.py().import("atexit")?.call_method1("register", (ends,))?;
        module.add("RING_HEADER", vkgdr::ring::CUDA_HEADER)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
