"""Fixtures of all tests: contexts, handles, programs in separate processes, and the check for leaks.

Start pytest through ``sim/run``, which chooses the CUDA driver; ``make python`` prints the whole command.
"""

import contextlib
import functools
import gc
import importlib.util
import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import libcuda
import native
import pytest
import simulator

FAILED = pytest.StashKey[bool]()


def pytest_configure() -> None:
    """Abort unless the installed package is imported, not its sources."""
    spec = importlib.util.find_spec("vkgdr")
    if spec is None:
        raise pytest.UsageError("vkgdr is not installed for this interpreter: `make python` makes one that has it")
    folder = Path(spec.origin or "").parent
    if not any(folder.glob("_vkgdr.*.so")):
        raise pytest.UsageError(f"{folder} has no extension module: start pytest from another folder")


# ---- the simulated driver -------------------------------------------------------------------------------------------


@pytest.fixture
def simulated() -> None:
    """Skip the test unless the CUDA driver is the simulated one."""
    simulator.require()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests of the simulated driver on another one, before their fixtures create contexts."""
    if not simulator.available():
        skip = pytest.mark.skip(reason="needs the simulated CUDA driver")
        for item in items:
            if "simulated" in getattr(item, "fixturenames", ()):
                item.add_marker(skip)


def pytest_report_header() -> str:
    """Print the driver and the GPU at the top of the report."""
    driver = "simulated" if simulator.available() else "real"
    return f"CUDA driver: {driver}, Vulkan test layer: {'on' if simulator.vulkan.counters() else 'off'}"


# ---- CUDA -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def cuda() -> libcuda.Cuda:
    """Return the CUDA driver, initialised; see `libcuda.Cuda`."""
    try:
        return libcuda.Cuda()
    except OSError:
        pytest.fail("there is no CUDA driver: start pytest through sim/run", pytrace=False)


@pytest.fixture(scope="session", autouse=True)
def primary_of_the_run() -> Iterator[None]:
    """Keep device 0's primary context of a real GPU, of which a test would otherwise create and destroy its own."""
    cuda = None
    # In exclusive compute mode, where tests/gpu runs one test at a time, the programs of tests need the GPU themselves.
    if not simulator.available() and os.environ.get("NEXTEST_TEST_THREADS") != "1":
        with contextlib.suppress(OSError, libcuda.CudaError):
            found = libcuda.Cuda()
            found.push(found.retain_primary())
            found.load_own_kernels()
            found.pop()
            cuda = found
    yield
    if cuda is not None:
        cuda.release_primary()


def skip_without_mapped_memory(gpu: Any) -> None:
    """Skip the test where the driver of a real GPU has no mapped memory, as without Vulkan."""
    if not simulator.available() and not gpu.supports("mapped"):
        pytest.skip("the GPU's driver has no mapped memory: see `python -m vkgdr doctor`")


@pytest.fixture
def no_context(cuda: libcuda.Cuda) -> Iterator[None]:
    """Run the test with no current CUDA context on this thread."""
    popped = []
    while cuda.current():
        popped.append(cuda.pop())
    yield
    for handle in reversed(popped):
        cuda.push(handle)


def release_bound(cuda: libcuda.Cuda) -> None:
    """Release the memory whose streams belong to the current context, before that is destroyed."""
    gc.collect()
    with contextlib.suppress(libcuda.CudaError):
        cuda.synchronize()
    if "vkgdr" in sys.modules:
        sys.modules["vkgdr"].Vkgdr(0).collect()


@pytest.fixture
def context(cuda: libcuda.Cuda, no_context: None) -> Iterator[libcuda.Context]:
    """Create a context that is current on this thread, and destroy it afterwards."""
    context = cuda.create_context()
    if not simulator.available():
        cuda.load_own_kernels()
    yield context
    release_bound(cuda)
    context.destroy()
    assert cuda.current() == 0, "the test leaves a context current"


@pytest.fixture
def gpu(context: libcuda.Context) -> Any:
    """Open GPU 0 in a new context, which is current on this thread."""
    import vkgdr

    gpu = vkgdr.Vkgdr(0)
    skip_without_mapped_memory(gpu)
    return gpu


@pytest.fixture
def live(gpu: Any) -> Callable[..., int]:
    """Count the live allocations on the GPU that the test made; see `neighbours.counter`."""
    from neighbours import counter

    return counter(gpu)


@pytest.fixture
def foreign(cuda: libcuda.Cuda, context: libcuda.Context) -> Iterator[Any]:
    """Allocate 16 zeros on the device without vkgdr, with the CUDA Array Interface."""
    from neighbours import BorrowedBytes

    pointer = cuda.allocate(16)
    cuda.fill(pointer, 0, 16)
    yield BorrowedBytes(pointer, 16)
    gc.collect()
    cuda.synchronize()
    cuda.free(pointer)


@pytest.fixture
def primary(no_context: None) -> Any:
    """Open GPU 0 in its primary context, with no context current on this thread."""
    import vkgdr

    gpu = vkgdr.Vkgdr.open_primary_context(0)
    skip_without_mapped_memory(gpu)
    return gpu


@pytest.fixture
def current_primary(cuda: libcuda.Cuda, no_context: None) -> Iterator[Any]:
    """Open GPU 0 in its primary context, which is current on this thread."""
    import vkgdr

    cuda.push(cuda.retain_primary())
    yield vkgdr.Vkgdr.open_primary_context(0)
    gc.collect()
    cuda.pop()
    cuda.release_primary()


