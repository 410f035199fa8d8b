"""The exceptions of this package."""

from __future__ import annotations

__all__ = [
    "AllocationError",
    "FreedError",
    "InvalidArgumentError",
    "NoHostViewError",
    "OutOfRangeError",
    "VkgdrError",
]


class VkgdrError(RuntimeError):
    """An operation failed; the text names it, the driver's code and, where it is known, the remedy.

    Attributes
    ----------
    operation : str or None
        The driver's function that failed, such as ``"vkAllocateMemory"``. None where none was called, as for a size
        larger than the heap.
    cu_result : int or None
        The ``CUresult`` that a CUDA function returned.
    vk_result : int or None
        The ``VkResult`` that a Vulkan function returned, or that stands for the reason where none was called.
    """

    operation: str | None = None
    cu_result: int | None = None
    vk_result: int | None = None


class AllocationError(VkgdrError, MemoryError):
    """There is no room, or the size is larger than the heap."""


class InvalidArgumentError(VkgdrError, ValueError):
    """An argument that cannot be meant."""


class OutOfRangeError(InvalidArgumentError):
    """A range that does not lie within the memory."""


class FreedError(VkgdrError, ValueError):
    """The memory was freed before, or the handle or the mapping closed."""


class NoHostViewError(VkgdrError, BufferError):
    """The CPU cannot see memory of this kind."""
