"""A memory object's attributes."""

from __future__ import annotations

from vkgdr import _vkgdr
from vkgdr._errors import FreedError, InvalidArgumentError
from vkgdr._vkgdr import Block

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

    from vkgdr._handle import Vkgdr


# dpctl's names of the kinds.
_USM_TYPES = {"mapped": "shared", "host": "host", "device": "device"}

_INFO = (
    "kind",
    "flags",
    "size",
    "map_count",
    "reference_count",
    "context",
    "parent",
    "offset",
    "memory_type_index",
    "property_flags",
    "heap_index",
)


class Facts(_vkgdr.Base):
    """A memory object's attributes."""

    # Class defaults: an object whose `__init__` did not run counts as freed.
    _block: Block = Block.never()
    _owner: Vkgdr | None = None
    _maps: int = 0
    _parent: Facts | None = None
    name: str | None = None

    @property
    def owner(self) -> Vkgdr | None:
        """The GPU's handle; None for freed memory and for memory of another library."""
        return self._owner

    @property
    def context(self) -> int | None:
        """The CUDA context as a number; None for memory of another library."""
        return self._block.context

    @property
    def stream(self) -> int | None:
        """The bound stream as a number; None if there is none."""
        return self._block.bound_stream

    @property
    def freed(self) -> bool:
        """Whether the memory was freed."""
        return self._block.freed

    @property
    def pending_views(self) -> int:
        """The number of other views of the allocation: arrays, tensors, regions."""
        return self._block.pending_views

    @property
    def map_count(self) -> int:
        """The number of open mappings of this object."""
        return self._maps

    @property
    def reference_count(self) -> int:
        """The number of objects and views that keep the allocation alive, including this one."""
        return self._block.pending_views + (not self._block.freed)

    @property
    def offset(self) -> int:
        """The offset of the first byte in its allocation, in bytes."""
        return self._block.offset

    @property
    def flags(self) -> int:
        """The flags of the allocation: always 0, as in vkgdr 0.1."""
        return 0

    @property
    def memory_type_index(self) -> int:
        """The index of the Vulkan memory type."""
        return self._block.memory_type.index

    @property
    def property_flags(self) -> list[str]:
        """The Vulkan memory type's property flags, such as ``DEVICE_LOCAL``."""
        return self._block.memory_type.flags

    @property
    def heap_index(self) -> int:
        """The index of the Vulkan memory heap."""
        return self._block.memory_type.heap

    def get_info(self, name: str) -> object:
        """Return an attribute by name, as in pyopencl.

        Raises
        ------
        InvalidArgumentError
            The name is unknown. The message lists the valid ones.
        """
        if name not in _INFO:
            raise InvalidArgumentError(f"unknown name {name!r}: expected one of {', '.join(_INFO)}")
        value: object = getattr(self, name)
        return value

    def get_mem_type(self) -> str:
        """Return the kind under dpctl's name: "shared", "host" or "device"."""
        return _USM_TYPES[self.kind]

    get_usm_type = get_mem_type

    @property
    def handle(self) -> int:
        """The allocation's id, unique in the process and never reused; see `from_handle`."""
        if self._block.freed:
            raise FreedError("the memory was freed")
        return self._block.key[0]

    @property
    def __vkgdr_memory__(self) -> tuple[int, int, int]:
        """Identity of the bytes, to share them without a copy: `handle`, `offset` and `nbytes`."""
        return self.handle, self.offset, self.nbytes

    @classmethod
    def _over(cls, block: Block) -> Self:
        """Wrap a block in an object without an owner."""
        self = cls.__new__(cls)
        self._block = block
        return self

    def _visible_address(self) -> int:
        """Return the host address; raise if the memory has no host view."""
        address: int = self.__array_interface__["data"][0]
        return address
