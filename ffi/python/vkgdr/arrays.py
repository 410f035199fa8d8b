"""NumPy arrays in memory that the GPU sees.

The arrays are ordinary ones and keep their memory, by their ``base``. `vkgdr.device_view` gives the device's side of
such an array, or of any contiguous part of it. Where the memory is not coherent, that is what `flush` and
`invalidate` are called on.
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

# Elements that are larger need no more: CUDA itself aligns allocations to no more than this.
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
    """Make an array in GPU memory that the CPU sees through the PCIe BAR.

    The CPU writes such memory fast and reads it slowly.

    Parameters
    ----------
    shape : int or tuple of int
        The extents, which may be 0.
    dtype : optional
        Any data type without Python objects; structured ones too.
    order : {"C", "F"}, optional
        Which index varies fastest: the last, or the first.
    alignment : int, optional
        A power of two that both addresses must be multiples of. By default at least the size of an element, up to 256.
    stream : object, optional
        Bound, see `vkgdr.MemoryObject.bind_to_stream`.
    owner : Vkgdr, optional
        The GPU. By default that of the current context, else that of device 0's primary context.

    Returns
    -------
    numpy.ndarray
        Its contents are undefined.

    Raises
    ------
    InvalidArgumentError
        A negative extent, Python objects, another order, or an alignment that the drivers do not keep.
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
    """Make an array in system memory that the GPU sees, which the CPU reads and writes fast.

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
    """Make an array as `mapped_array` does, with the shape, the data type and the order of another.

    Parameters
    ----------
    array : array_like
        Contiguous, in C or in Fortran order. Its contents are not copied.
    alignment, stream, owner : optional
        As for `mapped_array`.

    Raises
    ------
    InvalidArgumentError
        `array` is not contiguous, and as for `mapped_array`.
    """
    return _array_like("mapped", array, alignment, stream, owner)


def host_array_like(
    array: npt.ArrayLike,
    *,
    alignment: int | None = None,
    stream: StreamLike | None = None,
    owner: Vkgdr | None = None,
) -> np.ndarray[Any, Any]:
    """Make an array as `host_array` does, with the shape, the data type and the order of another.

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
    # Memory is never empty; an array may be.
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
        text = f"the array of shape {like.shape} has strides {like.strides}: it is contiguous in neither order"
        raise InvalidArgumentError(text)
    return _array(kind, like.shape, like.dtype, order, alignment, stream, owner)
