//! `Vkgdr`: a handle of a GPU, to allocate memory from.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::mem::{replace, take};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pyo3::call::PyCallArgs;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBytes, PyDict, PyTuple, PyType};
use vkgdr::{CopyThresholds, MemoryKind, MemoryTypeInfo, OpenFlags};

use crate::allocation::{self, Allocation, release_retired};
use crate::error::{Failure, Result, Size, number};
use crate::interpreter::{Detached, lock};
use crate::stream::tidy;

/// A handle of a GPU, to allocate memory from.
///
/// Memory keeps its GPU open, so a handle may be closed or dropped at any time. All handles of a GPU in a process
/// share one Vulkan device: every handle after the first is cheap. A handle may be used from any thread. Unless it was
/// opened with `open_primary_context`, an allocation needs a current CUDA context of the device on the calling thread.
/// Handles are equal if their GPU, their context (a retained one, or the current one) and their flags are, also once
/// they are closed.
///
/// Parameters
/// ----------
/// device : int
///     The CUDA device number, counted from 0. Ignored with ``OpenFlags.CURRENT_CONTEXT_BIT``.
/// flags : int, optional
///     Bits of `OpenFlags`. Unknown bits are an error.
///
/// Raises
/// ------
/// VkgdrError
///     The CUDA driver is missing or fails, Vulkan runs out of memory, or no memory type fits
///     ``REQUIRE_COHERENT_BIT``. The message names the remedy. Without Vulkan a handle opens; `supports` tells which
///     kinds of memory it has.
#[pyclass(frozen, subclass, dict, weakref, module = "vkgdr")]
pub(crate) struct Vkgdr {
    /// Dropping the last handle of a primary context releases the context, which may wait.
    state: Detached<Mutex<State>>,
}

/// The device, the flags, and the context or 0 for the current one: handles that are equal allocate the same memory.
type Key = (i32, u32, usize);

/// Both are None before `__init__`.
#[derive(Default)]
struct State {
    /// None once closed.
    gpu: Option<vkgdr::Vkgdr>,
    /// It stays when the handle is closed, since it is hashed.
    key: Option<Key>,
}

impl From<vkgdr::Vkgdr> for State {
    fn from(gpu: vkgdr::Vkgdr) -> Self {
        let key = (gpu.device(), gpu.flags().bits(), gpu.own_context().map_or(0, |context| context.addr()));
        Self { gpu: Some(gpu), key: Some(key) }
    }
}

impl Vkgdr {
    /// A handle of a GPU that is open already.
    pub(crate) fn of(gpu: vkgdr::Vkgdr) -> Self {
        Self { state: Detached::new(Mutex::new(gpu.into())) }
    }

    /// The crate's handle. A caller that detaches drops it detached: another thread may close this one meanwhile.
    pub(crate) fn gpu(&self) -> Result<vkgdr::Vkgdr> {
        lock(&self.state).gpu.clone().ok_or(Failure::Gone("the handle was closed"))
    }

    fn key(&self) -> Option<Key> {
        lock(&self.state).key
    }

    /// Runs `work` detached from the interpreter.
    pub(crate) fn run<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&vkgdr::Vkgdr) -> T + Send) -> Result<T> {
        let gpu = self.gpu()?;
        // Moved, so that it is dropped detached.
        Ok(py.detach(move || work(&gpu)))
    }

    /// Opens a GPU, in place of the one before.
    fn open(&self, py: Python<'_>, device: i32, flags: u32, is_primary: bool) -> Result<()> {
        let open = if is_primary { vkgdr::Vkgdr::open_primary_context } else { vkgdr::Vkgdr::open };
        py.detach(|| {
            let opened = open(device, OpenFlags::from_bits_retain(flags))?.into();
            let _before = replace(&mut *lock(&self.state), opened);
            Ok(())
        })
    }
}

fn device_number(value: &Bound<'_, PyAny>) -> PyResult<i32> {
    number(value, "a CUDA device number").map_err(|error| {
        let text = format!("device must be an integer, CUDA's number of the GPU, such as 0, not {value:?}");
        if error.is_instance_of::<PyTypeError>(value.py()) { PyTypeError::new_err(text) } else { error }
    })
}

