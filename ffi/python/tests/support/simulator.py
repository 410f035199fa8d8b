"""The controls of the simulated CUDA driver and of the Vulkan test layer: live objects, calls, injected failures.

Both are loaded into this process: ``sim/cuda`` as ``libcuda.so.1``, ``sim/vulkan`` as a Vulkan layer if
``VKGDR_TEST_LAYERS`` is ``faults`` or ``validation``. On a real driver there is no ``sim/cuda``, and tests that need it
are skipped.
"""

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import vkgdr

CUDA_NOUNS = (
    "memory",
    "host",
    "external",
    "mapped",
    "semaphore",
    "stream",
    "event",
    "module",
    "library",
    "linker",
    "context",
    "primary",
)
# Instances and devices live until the process ends.
VULKAN_NOUNS = ("buffer", "image", "semaphore", "memory", "mapping")


def is_late() -> bool:
    """Return whether work on a stream may still be under way when its call returns, as on a real driver."""
    # sim/run sets the latter for the profile late.
    return any(os.environ.get(name) == "1" for name in ("SIMCUDA_ASYNC", "SIMCUDA_LATE")) or not available()


class Controls:
    """The test interface of one of the two libraries."""

    def __init__(self, library: ctypes.CDLL, prefix: str, nouns: tuple[str, ...]) -> None:
        def function(name: str, result: type | None, *arguments: type) -> Callable[..., int]:
            found = getattr(library, f"{prefix}_{name}")
            found.restype = result
            found.argtypes = arguments
            return found

        self._nouns = nouns
        self._live_objects_of = function("live_objects_of", ctypes.c_size_t, ctypes.c_char_p)
        self._calls = function("calls", ctypes.c_uint64, ctypes.c_char_p)
        self._fail = function("fail", ctypes.c_int32, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_int32)
        self._clear_faults = function("clear_faults", None)

    def counters(self) -> list[tuple[str, Callable[[bytes], int], bytes]]:
        """Return for each type of object its name, and the C function and argument that count its live objects."""
        return [(noun, self._live_objects_of, noun.encode()) for noun in self._nouns]

    def calls(self, function: str | None = None) -> int:
        """Count the calls of a function so far, in all its versions; of all functions by default."""
        return self._calls(None if function is None else function.encode())

    @contextlib.contextmanager
    def fail(self, function: str, nth: int = 1, code: int = 999, *, must_happen: bool = True) -> Iterator[None]:
        """Make the nth call of a function from now fail with a code, once, within a ``with`` block.

        ``"*"`` is any function. Blocks may be nested. Unless ``must_happen`` is false, the end of the block raises if
        the failure did not occur.
        """
        if self._fail(function.encode(), nth, code) != 0:
            raise ValueError(f"the fault {function}:{nth}:{code} was refused")
        before = self.calls(None if function == "*" else function)
        try:
            yield
            calls = self.calls(None if function == "*" else function) - before
            assert not must_happen or calls >= nth, f"{function} was called {calls} times, its call {nth} was to fail"
        finally:
            self._clear_faults()


class _Absent:
    """Stands in for missing controls: every use skips the test."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def counters(self) -> list[tuple[str, Callable[[bytes], int], bytes]]:
        return []

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        pytest.skip(self._reason)


def _open_cuda() -> Controls | _Absent:
    try:
        library = ctypes.CDLL("libcuda.so.1")
        return Controls(library, "simcuda", CUDA_NOUNS)
    except OSError:
        return _Absent("there is no CUDA driver: start pytest through sim/run")
    except AttributeError:
        return _Absent("needs the simulated CUDA driver, and this one is real")


def _open_vulkan() -> Controls | _Absent:
    if "VK_LAYER_VKGDR_faults" not in os.environ.get("VK_INSTANCE_LAYERS", "").split(":"):
        return _Absent("needs the Vulkan test layer: VKGDR_TEST_LAYERS=faults")
    # The same file that Vulkan's loader opens, so that both share one state.
    library = ctypes.CDLL(str(Path(os.environ["VKGDR_LAYER_DIR"]) / "libvklayer.so"))
    return Controls(library, "vklayer", VULKAN_NOUNS)


cuda = _open_cuda()
vulkan = _open_vulkan()


def available() -> bool:
    """Return whether the CUDA driver is the simulated one."""
    return isinstance(cuda, Controls)


def require() -> None:
    """Skip the test on a real driver."""
    cuda.calls()


def calls(function: str | None = None) -> int:
    """Count the calls of a CUDA function so far."""
    return cuda.calls(function)


def fail(
    function: str, nth: int = 1, code: int = 999, *, must_happen: bool = True
) -> contextlib.AbstractContextManager[None]:
    """Make the nth call of a CUDA function fail; see `Controls.fail`."""
    return cuda.fail(function, nth, code, must_happen=must_happen)


OUT_OF_MEMORY = 2
OUT_OF_DEVICE_MEMORY = -2


@contextlib.contextmanager
def no_room(gpu: "vkgdr.Vkgdr", count: int = 1) -> Iterator[None]:
    """Make the next ``count`` allocations by Vulkan fail; by CUDA, too, where it allocates mapped memory instead."""
    with contextlib.ExitStack() as stack:
        for nth in range(1, count + 1):
            stack.enter_context(vulkan.fail("vkAllocateMemory", nth, OUT_OF_DEVICE_MEMORY))
            if gpu.supports_existing():
                # Memory of other kinds is Vulkan's.
                stack.enter_context(fail("cuMemAlloc", nth, OUT_OF_MEMORY, must_happen=False))
        yield


def counters() -> list[tuple[bytes, Callable[[bytes], int], bytes]]:
    """Return the entries of `ledger`: names, and C functions with their arguments."""
    both = (("CUDA", cuda), ("Vulkan", vulkan))
    return [(f"{api} {noun}".encode(), count, word) for api, of in both for noun, count, word in of.counters()]


def ledger() -> dict[str, int]:
    """Count the CUDA and Vulkan objects that must not leak, as far as the libraries count them."""
    return {name.decode(): count(word) for name, count, word in counters()}


def pages() -> int:
    """Count the live allocations of Vulkan memory."""
    return ledger()["Vulkan memory"]
