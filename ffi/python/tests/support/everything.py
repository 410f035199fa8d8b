"""A memory object of each class, for tests of their common interface, and a check for errors."""

import inspect
import re
from collections.abc import Callable, Iterator
from types import ClassMethodDescriptorType

import pytest
import vkgdr
from vkgdr.compat import dpctl, rmm

SIZE = 4096

MAKERS = {
    "Memory": lambda gpu: vkgdr.Memory(gpu, SIZE),
    "RawMemory": lambda gpu: vkgdr.RawMemory(gpu, SIZE),
    "slice": lambda gpu: vkgdr.Memory(gpu, 2 * SIZE)[64 : 64 + SIZE],
    "Buffer": lambda gpu: rmm.Buffer(size=SIZE, owner=gpu),
    "MemoryShared": lambda gpu: dpctl.MemoryShared(SIZE, owner=gpu),
    "MemoryHost": lambda gpu: dpctl.MemoryHost(SIZE, owner=gpu),
    "MemoryDevice": lambda gpu: dpctl.MemoryDevice(SIZE, owner=gpu),
    "PooledMemory": lambda gpu: vkgdr.pool.Pool(gpu).allocate(SIZE),
    "pycuda.Memory": lambda gpu: vkgdr.pycuda.Memory(gpu, SIZE),
}


def members(thing: object) -> Iterator[tuple[str, bool]]:
    """Return the public names of an object's class, and for each whether it is a method."""
    for name in dir(type(thing)):
        found = inspect.getattr_static(type(thing), name)
        if not name.startswith("_") and not isinstance(found, classmethod | staticmethod | ClassMethodDescriptorType):
            yield name, callable(found)


def refused(
    use: Callable[[], object], errors: type[BaseException] | tuple[type[BaseException], ...], text: str, what: object
) -> None:
    """Check that a call raises one of these errors with a matching message; `what` names the call."""
    try:
        value = use()
    except errors as error:
        if re.search(text, str(error)) is None:
            pytest.fail(f"{what}: the message {str(error)!r} does not match {text!r}")
    except BaseException as error:  # noqa: BLE001 - also a panic, which is no Exception
        pytest.fail(f"{what}: raises {error!r}")
    else:
        pytest.fail(f"{what}: raises no error and returns {value!r}")