fn flag_bits(value: &Bound<'_, PyAny>) -> PyResult<u32> {
    number(value, "a set of flags")
}

fn gpu<T>(slf: &Bound<'_, Vkgdr>, read: impl FnOnce(Python<'_>, vkgdr::Vkgdr) -> Result<T>) -> Result<T> {
    read(slf.py(), slf.get().gpu()?)
}

attributes! { Vkgdr by gpu:
    /// The CUDA device number.
    device: i32 = |_py, gpu| gpu.device();
    /// The GPU's name, from the CUDA driver.
    name: String = |_py, gpu| gpu.name().to_owned();
    /// The flags of the handle.
    flags: Py<PyAny> = |py, gpu| made(py, ("vkgdr", "OpenFlags"), (gpu.flags().bits(),))?;
    /// The UUID by which CUDA and Vulkan identify the GPU.
    uuid: Py<PyAny> = |py, gpu| made(py, ("uuid", "UUID"), (None::<&str>, PyBytes::new(py, &gpu.uuid())))?;
    /// The GPU's PCI bus id, such as ``0000:65:00.0``.
    pci_bus_id: String = |_py, gpu| gpu.pci_bus_id()?;
    /// The sizes in bytes from which the copy engine reads and writes coherent mapped memory.
    ///
    /// Settable, for all handles of the GPU; 0 selects the engine for all that it can copy. The CPU copies memory that it caches
    /// or that is not coherent, and writes from memory that is not page-locked. It also copies where the context has no copy
    /// engine: see `prepare_copies`.
    copy_thresholds: (usize, usize) = |_py, gpu| (gpu.copy_thresholds().read, gpu.copy_thresholds().write);
}