@pytest.fixture
def pycuda_context(cuda: libcuda.Cuda, no_context: None) -> Iterator[Any]:
    """Create a context with pycuda, current on this thread, and detach it afterwards."""
    driver = pytest.importorskip("pycuda.driver", reason="pycuda is not installed", exc_type=ImportError)
    driver.init()
    context = driver.Device(0).make_context()
    yield context
    release_bound(cuda)
    context.pop()
    context.detach()


# ---- leaks ----------------------------------------------------------------------------------------------------------


def release_pending() -> None:
    """Release the freed memory whose streams have finished, as the next allocation on the GPU would."""
    import vkgdr

    with contextlib.suppress(vkgdr.VkgdrError):
        vkgdr.Vkgdr.open_primary_context(0).collect()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Record failed tests: their tracebacks keep objects alive."""
    report = yield
    if report.failed:
        item.session.stash[FAILED] = item.stash[FAILED] = True
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Drop the values of the test's fixtures, so that each is finalized before the one it was made from."""
    if isinstance(item, pytest.Function):
        item.funcargs.clear()
    gc.collect()


@pytest.fixture(autouse=True)
def no_leak(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check that a test leaves no live CUDA and Vulkan objects behind.

    Tests that leak on purpose give the reason: ``@pytest.mark.leaks("reason")``. Garbage from before the test, made by
    a fixture of wider scope, is frozen: ``gc.collect`` in the test does not collect it.
    """
    gc.collect()
    # Excludes objects from before the test, such as PyTorch's, from the collections after it: visiting them would take
    # most of the test's time.
    gc.freeze()
    before = simulator.ledger()
    yield
    if request.node.get_closest_marker("leaks") or request.node.stash.get(FAILED, False):
        return
    # A release on another thread may still be running.
    deadline = time.monotonic() + 20
    while True:
        gc.collect()
        now = simulator.ledger()
        leaked = {noun: (before[noun], now[noun]) for noun in before if now[noun] > before[noun]}
        gone = {noun: (before[noun], now[noun]) for noun in before if now[noun] < before[noun]}
        # Objects of an earlier failed test may be released at any time.
        if not leaked and (not gone or request.session.stash.get(FAILED, False)):
            return
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
        gc.unfreeze()
        if simulator.is_late():
            release_pending()
    lines = [f"{noun}: {counts[0]} -> {counts[1]}" for noun, counts in sorted((leaked | gone).items())]
    pytest.fail("live objects before and after the test: " + ", ".join(lines), pytrace=False)


# ---- programs -------------------------------------------------------------------------------------------------------

# Counts what is left after the interpreter has ended.
LEDGER_AT_EXIT = """
import ctypes
import simulator
library = ctypes.CDLL({library!r})
for name, count, noun in simulator.counters():
    library.add_counter(name, ctypes.cast(count, ctypes.c_void_p), noun)
library.report_at_exit({fd})
del count, ctypes, library, name, noun, simulator
"""


@dataclass
class Finished:
    """The result of a program that has ended."""

    stdout: str
    stderr: str
    returncode: int
    live: dict[str, int] = field(default_factory=dict)
    """What was alive in CUDA and Vulkan at the very end; only from `run_python_to_its_end`."""


def _run(code: str, expect: int | None = 0, *, ledger: str | None = None, **env: str) -> Finished:
    """Run code in a new process, with this interpreter and driver.

    Checks the exit code (``None`` allows any), and that there was no signal, no panic and no exception in a destructor.
    With `ledger`, the library of `native`, the result has ``live``: the ledger after the interpreter's end.
    """
    (reader, writer), live = os.pipe(), b""
    try:
        program = (LEDGER_AT_EXIT.format(library=ledger, fd=writer) if ledger else "") + textwrap.dedent(code)
        # Python warns of forks in processes with threads, which the drivers have: tests of forks need them.
        ignored = "ignore:This process (pid"
        command = [sys.executable, "-X", "dev", "-W", "error", "-W", ignored, "-c", program]
        if "VKGDR_TEST_PROFILE" in env:
            command.insert(0, str(Path(__file__).parents[3] / "sim" / "run"))
        # Programs import the helpers of tests, too.
        path = os.pathsep.join(filter(None, [str(Path(simulator.__file__).parent), os.environ.get("PYTHONPATH")]))
        environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": path} | env
        done = subprocess.run(
            command, env=environment, pass_fds=[writer], capture_output=True, text=True, timeout=300, check=False
        )
        os.set_blocking(reader, False)
        with contextlib.suppress(BlockingIOError):
            live = os.read(reader, 4096)
    finally:
        os.close(reader)
        os.close(writer)
    finished = Finished(done.stdout, done.stderr, done.returncode, json.loads(b"{" + live + b"}"))
    assert done.returncode >= 0, f"the program was killed by signal {-done.returncode}:\n{done.stderr}"
    # "Exception ignored in", from Python 3.14 on also "Exception ignored while".
    for word in ("panicked at", "Fatal Python error", "Exception ignored"):
        assert word not in done.stderr, f"the program's errors:\n{done.stderr}"
    if expect is not None:
        assert done.returncode == expect, f"exit code {done.returncode}, not {expect}:\n{done.stdout}{done.stderr}"
    if ledger:
        assert live or not simulator.counters(), f"the program ended before its ledger was read:\n{done.stderr}"
    return finished


@pytest.fixture
def run_python() -> Callable[..., Finished]:
    """Return a function that runs code in a new process: ``run_python(code, expect=0, **environment)``."""
    return _run


@pytest.fixture
def run_python_to_its_end() -> Callable[..., Finished]:
    """Return a function like `run_python`, whose result has ``live``: the ledger after the interpreter's end."""
    return functools.partial(_run, ledger=native.path())
