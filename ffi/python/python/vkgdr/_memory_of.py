"""`memory_of`: from an array or an address of any library to the memory of this package that contains it."""

from __future__ import annotations

import numbers
import operator

from vkgdr import _vkgdr
from vkgdr._copies import device_view_of, found_of
from vkgdr._errors import InvalidArgumentError, in_bytes
from vkgdr._object import MemoryObject, Region
from vkgdr._shapes import ADDRESSES, read_interface

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from vkgdr._vkgdr import MemoryView

__all__ = ["memory_of"]

_PROTOCOLS = ("__cuda_array_interface__", "__array_interface__", "__dlpack__")
_DLPACK_CPU = 1


def memory_of(obj: Any) -> Region:
    """Return the region of this package's memory in which an array or an address lies.

    Parameters
    ----------
    obj : object or int
        An array of any library: an object with ``__cuda_array_interface__``, ``__array_interface__`` or DLPack on the
        host, contiguous or strided; an object with the buffer protocol, contiguous; one with DLPack on the device, in C
        order. Or an address, of the device or of the host.

    Returns
    -------
    Region
        From the array's first byte to its last, with those between that it skips; for an address, from there to the end
        of its allocation. It has `flush`, `invalidate`, `map`, ``host`` and ``device_ptr``, and keeps the memory alive,
        even when the library that allocated it frees it. ``offset`` is the place in the allocation. It is read-only if
        the array or the memory is; an address carries no mark of its own, so that of a read-only array over writable
        memory gives a writable region.

    Raises
    ------
    InvalidArgumentError
        The bytes do not lie in live memory of this package, or not in one allocation; or `obj` is strided, but has
        neither of the array interfaces, or its interface is malformed.
    TypeError
        `obj` is neither an array nor an address.

    Examples
    --------
    >>> import vkgdr
    >>> from vkgdr.arrays import mapped_array
    >>> samples = mapped_array(1024, "f4")
    >>> samples[:] = 0.25
    >>> vkgdr.memory_of(samples).flush()
    """
    if isinstance(obj, MemoryObject):
        return Region._over(obj._view.part(0, None, False, False))
    # NumPy's integers have an array interface too, but are not the arrays that are meant.
    is_array = any(hasattr(obj, name) for name in _PROTOCOLS) and not isinstance(obj, numbers.Integral)
    if hasattr(type(obj), "__index__") and not is_array:
        return Region._over(_at(operator.index(obj)))
    found: MemoryView | None = None
    interface = getattr(obj, "__cuda_array_interface__", None)
    if interface is not None:
        array = read_interface(interface, "__cuda_array_interface__")
        (first, size), found = array.span(), found_of(array)
        where = "device"
    elif hasattr(obj, "__dlpack_device__") and obj.__dlpack_device__()[0] != _DLPACK_CPU:
        found, _ = device_view_of(obj)
        first, size, where = found.key[1], found.nbytes, "device"
        if found.is_foreign:
            found = None
    else:
        first, size, readonly = _on_host(obj)
        found = _vkgdr.find_host(first, size)
        if found is not None and readonly:
            found = found.part(0, None, True, False)
        where = "host"
    if found is None:
        raise InvalidArgumentError(f"no memory of vkgdr contains the {in_bytes(size)} at {where} address {first:#x}")
    return Region._over(found)


def _at(address: int) -> MemoryView:
    found = _vkgdr.find_address(address) if 0 <= address < ADDRESSES else None
    if found is None:
        raise InvalidArgumentError(f"{address:#x} is not an address in memory of vkgdr")
    return found


def _on_host(obj: Any) -> tuple[int, int, bool]:
    """Return the first address and the size of a host array, and whether it is read-only."""
    interface = getattr(obj, "__array_interface__", None)
    if interface is None and hasattr(obj, "__dlpack__"):
        import numpy as np

        try:
            interface = np.from_dlpack(obj).__array_interface__
        except BufferError as error:
            text = f"the DLPack tensor of {type(obj).__name__} cannot be taken: {error}"
            raise InvalidArgumentError(text) from error
    if interface is not None:
        array = read_interface(interface, "__array_interface__")
        return *array.span(), array.readonly
    buffer = _vkgdr.HostBuffer(obj, False, True)
    return buffer.address, buffer.nbytes, buffer.readonly
