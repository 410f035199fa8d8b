//! `Handle`: an opened GPU, its properties and its statistics.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::sync::Mutex;
use std::time::Duration;

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};
use vkgdr::{CopyThresholds, MemoryKind, OpenFlags, Vkgdr};

use crate::allocation::{self, Bytes};
use crate::error::{Failure, Result, Size, number};
use crate::interpreter::{Detached, lock};
use crate::stream::tidy;

/// An opened GPU; the native half of the Python class `Vkgdr`.
#[pyclass(frozen, module = "vkgdr._vkgdr")]
pub(crate) struct Handle {
    /// None once closed. Dropping the last handle of a primary context releases the context, which may wait.
    gpu: Detached<Mutex<Option<Vkgdr>>>,
    /// The device, the flags, and the context or 0 for the current one: handles that are equal allocate the same memory. It stays
    /// when the handle is closed, since it is hashed. None for a handle that was never open.
    #[pyo3(get)]
    key: Option<(i32, u32, usize)>,
}

/// Parses a memory kind.
pub(crate) fn kind(word: &str) -> Result<MemoryKind> {
    match word {
        "mapped" => Ok(MemoryKind::Mapped),
        "host" => Ok(MemoryKind::Host),
        "device" => Ok(MemoryKind::Device),
        _ => Err(Failure::Invalid(format!("invalid kind '{word}': expected 'mapped', 'host' or 'device'"))),
    }
}

/// At least one kind, first choice first: a word or a sequence of words.
pub(crate) fn kinds(words: &Bound<'_, PyAny>) -> Result<Vec<MemoryKind>> {
    if words.is_instance_of::<PyString>() {
        return Ok(vec![kind(words.extract()?)?]);
    }
    let Ok(words) = words.extract::<Vec<String>>() else {
        let text = format!("kind must be 'mapped', 'host' or 'device', or a sequence of these, not {}", words.repr()?);
        return Err(PyTypeError::new_err(text).into());
    };
    if words.is_empty() {
        return Err(Failure::Invalid("no kind is given".into()));
    }
    words.iter().map(|word| kind(word)).collect()
}

/// The crate's handle of a Python `Vkgdr` object.
pub(crate) fn gpu_of(owner: &Bound<'_, PyAny>) -> Result<Vkgdr> {
    let handle = owner.getattr(intern!(owner.py(), "_handle")).ok();
    match handle.as_ref().and_then(|handle| handle.cast::<Handle>().ok()) {
        // The class itself has a `_handle` too, a closed one.
        Some(handle) if !owner.is_instance_of::<PyType>() => handle.get().gpu(),
        _ => {
            let found = owner.get_type().name()?;
            Err(PyTypeError::new_err(format!("owner must be a vkgdr.Vkgdr, not {found}")).into())
        }
    }
}

impl Handle {
    /// A handle of a GPU that is open already.
    pub(crate) fn of(gpu: Vkgdr) -> Self {
        let key = Some((gpu.device(), gpu.flags().bits(), gpu.own_context().map_or(0, |context| context.addr())));
        Self { gpu: Detached::new(Mutex::new(Some(gpu))), key }
    }

    /// The crate's handle, or the error that this one was closed. A caller that detaches drops it detached: another thread
    /// may close this one meanwhile.
    pub(crate) fn gpu(&self) -> Result<Vkgdr> {
        lock(&self.gpu).clone().ok_or(Failure::Gone("the handle was closed"))
    }
}

fn gpu<T>(slf: &Bound<'_, Handle>, read: impl FnOnce(Vkgdr) -> Result<T>) -> Result<T> {
    read(slf.get().gpu()?)
}

attributes! { Handle by gpu:
    device: i32 = |gpu| gpu.device();
    name: String = |gpu| gpu.name().to_owned();
    flags: u32 = |gpu| gpu.flags().bits();
    uuid: [u8; 16] = |gpu| gpu.uuid();
    pci_bus_id: String = |gpu| gpu.pci_bus_id()?;
    supports_existing: bool = |gpu| gpu.supports_existing()?;
    supports_semaphores: bool = |gpu| gpu.supports_semaphores();
    deferred_frees: usize = |gpu| gpu.deferred_frees();
    /// The kinds and the sizes of this package's live allocations on this GPU.
    live: Vec<(String, usize)> = |gpu| {
        let here = |bytes: &Bytes| Ok((bytes.device == gpu.device()).then(|| bytes.kind.to_string()));
        allocation::all().iter().filter_map(|one| Some((one.with(here).ok()??, one.len))).collect()
    };
    /// The smallest read and the smallest write that the copy engine does, in bytes.
    copy_thresholds: (usize, usize) = |gpu| (gpu.copy_thresholds().read, gpu.copy_thresholds().write);
}

impl Handle {
    /// Runs `work` detached from the interpreter.
    fn run<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&Vkgdr) -> T + Send) -> Result<T> {
        let gpu = self.gpu()?;
        // Moved, so that it is dropped detached.
        Ok(py.detach(move || work(&gpu)))
    }
}