#[pymethods]
impl Vkgdr {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs), text_signature = "(device, flags=0)")]
    fn new(_args: &Bound<'_, PyAny>, _kwargs: Option<&Bound<'_, PyAny>>) -> Self {
        Self { state: Detached::new(Mutex::default()) }
    }

    #[pyo3(signature = (device, flags = 0))]
    fn __init__(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = device_number)] device: i32,
        #[pyo3(from_py_with = flag_bits)] flags: u32,
    ) -> Result<()> {
        self.open(py, device, flags, false)
    }

    /// Open the GPU of the CUDA context that is current on this thread, with the flags of the class.
    ///
    /// Without a context the error is ``CUDA_ERROR_INVALID_CONTEXT``.
    #[classmethod]
    #[pyo3(signature = (flags = 0))]
    fn open_current_context<'py>(
        cls: &Bound<'py, PyType>,
        #[pyo3(from_py_with = flag_bits)] flags: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        cls.call1((0, flags | OpenFlags::CURRENT_CONTEXT.bits()))
    }

    /// Open a GPU and retain its primary context, the one that CuPy, PyTorch, numba and the CUDA runtime use.
    ///
    /// Memory of this handle is allocated in the primary context; no context needs to be current. The parameters and
    /// the errors are those of the class. ``__init__`` is not called.
    #[classmethod]
    #[pyo3(signature = (device = 0, flags = 0))]
    fn open_primary_context<'py>(
        cls: &Bound<'py, PyType>,
        #[pyo3(from_py_with = device_number)] device: i32,
        #[pyo3(from_py_with = flag_bits)] flags: u32,
    ) -> Result<Bound<'py, Self>> {
        let opened = cls.call_method1("__new__", (cls,))?.cast_into::<Self>().map_err(PyErr::from)?;
        opened.get().open(cls.py(), device, flags, true)?;
        Ok(opened)
    }

    /// Return whether memory of this kind can be allocated.
    ///
    /// The first question for a kind allocates one byte and frees it, since the drivers may refuse to share memory that
    /// they list. It is in the handle's primary context, in the current context, or else in the device's primary
    /// context. It may wait for a running kernel. Running out of memory does not count as a no.
    fn supports(&self, py: Python<'_>, kind: &str) -> Result<bool> {
        let kind = self::kind(kind)?;
        self.run(py, |gpu| gpu.supports(kind))
    }

    /// Return whether the CPU can map memory that others allocated on this GPU, as `host_view` does.
    ///
    /// The driver must support CUDA 13.3 (R610) and the GPU allow it. Needs no current context.
    fn supports_existing(&self) -> Result<bool> {
        Ok(self.gpu()?.supports_existing()?)
    }

    /// Return whether the drivers share timeline semaphores, see `vkgdr.vulkan.Semaphore`, as far as Vulkan says.
    fn supports_semaphores(&self) -> Result<bool> {
        Ok(self.gpu()?.supports_semaphores())
    }

    /// Return the free and the total memory of a kind.
    ///
    /// For ``"mapped"`` the total is the GPU memory that the CPU can map through the PCIe BAR. ``source`` is
    /// ``"budget"`` if Vulkan reports memory in use, and ``"heap size"`` if it does not. For memory that does not come
    /// from Vulkan it is ``"system"`` (host) or ``"cuMemGetInfo"`` (device, and mapped, whose total is then all the
    /// GPU's memory). It is an error if the GPU has no memory of this kind.
    #[pyo3(signature = (kind = "mapped"))]
    fn memory_info(&self, py: Python<'_>, kind: &str) -> Result<Py<PyAny>> {
        let kind = self::kind(kind)?;
        let info = self.run(py, |gpu| gpu.memory_info(kind))??;
        made(py, ("vkgdr.typing", "MemoryInfo"), (info.available, info.total, info.source.to_string()))
    }

    /// List the GPU's Vulkan memory types; none without Vulkan.
    fn memory_types(&self, py: Python<'_>) -> Result<Vec<Py<PyAny>>> {
        self.gpu()?.memory_types().into_iter().map(|info| memory_type(py, info)).collect()
    }

    /// Return the memory type of a kind. Its ``index`` and ``heap`` are None if it does not come from Vulkan.
    fn memory_type_of(&self, py: Python<'_>, kind: &str) -> Result<Py<PyAny>> {
        memory_type(py, self.gpu()?.memory_type_of(self::kind(kind)?)?)
    }

    /// Count this package's live allocations on the GPU in this process.
    ///
    /// The keys are ``live_allocations``; ``live_bytes``, and by kind ``mapped_bytes``, ``host_bytes`` and
    /// ``device_bytes``; ``deferred_frees``, the freed allocations that wait for a stream.
    fn stats<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let gpu = self.gpu()?;
        let is_here = |one: &Arc<Allocation>| one.device == gpu.device() && !one.is_freed();
        let live: Vec<(MemoryKind, usize)> =
            allocation::all()?.into_iter().filter(is_here).map(|one| (one.kind, one.len)).collect();
        let bytes_of = |kind| live.iter().filter(|&&(own, _)| own == kind).map(|(_, len)| len).sum();
        let stats = [
            ("live_allocations", live.len()),
            ("live_bytes", live.iter().map(|(_, len)| len).sum()),
            ("mapped_bytes", bytes_of(MemoryKind::Mapped)),
            ("host_bytes", bytes_of(MemoryKind::Host)),
            ("device_bytes", bytes_of(MemoryKind::Device)),
            ("deferred_frees", gpu.deferred_frees()),
        ];
        Ok(stats.into_py_dict(py)?)
    }

    #[setter]
    fn set_copy_thresholds(&self, read_and_write: [Size; 2]) -> Result<()> {
        let [read, write] = read_and_write;
        self.gpu().map(|gpu| gpu.set_copy_thresholds(CopyThresholds { read: read.0, write: write.0 }))
    }

    /// Make the stream of the GPU's copy engine, so that copies use it by default.
    ///
    /// That may wait until running kernels have ended: call this before starting a kernel that waits for
    /// the CPU. Does nothing if it exists. Needs a context, as an allocation does, and is for memory of that context.
    fn prepare_copies(&self, py: Python<'_>) -> Result<()> {
        Ok(self.run(py, vkgdr::Vkgdr::prepare_copies)??)
    }

    /// Release the pending allocations that their streams have finished with, and return their number.
    ///
    /// Freeing memory that is not of a pool releases some of them too, and so does an allocation where memory is short.
    /// The driver frees memory only after running kernels have ended. This call waits for the context of memory whose
    /// release could not wait for it, as during a stream capture.
    fn collect(&self, py: Python<'_>) -> Result<usize> {
        // Memory of copies that are done is freed here.
        tidy(usize::MAX);
        py.detach(|| release_retired((0, 0)));
        self.run(py, vkgdr::Vkgdr::collect)
    }

    /// Set how long an allocation that runs short waits for freed memory that the device still uses.
    ///
    /// It is 1 second by default, and pools wait as long for memory of theirs. A second try, after a garbage collection, may
    /// wait as long again. A program whose thread feeds a kernel
    /// that does not end by itself sets 0.
    fn set_shortage_timeout(&self, seconds: f64) -> Result<()> {
        let timeout = Duration::try_from_secs_f64(seconds);
        let timeout = timeout.map_err(|error| Failure::Invalid(format!("a timeout of {seconds} seconds: {error}")))?;
        self.gpu().map(|gpu| gpu.set_shortage_timeout(timeout))
    }

    /// Close the handle. Its memory stays valid. A second call does nothing.
    fn close(&self, py: Python<'_>) {
        let gpu = take(&mut lock(&self.state).gpu);
        py.detach(|| drop(gpu));
    }

    /// Whether the handle was closed.
    #[getter]
    fn closed(&self) -> bool {
        lock(&self.state).gpu.is_none()
    }

    /// The context that the handle retains; 0 for none.
    #[getter]
    fn _own_context(&self) -> usize {
        self.key().map_or(0, |(_, _, context)| context)
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) {
        self.close(py);
    }

    fn __eq__(slf: &Bound<'_, Self>, other: &Bound<'_, Self>) -> bool {
        let key = slf.get().key();
        slf.is(other) || key.is_some() && key == other.get().key()
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        self.key().into_pyobject(py)?.hash()
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err("a handle cannot be copied or pickled: open the GPU again"))
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let class = slf.get_type();
        let name = format!("{}.{}", class.module()?, class.qualname()?);
        Ok(match slf.get().gpu() {
            Ok(gpu) => format!("<{name}: CUDA device {}, {}>", gpu.device(), gpu.name()),
            Err(_) => format!("<{name}: closed>"),
        })
    }
}

