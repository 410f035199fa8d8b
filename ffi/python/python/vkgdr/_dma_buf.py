"""``DmaBuf``, a descriptor for network cards."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["DmaBuf"]


class DmaBuf(NamedTuple):
    """A descriptor of memory that a network card can register, from `vkgdr.MemoryObject.dma_buf`."""

    fd: int
    offset: int
    nbytes: int


# Messages show the public name, not that of the private module.
DmaBuf.__module__ = "vkgdr.arrays"