#[pymethods]
impl Handle {
    /// A handle that is closed from the start.
    #[staticmethod]
    fn never() -> Self {
        Self { gpu: Detached::new(Mutex::new(None)), key: None }
    }

    /// Opens a GPU, and retains its primary context if `primary` says so.
    #[staticmethod]
    fn open(py: Python<'_>, device: &Bound<'_, PyAny>, flags: &Bound<'_, PyAny>, primary: bool) -> Result<Self> {
        let device = number(device, "a CUDA device number")?;
        let flags = OpenFlags::from_bits_retain(number(flags, "a set of flags")?);
        let open = if primary { Vkgdr::open_primary_context } else { Vkgdr::open };
        Ok(Self::of(py.detach(|| open(device, flags))?))
    }

    fn close(&self, py: Python<'_>) {
        let gpu = lock(&self.gpu).take();
        py.detach(|| drop(gpu));
    }

    #[getter]
    fn closed(&self) -> bool {
        lock(&self.gpu).is_none()
    }

    fn supports(&self, py: Python<'_>, kind: &str) -> Result<bool> {
        // Detached: the first question allocates.
        let kind = self::kind(kind)?;
        self.run(py, |gpu| gpu.supports(kind))
    }

    /// The fields of `vkgdr.MemoryInfo`, in their order.
    fn memory_info(&self, py: Python<'_>, kind: &str) -> Result<(u64, u64, String)> {
        let kind = self::kind(kind)?;
        let info = self.run(py, |gpu| gpu.memory_info(kind))??;
        Ok((info.available, info.total, info.source.to_string()))
    }

    fn memory_type_of<'py>(&self, py: Python<'py>, kind: &str) -> Result<MemoryType<'py>> {
        Ok(memory_type(py, self.gpu()?.memory_type_of(self::kind(kind)?)?)?)
    }

    fn memory_types<'py>(&self, py: Python<'py>) -> Result<Vec<MemoryType<'py>>> {
        Ok(self.gpu()?.memory_types().into_iter().map(|info| memory_type(py, info)).collect::<PyResult<_>>()?)
    }

    fn set_copy_thresholds(&self, read: Size, write: Size) -> Result<()> {
        self.gpu()?.set_copy_thresholds(CopyThresholds { read: read.0, write: write.0 });
        Ok(())
    }

    fn prepare_copies(&self, py: Python<'_>) -> Result<()> {
        Ok(self.run(py, Vkgdr::prepare_copies)??)
    }

    fn context_is_destroyed(&self, py: Python<'_>) -> Result<bool> {
        self.run(py, Vkgdr::context_is_destroyed)
    }

    fn collect(&self, py: Python<'_>) -> Result<usize> {
        // Memory of copies that are done is freed here.
        tidy();
        self.run(py, Vkgdr::collect)
    }

    fn set_shortage_timeout(&self, seconds: f64) -> Result<()> {
        let timeout = Duration::try_from_secs_f64(seconds);
        let timeout = timeout.map_err(|error| Failure::Invalid(format!("a timeout of {seconds} seconds: {error}")))?;
        self.gpu()?.set_shortage_timeout(timeout);
        Ok(())
    }
}

/// The fields of `vkgdr.MemoryType`, in their order.
type MemoryType<'py> = (Option<u32>, Option<u32>, u64, Bound<'py, PyTuple>);

fn memory_type(py: Python<'_>, info: vkgdr::MemoryTypeInfo) -> PyResult<MemoryType<'_>> {
    Ok((of_vulkan(info.index), of_vulkan(info.heap), info.heap_size, PyTuple::new(py, property_flags(info))?))
}

/// The names of a memory type's flags. ash writes them as "DEVICE_LOCAL | HOST_VISIBLE".
pub(crate) fn property_flags(info: vkgdr::MemoryTypeInfo) -> Vec<String> {
    format!("{:?}", info.flags).split(" | ").filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// An index of Vulkan's.
pub(crate) fn of_vulkan(number: u32) -> Option<u32> {
    (number != vkgdr::MemoryTypeInfo::OUTSIDE_VULKAN).then_some(number)
}

/// The version of CUDA that the driver supports, as 1000 × major + 10 × minor.
#[pyfunction]
pub(crate) fn driver_version() -> Result<i32> {
    Ok(vkgdr::driver_version()?)
}

/// Raises an error in a child that was forked after the driver was loaded.
#[pyfunction]
pub(crate) fn check_process() -> Result<()> {
    if vkgdr::is_forked() { Err(vkgdr::Error::Forked.into()) } else { Ok(()) }
}

/// Carries out a command line of the command `vkgdr`, whose first word is the program's name, on the process's own stdout and
/// stderr. Returns the exit code.
#[pyfunction]
pub(crate) fn command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| vkgdr_cli::run(arguments))
}
