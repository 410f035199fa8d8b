"""NumPy arrays in memory that the GPU can access.

They are ordinary arrays whose ``base`` keeps the memory alive. `vkgdr.device_view` returns the device view of such an
array or of a contiguous part of it; on memory that is not coherent, call its `flush` and `invalidate`.
"""

from __future__ import annotations

from vkgdr._errors import InvalidArgumentError
from vkgdr._layout import checked_order, shaped
from vkgdr._object import Memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    import numpy as np
    import numpy.typing as npt

    from vkgdr._handle import Vkgdr
    from vkgdr.typing import Order, Shape, StreamLike

    Visible = Literal["mapped", "host"]

__all__ = ["host_array", "host_array_like", "mapped_array", "mapped_array_like"]

# The alignment of CUDA's own allocations, which suffices for elements of any size.
_MOST_ALIGNMENT = 256


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
    checked_order(order)
    if alignment is None:
        alignment = min(1 << (element.itemsize - 1).bit_length(), _MOST_ALIGNMENT)
    if owner is None:
        from vkgdr._default import default_owner

        owner = default_owner()
    # An array may be empty, an allocation may not.
    memory = Memory(owner, max(size, 1), kind=kind, alignment=alignment, stream=stream)
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
