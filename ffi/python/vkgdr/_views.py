"""The device view of a host array, and the host view of a device array."""

from __future__ import annotations

from vkgdr import _vkgdr
from vkgdr._errors import InvalidArgumentError
from vkgdr._interop import device_block
from vkgdr._object import Region
from vkgdr._words import in_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import numpy as np
    import numpy.typing as npt

__all__ = ["device_view", "host_view"]


def device_view(array: Any) -> Region:
    """Return the device view of a host array that lies in this package's memory.

    Parameters
    ----------
    array : object
        A contiguous array, in C or Fortran order, or another contiguous object with the buffer protocol.

    Returns
    -------
    Region
        The same bytes. It keeps the memory alive.

    Raises
    ------
    InvalidArgumentError
        The bytes do not lie in live memory of this package, or are not contiguous.
    """
    buffer = _vkgdr.HostBuffer(array, False, True)
    block = _vkgdr.find_host(buffer.address, buffer.nbytes)
    if block is None:
        text = f"no memory of vkgdr contains the {in_bytes(buffer.nbytes)} at host address {buffer.address:#x}"
        raise InvalidArgumentError(text)
    return Region._over(block)


def host_view(obj: Any) -> np.ndarray[Any, Any]:
    """Return the host view of a device array that lies in this package's memory.

    Parameters
    ----------
    obj : object
        An object in C order with ``__cuda_array_interface__``, such as an array of pycuda, CuPy, PyTorch or numba, or
        with DLPack on a CUDA device.

    Returns
    -------
    numpy.ndarray
        The same bytes, in the shape and data type of the interface; for DLPack, one dimension of ``uint8``. It keeps
        the memory alive. Does not wait for the device.

    Raises
    ------
    InvalidArgumentError
        The array does not lie in live memory of this package.
    NoHostViewError
        The kind of memory has no host view.
    """
    block, _ = device_block(obj)
    if block.is_foreign:
        raise InvalidArgumentError(f"this {type(obj).__name__} is not in memory of vkgdr: it has no host view")
    interface = getattr(obj, "__cuda_array_interface__", None)
    shape = None if interface is None else tuple(interface["shape"])
    dtype: npt.DTypeLike = "u1" if interface is None else interface["typestr"]
    return Region._over(block).get_host_array(shape, dtype)
