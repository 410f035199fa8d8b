"""A memory object's host views: arrays and mappings."""

from __future__ import annotations

import operator

from vkgdr._copies import Copies
from vkgdr._layout import checked_order, fitted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import numpy as np
    import numpy.typing as npt

    from vkgdr._map import Map
    from vkgdr.typing import MapMode, Order, Shape, StreamLike


class HostViews(Copies):
    """A memory object's host views."""

    @property
    def buf(self) -> memoryview:
        """The host view as a memoryview.

        Raises
        ------
        NoHostViewError
            The kind of memory has no host view.
        """
        return memoryview(self)

    def get_host_array(
        self, shape: Shape | None = None, dtype: npt.DTypeLike = "u1", order: Order = "C", offset: int = 0
    ) -> np.ndarray[Any, Any]:
        """Return the host view as an array, without a copy.

        Neither waits nor invalidates: see `map`. The array keeps the memory alive.

        Parameters
        ----------
        shape : int or tuple of int, optional
            By default one dimension of all bytes from `offset` to the end.
        dtype : optional
            Any data type without Python objects, structured types included.
        order : {"C", "F"}, optional
            The memory layout: C (last index fastest) or Fortran (first index fastest).
        offset : int, optional
            The array's first byte.

        Raises
        ------
        InvalidArgumentError
            The array exceeds the memory, or its data type has Python objects or size 0.
        NoHostViewError
            The kind of memory has no host view.
        """
        import numpy as np

        # A Python int: sums of NumPy integers may overflow.
        offset = operator.index(offset)
        extents, kind, size = fitted(shape, dtype, self._size_from(offset))
        # Through a memoryview, which counts as a view while the array lives.
        flat = np.asarray(memoryview(self))[offset : offset + size]
        return flat.view(kind).reshape(extents, order=checked_order(order))

    def map(
        self,
        mode: MapMode = "rw",
        *,
        shape: Shape | None = None,
        dtype: npt.DTypeLike = "u1",
        order: Order = "C",
        offset: int = 0,
        size: int | None = None,
        stream: StreamLike | None = None,
        blocking: bool = True,
    ) -> Map:
        """Open a mapping, a scope in which the CPU uses the memory: ``with memory.map() as array``.

        Waits for `stream`, or for the bound stream, and invalidates; the end of the scope flushes. On non-coherent
        memory both act on whole atoms, so mappings that share an atom must not be open at the same time. The array
        stays valid after the end, but later writes to it are not flushed.

        Parameters
        ----------
        mode : {"rw", "r", "w", "discard"}, optional
            The CPU's access. "r" gives a read-only array and does not flush. "discard" promises to write every byte.
        shape, dtype, order : optional
            As for `get_host_array`.
        offset, size : int, optional
            The range; by default to the end of the memory.
        stream : object, optional
            The stream to wait for, in place of the bound stream. Without either, synchronize before the call.
        blocking : bool, optional
            False returns at once; ``with`` or `Map.wait` then waits.

        Returns
        -------
        Map

        Raises
        ------
        OutOfRangeError, InvalidArgumentError
            The range or the array exceeds the memory, or the mode is invalid.
        NoHostViewError
            The kind of memory has no host view.
        """
        from vkgdr._map import Map

        return Map(
            self,
            mode,
            shape=shape,
            dtype=dtype,
            order=order,
            offset=offset,
            size=size,
            stream=stream,
            blocking=blocking,
        )

    def map_ro(self, **arguments: Any) -> Map:
        """Call `map` with mode "r" and these keywords: the array is read-only, and nothing is flushed."""
        return self.map("r", **arguments)

    def map_rw(self, **arguments: Any) -> Map:
        """Call `map` with mode "rw" and these keywords."""
        return self.map("rw", **arguments)

    def map_discard(self, **arguments: Any) -> Map:
        """Call `map` with mode "discard" and these keywords: every byte must be written, the old contents are lost."""
        return self.map("discard", **arguments)
