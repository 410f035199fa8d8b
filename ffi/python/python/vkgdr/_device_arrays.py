"""The functions of `vkgdr.arrays` that make device arrays, with numba's names and arguments."""

from __future__ import annotations

import contextlib
import ctypes
from typing import TypeVar, overload

import numpy as np

from vkgdr import _driver, _vkgdr
from vkgdr._array import Array, as_array
from vkgdr._device import default_owner
from vkgdr._layout import layout_of
from vkgdr._memory import Memory
from vkgdr._shapes import (
    allocatable,
    check_order,
    element_alignment,
    element_of,
    fortran_strides,
    read_interface,
    shaped,
    strided_size,
    wholes,
)
from vkgdr._stream_handle import handle_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    import numpy.typing as npt

    from vkgdr._device import Vkgdr
    from vkgdr._source import Kinds
    from vkgdr.typing import Order, Shape, StreamLike

__all__ = [
    "as_cuda_array",
    "defer_cleanup",
    "device_array",
    "device_array_like",
    "from_cuda_array_interface",
    "is_cuda_array",
    "pinned",
    "to_device",
]

To = TypeVar("To")


def device_array(
    shape: Shape,
    dtype: npt.DTypeLike = np.float64,
    strides: tuple[int, ...] | None = None,
    order: Order = "C",
    stream: StreamLike = 0,
    *,
    kind: Kinds = "device",
    owner: Vkgdr | None = None,
) -> Array:
    """Allocate an array whose contents are undefined.

    Parameters
    ----------
    shape : int or tuple of int
        The extents, possibly 0.
    dtype : optional
        Any data type without Python objects, structured types included.
    strides : tuple of int, optional
        The strides in bytes, not negative; by default those of `order`.
    order : {"C", "F"}, optional
        The memory layout.
    stream : object, optional
        The array's stream; 0 is none.
    kind : {"mapped", "host", "device"} or sequence of these, optional
        As for `vkgdr.Memory`, but ``"device"`` by default: the array then has no host view.
    owner : Vkgdr, optional
        The GPU, as for `mapped_array`.

    Raises
    ------
    InvalidArgumentError
        An argument is invalid.
    VkgdrError
        As for `vkgdr.Memory`.
    """
    extents, element, size = shaped(shape, dtype)
    check_order(order)
    if strides is not None:
        strides = wholes(strides if isinstance(strides, tuple | list) else (strides,))
        size = strided_size(extents, element.itemsize, strides)
    elif order == "F":
        strides = fortran_strides(extents, element.itemsize)
    if not size:
        return Array(layout_of(extents, strides, element), None, stream, None if owner is None else owner.device)
    alignment = element_alignment(element)
    memory = Memory(owner or default_owner(), allocatable(size), kind=kind, alignment=alignment)
    return Array(layout_of(extents, strides, element), memory._region(0, size), stream)


def device_array_like(ary: Any, stream: StreamLike = 0, *, kind: Kinds = "device", owner: Vkgdr | None = None) -> Array:
    """Allocate an array with the shape and the data type of another one, of the host or of the device.

    It has the other array's order of axes, and is contiguous. Its kind of memory is ``"device"`` by default.
    """
    if isinstance(ary, Array):
        layout = ary._layout
    elif is_cuda_array(ary) and not isinstance(ary, np.ndarray):
        interface = ary.__cuda_array_interface__
        read = read_interface(interface, "__cuda_array_interface__")
        layout = layout_of(read.extents, read.strides, element_of(interface, ary))
    else:
        layout = np.asarray(ary)
    _, element, _ = shaped(layout.shape, layout.dtype)
    axes = sorted(range(layout.ndim), key=lambda axis: (-abs(layout.strides[axis]), axis))
    strides, stride = [0] * layout.ndim, element.itemsize
    for axis in reversed(axes):
        strides[axis] = stride
        stride *= max(layout.shape[axis], 1)
    return device_array(layout.shape, element, tuple(strides), stream=stream, kind=kind, owner=owner)


@overload
def to_device(
    obj: Any,
    stream: StreamLike = 0,
    copy: bool = True,  # noqa: FBT001, FBT002
    to: None = None,
    *,
    kind: Kinds = "mapped",
    owner: Vkgdr | None = None,
) -> Array: ...


@overload
def to_device(obj: Any, stream: StreamLike = 0, copy: bool = True, *, to: To) -> To: ...  # noqa: FBT001, FBT002


