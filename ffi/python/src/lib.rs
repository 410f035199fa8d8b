//! The extension module `vkgdr._vkgdr`: the parts of the Python package that need a C type or native speed.
//!
//! The public classes are written in Python, in the package around this module. A memory object holds a
//! `memory_view::MemoryView`, a range of a `allocation::Allocation`; `base::Base` gives memory objects the protocols and the
//! accessors that must be fast. The thread detaches from the interpreter around driver calls and long copies.

mod addresses;
mod allocation;
mod base;
mod buffer;
mod command;
mod deferral;
mod detached;
mod dlpack;
mod error;
mod event;
mod fallible_vec;
mod find;
mod handle;
mod host_buffer;
mod host_view;
mod interruptible;
mod kept;
mod logging;
mod mapping;
mod memory_view;
mod pool;
mod raw_stream;
mod ring;
mod source;
mod storage;
mod stream;
mod stream_handle;
mod torch;
mod totals;
mod transfer;
mod vulkan;

use pyo3::prelude::*;

/// The native half of the package vkgdr.
#[pymodule(gil_used = false)]
mod _vkgdr {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::base::Base;
    #[pymodule_export]
    use crate::command::command;
    #[pymodule_export]
    use crate::deferral::{deferral_begin, deferral_end};
    #[pymodule_export]
    use crate::dlpack::{dlpack_export, dlpack_import, dlpack_order};
    #[pymodule_export]
    use crate::event::{Event, complete};
    #[pymodule_export]
    use crate::find::{find_address, find_device, find_host, find_id, foreign, pointer_device};
    #[pymodule_export]
    use crate::handle::{Handle, MemoryInfo, MemoryType, device_count, driver_version};
    #[pymodule_export]
    use crate::host_buffer::HostBuffer;
    #[pymodule_export]
    use crate::host_view::HostView;
    #[pymodule_export]
    use crate::mapping::Mapping;
    #[pymodule_export]
    use crate::memory_view::MemoryView;
    #[pymodule_export]
    use crate::pool::Pool;
    #[pymodule_export]
    use crate::ring::Ring;
    #[pymodule_export]
    use crate::source::Source;
    #[pymodule_export]
    use crate::stream::{record, stream_synchronize, stream_wait};
    #[pymodule_export]
    use crate::stream_handle::{EventHandle, StreamHandle, check_process};
    #[pymodule_export]
    use crate::transfer::{copy, fill};
    #[pymodule_export]
    use crate::vulkan::Semaphore;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::logging::install();
        let ends = wrap_pyfunction!(crate::detached::interpreter_ends, module)?;
        module.py().import("atexit")?.call_method1("register", (ends,))?;
        module.add("RING_HEADER", vkgdr::ring::CUDA_HEADER)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
