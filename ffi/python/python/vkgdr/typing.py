"""The types in this package's signatures and results, for annotations. `vkgdr.stream` says what a stream is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, SupportsIndex, TypeAlias

__all__ = [
    "DmaBuf",
    "Handles",
    "HasCudaStream",
    "HasHandle",
    "HasPtr",
    "Kind",
    "Kinds",
    "MapMode",
    "MemoryInfo",
    "MemoryType",
    "Order",
    "Shape",
    "StreamLike",
    "VulkanMemory",
    "Waitable",
]
__dir__ = __all__.copy


class HasCudaStream(Protocol):
    """A stream of cuda.core, or of another library with its protocol."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the protocol's version, 0, and the ``CUstream``."""


class HasHandle(Protocol):
    """A stream of pycuda or numba."""

    @property
    def handle(self) -> object:
        """The ``CUstream``."""


class HasPtr(Protocol):
    """A stream of CuPy."""

    @property
    def ptr(self) -> int:
        """The ``CUstream``."""


class Waitable(Protocol):
    """An event of any library."""

    def synchronize(self) -> object:
        """Wait for the event."""


@dataclass(frozen=True)
class MemoryInfo:
    """Free and total memory of a kind in bytes, from `vkgdr.Vkgdr.memory_info`.

    `free` is an estimate of what this process can still allocate, `total` the size of the heap, `source` that of
    `free`.
    """

    free: int
    total: int
    source: str


@dataclass(frozen=True)
class MemoryType:
    """A Vulkan memory type, or that of memory that does not come from Vulkan, whose `index` and `heap` are None.

    `heap_size` is in bytes; `flags` are the names of the property flags, without ``VK_MEMORY_PROPERTY_`` and ``_BIT``.
    """

    index: int | None
    heap: int | None
    heap_size: int
    flags: tuple[str, ...]


class Handles(NamedTuple):
    """A Vulkan device as numbers, from `vkgdr.Vkgdr.vulkan_handles`.

    It has Vulkan 1.1, ``VK_KHR_external_memory_fd`` and one queue, see `vkgdr.Vkgdr.with_vulkan_queue`; where the
    driver has them, also ``VK_EXT_memory_budget``, ``VK_KHR_timeline_semaphore`` with its feature, and
    ``VK_KHR_external_semaphore_fd``. Destroy what is made of it, but not the device and the instance: they live until
    the process ends.
    """

    instance: int
    physical_device: int
    device: int
    queue_family: int


class VulkanMemory(NamedTuple):
    """The ``VkDeviceMemory`` of a memory object and its first byte there, from `vkgdr.Memory.vulkan_memory`."""

    memory: int
    offset: int


class DmaBuf(NamedTuple):
    """A descriptor of memory that a network card can register, from `vkgdr.Memory.dma_buf`."""

    fd: int
    offset: int
    nbytes: int


# Messages show the names of the modules that the guide uses.
MemoryInfo.__module__ = MemoryType.__module__ = "vkgdr"
Handles.__module__ = VulkanMemory.__module__ = "vkgdr.vulkan"
DmaBuf.__module__ = "vkgdr.arrays"

Kind: TypeAlias = Literal["mapped", "host", "device"]
Kinds: TypeAlias = Kind | Sequence[Kind]
MapMode: TypeAlias = Literal["r", "w", "rw", "discard"]
Order: TypeAlias = Literal["C", "F"]
Shape: TypeAlias = SupportsIndex | Sequence[SupportsIndex]
StreamLike: TypeAlias = int | SupportsIndex | HasCudaStream | HasHandle | HasPtr