def to_device(
    obj: Any,
    stream: StreamLike = 0,
    copy: bool = True,  # noqa: FBT001, FBT002 - numba's signature
    to: Any = None,
    *,
    kind: Kinds = "mapped",
    owner: Vkgdr | None = None,
) -> Any:
    """Copy a host array to the device, and return the device array.

    Parameters
    ----------
    obj : array_like
        A contiguous array; with `to`, also a device array. A device array is returned as it is.
    stream : object, optional
        The stream to come after, and that of a new array.
    copy : bool, optional
        False leaves the contents undefined.
    to : Array, optional
        The array to copy to, instead of a new one.
    kind, owner : optional
        As for `device_array`, but the kind is ``"mapped"`` by default, which the CPU writes itself.

    Raises
    ------
    ValueError
        `obj` is not contiguous.
    """
    if to is not None:
        if copy:
            to.copy_to_device(obj, stream=stream)
        return to
    if isinstance(obj, Array):
        return obj
    if is_cuda_array(obj) and not isinstance(obj, np.ndarray):
        return as_cuda_array(obj)
    host = np.asarray(obj)
    if not (host.flags.c_contiguous or host.flags.f_contiguous):
        raise ValueError("Array contains non-contiguous buffer and cannot be transferred as a single memory region")
    array = device_array_like(host, stream, kind=kind, owner=owner)
    if copy:
        array.copy_to_device(host, stream=stream)
    return array


def as_cuda_array(obj: Any, sync: bool = True) -> Array:  # noqa: FBT001, FBT002 - numba's signature
    """Return an array over the device memory of any object with ``__cuda_array_interface__``, without a copy.

    It has a host view if the memory is this package's.

    Parameters
    ----------
    obj : object
        The array of another library; it is kept alive.
    sync : bool, optional
        Wait for the interface's stream.

    Raises
    ------
    TypeError
        `obj` has no such interface.
    NotImplementedError
        It is masked.
    InvalidArgumentError
        It is malformed, or has no CUDA memory.
    """
    if not is_cuda_array(obj):
        raise TypeError("*obj* doesn't implement the cuda array interface.")
    array = as_array(obj)
    if sync and array.memory is not None:
        array.memory._view.wait_for_stream()
        if array.stream:
            # By an event: the interface may name a stream of another context.
            _vkgdr.record(array.memory._view, handle_of(array.stream)).synchronize()
    return array


def from_cuda_array_interface(
    desc: dict[str, Any],
    owner: Any = None,
    sync: bool = True,  # noqa: FBT001, FBT002 - numba's signature
) -> Array:
    """Return an array by a dictionary of the CUDA Array Interface; `owner` is kept alive."""
    return as_cuda_array(_Described(desc, owner), sync)


class _Described:
    """An interface, and the object that keeps its memory."""

    def __init__(self, interface: dict[str, Any], owner: object) -> None:
        self.__cuda_array_interface__ = interface
        self._owner = owner


def is_cuda_array(obj: object) -> bool:
    """Return whether an object has ``__cuda_array_interface__``."""
    return hasattr(obj, "__cuda_array_interface__")


@contextlib.contextmanager
def pinned(*arylist: Any) -> Iterator[None]:
    """Page-lock host arrays within the block, so that CUDA copies them without staging.

    Parameters
    ----------
    *arylist : numpy.ndarray
        Contiguous, writable arrays.

    Raises
    ------
    vkgdr.VkgdrError
        ``CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED`` if pages are page-locked already. No array is page-locked then.
    """
    buffers = [buffer for buffer in (_vkgdr.HostBuffer(ary, True, True) for ary in arylist) if buffer.nbytes]
    with _driver.current_context(), contextlib.ExitStack() as stack:
        for buffer in buffers:
            address = ctypes.c_void_p(buffer.address)
            _driver.call("cuMemHostRegister_v2", address, ctypes.c_size_t(buffer.nbytes), 0)
            stack.callback(_driver.call, "cuMemHostUnregister", address)
        yield


@contextlib.contextmanager
def defer_cleanup() -> Iterator[None]:
    """Keep the memory that is freed within the block, on any thread, and release it at the end.

    The release of memory waits for the device; within the block nothing waits. Blocks may be nested: the end of the
    last one releases. Memory that runs out within the block is not released earlier. Memory bound to a stream is freed
    as outside of a block, which does not wait either.
    """
    _vkgdr.deferral_begin()
    try:
        yield
    finally:
        _vkgdr.deferral_end()
