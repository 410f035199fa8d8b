"""``RawMemory``: memory that is freed by hand, as in vkgdr 0.1."""

from __future__ import annotations

import operator

from vkgdr._errors import InvalidArgumentError
from vkgdr._object import MemoryObject, Region
from vkgdr._vkgdr import Block, find_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self, SupportsIndex

    from vkgdr._handle import Kind, Vkgdr

__all__ = ["RawMemory"]


# What almost every caller passes, and can be told from other objects at once.
_NO_FLAGS = 0


def _check_flags(flags: SupportsIndex) -> None:
    if bits := operator.index(flags):
        raise InvalidArgumentError(f"unknown flag bits {bits:#x}: flags must be 0")


class RawMemory(MemoryObject):
    """Memory that leaks unless it is freed by hand.

    Use `Memory`, or `vkgdr.pycuda.Memory`, for memory that frees itself.

    Parameters
    ----------
    owner : Vkgdr
        The GPU. Unless it was opened with `Vkgdr.open_primary_context`, a CUDA context of it must be current.
    size : int
        The number of bytes, more than 0. The contents are undefined.
    flags : int, optional
        Must be 0.
    kind : {"mapped", "host", "device"}, optional
        GPU memory that the CPU sees through the PCIe BAR; cached system memory that the GPU sees; GPU memory that the
        CPU does not see.
    alignment : int, optional
        A power of two that both addresses must be multiples of, or 0. The drivers align to at least 64 bytes; what they
        do not align as asked is refused.
    name : str, optional
        For ``repr``.

    Raises
    ------
    VkgdrError
        ``CUDA_ERROR_INVALID_CONTEXT`` when no context is current, `AllocationError` with
        ``VK_ERROR_OUT_OF_DEVICE_MEMORY`` when there is no room, and whatever else the drivers say.
    InvalidArgumentError
        The size is 0, or an argument cannot be meant.
    """

    _by_hand = True

    def __init__(
        self,
        owner: Vkgdr,
        size: SupportsIndex,
        flags: SupportsIndex = 0,
        *,
        kind: Kind = "mapped",
        alignment: SupportsIndex = 0,
        name: str | None = None,
    ) -> None:
        if flags is not _NO_FLAGS:
            _check_flags(flags)
        self._block = Block.allocate(owner, size, kind, alignment, False, self._by_hand)
        self._owner = owner
        if name is not None:
            self.name = name

    @classmethod
    def from_handle(cls, handle: int) -> Region:
        """Give another object over an allocation of this process, from its `handle`.

        It is a view of the memory, as a region is: whoever made the memory frees it.

        Raises
        ------
        InvalidArgumentError
            No live allocation has this handle.
        """
        block = find_id(handle)
        if block is None:
            raise InvalidArgumentError(f"no live memory has the handle {handle}")
        return Region._found(block)

    @classmethod
    def _adopt(cls, block: Block, owner: Vkgdr | None, name: str | None) -> Self:
        self = cls.__new__(cls)
        self._block = block
        self._owner = owner
        self.name = name
        return self