/// An object of a class of Python's, by its module and name, with these arguments.
pub(crate) fn made<'py>(
    py: Python<'py>,
    (module, class): (&str, &str),
    arguments: impl PyCallArgs<'py>,
) -> Result<Py<PyAny>> {
    Ok(py.import(module)?.getattr(class)?.call1(arguments)?.unbind())
}

fn memory_type(py: Python<'_>, info: MemoryTypeInfo) -> Result<Py<PyAny>> {
    let flags = PyTuple::new(py, info.property_names())?;
    let fields = (of_vulkan(info.index), of_vulkan(info.heap), info.heap_size, flags);
    made(py, ("vkgdr.typing", "MemoryType"), fields)
}

/// Parses a memory kind.
pub(crate) fn kind(word: &str) -> Result<MemoryKind> {
    let invalid = || Failure::Invalid(format!("invalid kind '{word}': expected 'mapped', 'host' or 'device'"));
    MemoryKind::ALL.into_iter().find(|kind| kind.to_string() == word).ok_or_else(invalid)
}

/// At least one kind, first choice first: a word or a sequence of words.
pub(crate) fn kinds(words: &Bound<'_, PyAny>) -> Result<Vec<MemoryKind>> {
    let one = words.extract().map(|word: String| vec![word]);
    let Ok(words) = one.or_else(|_| words.extract::<Vec<String>>()) else {
        let text = format!("kind must be 'mapped', 'host' or 'device', or a sequence of these, not {}", words.repr()?);
        return Err(PyTypeError::new_err(text).into());
    };
    if words.is_empty() {
        return Err(Failure::Invalid("no kind is given".into()));
    }
    words.iter().map(|word| kind(word)).collect()
}

/// An index of Vulkan's.
pub(crate) fn of_vulkan(number: u32) -> Option<u32> {
    (number != MemoryTypeInfo::OUTSIDE_VULKAN).then_some(number)
}

/// The version of CUDA that the driver supports, as 1000 × major + 10 × minor. An error in a forked child.
#[pyfunction]
pub(crate) fn driver_version() -> Result<i32> {
    Ok(vkgdr::driver_version()?)
}

/// Carries out a command line of `vkgdr`, from the program's name on, with the process's own output. Returns the exit code.
#[pyfunction]
pub(crate) fn command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| vkgdr_cli::run(arguments))
}
