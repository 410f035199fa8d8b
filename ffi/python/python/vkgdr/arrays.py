"""Arrays in memory that the GPU can access, and the views of one side's array on the other.

`mapped_array` and `host_array` are NumPy's arrays. `device_array` and `to_device` make an `Array`, which has numba's
interface and lies on the device first, with a host view where its kind of memory has one.

NumPy's arrays are ordinary ones whose ``base`` keeps the memory alive. `vkgdr.device_view` returns the device view of
such an array or of a contiguous part of it; on memory that is not coherent, call its `flush` and `invalidate`.
"""

from __future__ import annotations

from vkgdr import _vkgdr
from vkgdr._copies import device_view_of, found_of
from vkgdr._device import default_owner, owner_of_device
from vkgdr._dma_buf import DmaBuf
from vkgdr._errors import InvalidArgumentError, in_bytes
from vkgdr._memory import Memory
from vkgdr._object import Region
from vkgdr._shapes import (
    allocatable,
    check_order,
    element_alignment,
    element_of,
    fitted,
    fortran_strides,
    read_interface,
    shaped,
    strided_size,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    import numpy as np
    import numpy.typing as npt

    from vkgdr._array import Array as Array
    from vkgdr._device import Vkgdr
    from vkgdr._device_arrays import as_cuda_array as as_cuda_array
    from vkgdr._device_arrays import defer_cleanup as defer_cleanup
    from vkgdr._device_arrays import device_array as device_array
    from vkgdr._device_arrays import device_array_like as device_array_like
    from vkgdr._device_arrays import from_cuda_array_interface as from_cuda_array_interface
    from vkgdr._device_arrays import is_cuda_array as is_cuda_array
    from vkgdr._device_arrays import pinned as pinned
    from vkgdr._device_arrays import to_device as to_device
    from vkgdr._vkgdr import Mapping
    from vkgdr.typing import Order, Shape, StreamLike

    Visible = Literal["mapped", "host"]

__all__ = [
    "Array",
    "DmaBuf",
    "as_cuda_array",
    "check_order",
    "defer_cleanup",
    "device_array",
    "device_array_like",
    "device_view",
    "element_of",
    "fitted",
    "fortran_strides",
    "from_cuda_array_interface",
    "host_array",
    "host_array_like",
    "host_view",
    "is_cuda_array",
    "mapped_array",
    "mapped_array_like",
    "pinned",
    "shaped",
    "strided_size",
    "to_device",
]

# Loaded on first use, since they need NumPy.
_DEVICE_ARRAYS = frozenset(
    {
        "as_cuda_array",
        "defer_cleanup",
        "device_array",
        "device_array_like",
        "from_cuda_array_interface",
        "is_cuda_array",
        "pinned",
        "to_device",
    }
)


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name != "Array" and name not in _DEVICE_ARRAYS:
        raise AttributeError(f"module 'vkgdr.arrays' has no attribute {name!r}")
    value: object = getattr(import_module("vkgdr._array" if name == "Array" else "vkgdr._device_arrays"), name)
    globals()[name] = value
    return value


def mapped_array(
    shape: Shape,
    dtype: npt.DTypeLike = "f8",
    order: Order = "C",
    *,
    alignment: int | None = None,
    stream: StreamLike | None = None,
    owner: Vkgdr | None = None,
) -> np.ndarray[Any, Any]:
    """Allocate an array in GPU memory mapped for the CPU through the PCIe BAR.

    CPU writes to such memory are fast, CPU reads are slow.

    Parameters
    ----------
    shape : int or tuple of int
        The extents, possibly 0.
    dtype : optional
        Any data type without Python objects, structured types included.
    order : {"C", "F"}, optional
        The memory layout: C (last index fastest) or Fortran (first index fastest).
    alignment : int, optional
        The alignment of both addresses, a power of two. By default at least the size of an element, up to 256.
    stream : object, optional
        The stream to bind to, see `vkgdr.MemoryObject.bind_to_stream`.
    owner : Vkgdr, optional
        The GPU. By default that of the current context, or device 0 in its primary context if no context is current.

    Returns
    -------
    numpy.ndarray
        Its contents are undefined.

    Raises
    ------
    InvalidArgumentError
        An extent is negative, the data type or the order is invalid, or the drivers align to less than `alignment`.
    VkgdrError
        As for `vkgdr.Memory`.

    Examples
    --------
    >>> import vkgdr
    >>> from vkgdr.arrays import mapped_array
    >>> samples = mapped_array((4, 1024), "f4")
    >>> samples[:] = 0.25
    >>> device = vkgdr.device_view(samples)
    >>> device.flush()
    """
    return _array("mapped", shape, dtype, order, alignment, stream, owner)


def host_array(
    shape: Shape,
    dtype: npt.DTypeLike = "f8",
    order: Order = "C",
    *,
    alignment: int | None = None,
    stream: StreamLike | None = None,
    owner: Vkgdr | None = None,
) -> np.ndarray[Any, Any]:
    """Allocate an array in cached system memory mapped for the GPU, which is fast for the CPU.

    The parameters, the result and the errors are those of `mapped_array`.
    """
    return _array("host", shape, dtype, order, alignment, stream, owner)


def mapped_array_like(
    array: npt.ArrayLike,
    *,
    alignment: int | None = None,
    stream: StreamLike | None = None,
    owner: Vkgdr | None = None,
) -> np.ndarray[Any, Any]:
    """Allocate a `mapped_array` with the shape, data type and order of another array.

    Parameters
    ----------
    array : array_like
        A contiguous array in C or Fortran order. Its contents are not copied.
    alignment, stream, owner : optional
        As for `mapped_array`.

    Raises
    ------
    InvalidArgumentError
        `array` is not contiguous; also as for `mapped_array`.
    """
    return _array_like("mapped", array, alignment, stream, owner)


def host_array_like(
    array: npt.ArrayLike,
    *,
    alignment: int | None = None,
    stream: StreamLike | None = None,
    owner: Vkgdr | None = None,
) -> np.ndarray[Any, Any]:
    """Allocate a `host_array` with the shape, data type and order of another array.

    The parameters and the errors are those of `mapped_array_like`.
    """
    return _array_like("host", array, alignment, stream, owner)


def _array(
    kind: Visible,
    shape: Shape,
    dtype: npt.DTypeLike,
    order: Order,
    alignment: int | None,
    stream: StreamLike | None,
    owner: Vkgdr | None,
) -> np.ndarray[Any, Any]:
    extents, element, size = shaped(shape, dtype)
    check_order(order)
    if alignment is None:
        alignment = element_alignment(element)
    if owner is None:
        owner = default_owner()
    memory = Memory(owner, allocatable(size), kind=kind, alignment=alignment, stream=stream)
    return memory.get_host_array(extents, element, order)


def _array_like(
    kind: Visible,
    array: npt.ArrayLike,
    alignment: int | None,
    stream: StreamLike | None,
    owner: Vkgdr | None,
) -> np.ndarray[Any, Any]:
    import numpy as np

    like = np.asarray(array)
    if like.flags.c_contiguous:
        order: Order = "C"
    elif like.flags.f_contiguous:
        order = "F"
    else:
        text = f"the array is not contiguous: shape {like.shape}, strides {like.strides}"
        raise InvalidArgumentError(text)
    return _array(kind, like.shape, like.dtype, order, alignment, stream, owner)


def device_view(array: Any) -> Region:
    """Return the device view of a host array that lies in this package's memory.

    Parameters
    ----------
    array : object
        A contiguous array, in C or Fortran order, or another contiguous object with the buffer protocol.

    Returns
    -------
    Region
        The same bytes, read-only if the array or the memory is. It keeps the memory alive.

    Raises
    ------
    InvalidArgumentError
        The bytes do not lie in live memory of this package, or are not contiguous.
    """
    buffer = _vkgdr.HostBuffer(array, False, True)
    view = _vkgdr.find_host(buffer.address, buffer.nbytes)
    if view is None:
        text = f"no memory of vkgdr contains the {in_bytes(buffer.nbytes)} at host address {buffer.address:#x}"
        raise InvalidArgumentError(text)
    return Region._over(view.part(0, None, buffer.readonly, False))


def host_view(obj: Any, *, owner: Vkgdr | None = None) -> np.ndarray[Any, Any]:
    """Return the host view of a device array, whichever library allocated it.

    Memory of this package has a host view on every GPU; on memory that is not coherent, ``vkgdr.memory_of(view)`` has
    `flush` and `invalidate`. Memory of other libraries is mapped where `Vkgdr.supports_existing` is true; CPU writes to
    such a view are fast, CPU reads are slow, as for `mapped_array`.

    Parameters
    ----------
    obj : object
        An object with ``__cuda_array_interface__``, such as an array of pycuda, CuPy, PyTorch or numba, or one in C
        order with DLPack on a CUDA device.
    owner : Vkgdr, optional
        The GPU of another library's array. By default in the current context if that is of the GPU, else in the GPU's
        primary context.

    Returns
    -------
    numpy.ndarray
        The same bytes, in the shape, strides and data type of the interface; for DLPack, one dimension of ``uint8``. It
        keeps `obj` or its memory alive. Does not wait for the device. Memory that another library frees nevertheless,
        as by ``cudaFree`` or a reset of the device, must not be used through it.

    Raises
    ------
    InvalidArgumentError
        The array is not in memory of this package, and cannot be mapped; the message names the reason. Or its bytes are
        not its values, as of PyTorch's ``conj()``.
    NoHostViewError
        The kind of memory has no host view.
    """
    interface = getattr(obj, "__cuda_array_interface__", None)
    for operation in ("conj", "neg"):
        # PyTorch's interface does not tell.
        is_lazy = getattr(obj, f"is_{operation}", False)
        if is_lazy() if callable(is_lazy) else is_lazy:
            raise InvalidArgumentError(
                f"the bytes of this {type(obj).__name__} are not its values: call resolve_{operation}() first"
            )
    if isinstance(interface, dict) and interface.get("strides") is not None:
        return _strided(obj, interface, owner)
    view, _ = device_view_of(obj)
    shape = None if interface is None else tuple(interface["shape"])
    dtype: npt.DTypeLike = "u1" if interface is None else _element(obj, interface)
    region = Region._over(view)
    if not view.is_foreign:
        return region.get_host_array(shape, dtype)
    import numpy as np

    extents, element, size = shaped(region.nbytes if shape is None else shape, dtype)
    if not size:
        return np.empty(extents, element)
    mapping = _map(obj, region.device_ptr, size, owner, readonly=region.readonly)
    array: np.ndarray[Any, Any] = np.asarray(mapping).view(element).reshape(extents)
    return array


def _element(obj: Any, interface: dict[str, Any]) -> np.dtype[Any]:
    """Return the data type of an array: that of one of our own is more than its interface tells."""
    from vkgdr._array import Array

    return obj.dtype if isinstance(obj, Array) else element_of(interface, obj)


def _strided(obj: Any, interface: dict[str, Any], owner: Vkgdr | None) -> np.ndarray[Any, Any]:
    """Return the host view of an array whose interface has strides."""
    import numpy as np

    read, element = read_interface(interface, "__cuda_array_interface__"), _element(obj, interface)
    first, size = read.span()
    if not size:
        return np.empty(read.extents, element)
    found = found_of(read, obj)
    if found is None:
        memory = np.asarray(_map(obj, first, size, owner, readonly=read.readonly)).data
    else:
        memory = memoryview(Region._over(found))
    return np.ndarray(read.extents, element, memory, read.address - first, read.strides)


def _map(obj: Any, address: int, size: int, owner: Vkgdr | None, *, readonly: bool) -> Mapping:
    """Map memory of another library; the result keeps `obj`."""
    if owner is None:
        owner = owner_of_device(_vkgdr.pointer_device(address) or 0)
    try:
        return _vkgdr.Mapping(owner, address, size, keep=obj, readonly=readonly)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"this {type(obj).__name__} is not in memory of vkgdr: {error}") from error
