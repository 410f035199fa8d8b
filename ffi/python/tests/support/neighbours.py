"""Stand-ins for device memory and streams of other libraries, and helpers of several tests."""

import ctypes
import gc
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import libcuda
import numpy as np
import pytest
import vkgdr
from vkgdr.arrays import host_array, mapped_array

KINDS = ["mapped", "host", "device"]
every_kind = pytest.mark.parametrize("kind", KINDS)
every_visible_kind = pytest.mark.parametrize("kind", KINDS[:2])

# What arrays of the tests contain.
EXAMPLE = np.arange(24, dtype="i4").reshape(2, 3, 4)

# The functions that allocate shared arrays, by the kind of their memory.
MAKERS = {"mapped": mapped_array, "host": host_array}


class Foreign:
    """Device memory allocated without vkgdr, with the CUDA Array Interface; freed in its context."""

    def __init__(self, cuda: libcuda.Cuda, contents: bytes, **interface: object) -> None:
        self._cuda = cuda
        self.context = cuda.current()
        self.pointer = cuda.allocate(len(contents))
        cuda.write(self.pointer, contents)
        self.__cuda_array_interface__ = {
            "shape": (len(contents),),
            "typestr": "|u1",
            "data": (self.pointer, False),
            "strides": None,
            "version": 3,
        } | interface

    def __del__(self) -> None:
        self._cuda.push(self.context)
        self._cuda.free(self.pointer)
        self._cuda.pop()


class Pinned:
    """Page-locked host memory, which CUDA copies in stream order, as bytes with weak references."""

    def __init__(self, cuda: libcuda.Cuda, size: int) -> None:
        address = ctypes.c_void_p()
        cuda.call("cuMemHostAlloc", ctypes.byref(address), size, 0)
        kind = type("PinnedBytes", (ctypes.c_ubyte * size,), {})
        self.bytes: Any = kind.from_address(address.value)
        self._free = lambda: cuda.call("cuMemFreeHost", address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._free()


class ByDlpack:
    """Exposes only DLPack of an object."""

    def __init__(self, obj: Any) -> None:
        self._obj = obj

    def __dlpack__(self, **arguments: object) -> object:
        return self._obj.__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._obj.__dlpack_device__()


class ByInterface:
    """Exposes only an array interface."""

    def __init__(self, interface: object) -> None:
        self.__cuda_array_interface__ = interface


class Borrowed(ByInterface):
    """An array on the device that another object keeps alive."""

    def __init__(
        self, pointer: int, shape: tuple[int, ...], typestr: str, *, readonly: bool = False, **interface: object
    ) -> None:
        data = (pointer, readonly)
        super().__init__({"shape": shape, "typestr": typestr, "data": data, "version": 3} | interface)


class BorrowedBytes(Borrowed):
    """Bytes on the device that another object keeps alive, optionally with a stream."""

    def __init__(self, pointer: int, size: int, stream: int | None = None, *, readonly: bool = False) -> None:
        super().__init__(pointer, (size,), "|u1", readonly=readonly, stream=stream)


class ByProtocol:
    """Exposes only ``__vkgdr_memory__``."""

    def __init__(self, protocol: object) -> None:
        self.__vkgdr_memory__ = protocol


class Number:
    """A number that is not an int."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __index__(self) -> int:
        return self._value

    def __repr__(self) -> str:
        return f"Number({self._value})"


class Stream:
    """A stream with cuda.core's protocol, and optional attributes."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


class OwnStream(Stream):
    """A stream that is destroyed with its object, as CuPy's; its handle is then added to `ended`."""

    def __init__(self, cuda: libcuda.Cuda, ended: list[int] | None = None) -> None:
        super().__init__(cuda.create_stream())
        self._destroy, self._ended = cuda.destroy_stream, ended

    def __del__(self) -> None:
        if self._ended is not None:
            self._ended.append(self._handle)
        self._destroy(self._handle)


def open_with(flags: int) -> vkgdr.Vkgdr:
    """Open GPU 0 with flags. Skip the test if they require coherent mapped memory and the GPU has none."""
    asked, needed = flags & vkgdr.OpenFlags.REQUIRE_COHERENT_BIT, {"DEVICE_LOCAL", "HOST_VISIBLE", "HOST_COHERENT"}
    if asked and not any(needed <= set(memory_type.flags) for memory_type in vkgdr.Vkgdr(0).memory_types()):
        pytest.skip("needs a GPU whose mapped memory is coherent")
    return vkgdr.Vkgdr(0, flags)


def device_bytes(cuda: libcuda.Cuda, memory: vkgdr.Memory) -> bytes:
    """Return the bytes that CUDA reads from memory."""
    return cuda.read(memory.device_ptr, len(memory))


def wait_at(gate: libcuda.Gate, work: Callable[[], object], context: int | None = None) -> None:
    """Check that work on another thread does not finish until the gate is opened, and open it.

    `context` is current on that thread, if it is given.
    """

    def run() -> None:
        if context is None:
            work()
            return
        cuda = libcuda.Cuda()
        cuda.push(context)
        try:
            work()
        finally:
            cuda.pop()

    thread = threading.Thread(target=run)
    thread.start()
    # Too short a wait can only miss a defect; no length makes a correct program fail.
    thread.join(0.05)
    waits = thread.is_alive()
    gate.open()
    thread.join()
    assert waits, "the work ended before the gate was opened"


def in_threads(*works: Callable[[], Any]) -> list[Any]:
    """Do each work on a thread of its own, all at once; return the results, or raise what the first of them raised."""
    with ThreadPoolExecutor(len(works)) as pool:
        started = [pool.submit(work) for work in works]
    return [done.result() for done in started]


def counter(gpu: vkgdr.Vkgdr) -> Callable[..., int]:
    """Return a function that counts the live allocations, or ``"bytes"``, made since this call."""
    gc.collect()
    before = gpu.stats()

    def live(what: str = "allocations") -> int:
        gc.collect()
        return gpu.stats()[f"live_{what}"] - before[f"live_{what}"]

    return live


def descriptors() -> int:
    """Count the process's open file descriptors."""
    return len(os.listdir("/proc/self/fd"))
