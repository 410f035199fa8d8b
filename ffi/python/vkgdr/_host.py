"""A memory object's views for the CPU: arrays and mappings."""

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
    """A memory object's views for the CPU."""

    @property
    def buf(self) -> memoryview:
        """The host's bytes as a memoryview.

        Raises
        ------
        NoHostViewError
            The CPU cannot see memory of this kind.
        """
        return memoryview(self)

    def get_host_array(
        self, shape: Shape | None = None, dtype: npt.DTypeLike = "u1", order: Order = "C", offset: int = 0
    ) -> np.ndarray[Any, Any]:
        """Give the host's view of the memory as an array, without a copy.

        Nothing is waited for or invalidated: see `map`. The array keeps the memory.

        Parameters
        ----------
        shape : int or tuple of int, optional
            All bytes in one dimension by default.
        dtype : optional
            Any data type without Python objects; structured ones too.
        order : {"C", "F"}, optional
            Which index varies fastest: the last, or the first.
        offset : int, optional
            Where the array begins, in bytes.

        Raises
        ------
        InvalidArgumentError
            The array does not fit into the memory, or its data type cannot lie there.
        NoHostViewError
            The CPU cannot see memory of this kind.
        """
        import numpy as np

        # Not NumPy's numbers, whose sums may overflow.
        offset = operator.index(offset)
        extents, kind, size = fitted(shape, dtype, self._size_from(offset))
        # By way of a memoryview, which counts as a view until the array goes.
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
        """Begin a scope in which the CPU uses the memory: ``with memory.map() as array``.

        Waits for `stream`, or for the bound stream, and invalidates; the end of the scope flushes. On non-coherent
        memory both do whole atoms, so that mappings that share an atom must not be open together. The array stays
        usable after the end, but what is written to it then is not flushed.

        Parameters
        ----------
        mode : {"rw", "r", "w", "discard"}, optional
            What the CPU does. "r" gives a read-only array and does not flush. "discard" promises to write every byte.
        shape, dtype, order : optional
            As for `get_host_array`.
        offset, size : int, optional
            The range; all from `offset` on by default.
        stream : object, optional
            Waited for in place of the bound stream. Without either, synchronise before.
        blocking : bool, optional
            False returns at once; the wait is made by ``with``, or `Map.wait`.

        Returns
        -------
        Map

        Raises
        ------
        OutOfRangeError, InvalidArgumentError
            The range or the array does not fit.
        NoHostViewError
            The CPU cannot see memory of this kind.
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
        """As `map` with mode "r", with the same keywords: the array is read-only, and nothing is flushed."""
        return self.map("r", **arguments)

    def map_rw(self, **arguments: Any) -> Map:
        """As `map` with mode "rw", with the same keywords."""
        return self.map("rw", **arguments)

    def map_discard(self, **arguments: Any) -> Map:
        """As `map` with mode "discard", with the same keywords: every byte is written, what was there is lost."""
        return self.map("discard", **arguments)
