"""From one side's array to the other side's view of the same bytes."""

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
    """Give the device's view of an array over host bytes of this package's memory.

    Parameters
    ----------
    array : object
        An array, or anything else with the buffer protocol and contiguous bytes, in either order.

    Returns
    -------
    Region
        The same bytes. It keeps the memory.

    Raises
    ------
    InvalidArgumentError
        The bytes do not lie in live memory of this package, or are not contiguous.
    """
    buffer = _vkgdr.HostBuffer(array, False, True)
    block = _vkgdr.find_host(buffer.address, buffer.nbytes)
    if block is None:
        text = f"no memory of vkgdr has the {in_bytes(buffer.nbytes)} at host address {buffer.address:#x}"
        raise InvalidArgumentError(text)
    return Region._over(block)


def host_view(obj: Any) -> np.ndarray[Any, Any]:
    """Give the host's view of a device array that lies in this package's memory.

    Parameters
    ----------
    obj : object
        Anything with ``__cuda_array_interface__``, such as an array of pycuda, CuPy, PyTorch or numba, in C order; or
        DLPack on a CUDA device.

    Returns
    -------
    numpy.ndarray
        The same bytes, in the shape and data type of the interface; of DLPack, as one dimension of ``uint8``. It keeps
        the memory. Nothing is waited for.

    Raises
    ------
    InvalidArgumentError
        The array does not lie in live memory of this package.
    NoHostViewError
        The CPU cannot see memory of its kind.
    """
    block, _ = device_block(obj)
    if block.is_foreign:
        raise InvalidArgumentError(f"this {type(obj).__name__} is not in memory of vkgdr: the CPU cannot see it")
    interface = getattr(obj, "__cuda_array_interface__", None)
    shape = None if interface is None else tuple(interface["shape"])
    dtype: npt.DTypeLike = "u1" if interface is None else interface["typestr"]
    return Region._over(block).get_host_array(shape, dtype)
