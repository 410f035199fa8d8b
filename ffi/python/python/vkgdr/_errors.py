"""The exceptions of this package, and the wording of numbers in their messages."""

from __future__ import annotations


class VkgdrError(RuntimeError):
    """A failed operation; the message names it, the driver's code and, where it is known, the remedy.

    Attributes
    ----------
    operation : str or None
        The driver function that failed, such as ``"vkAllocateMemory"``. None if none was called, for example for a size
        larger than the heap.
    cu_result : int or None
        The ``CUresult`` of a CUDA function.
    vk_result : int or None
        The ``VkResult`` of a Vulkan function, or the equivalent code if none was called.
    """

    operation: str | None = None
    cu_result: int | None = None
    vk_result: int | None = None


class AllocationError(VkgdrError, MemoryError):
    """Memory is exhausted, or the size exceeds the heap."""


class InvalidArgumentError(VkgdrError, ValueError):
    """An invalid argument."""


class OutOfRangeError(InvalidArgumentError):
    """A range that exceeds the memory."""


class FreedError(VkgdrError, ValueError):
    """Use of freed memory, a closed handle or a released mapping."""


class NoHostViewError(VkgdrError, BufferError, TypeError):
    """The kind of memory has no host view."""


# Messages show the public name, not that of the private module.
for _error in (AllocationError, FreedError, InvalidArgumentError, NoHostViewError, OutOfRangeError, VkgdrError):
    _error.__module__ = "vkgdr"
del _error


def missing(module: str, package: str, error: ImportError) -> ImportError:
    """Return the error of an adaptor whose library cannot be imported."""
    return ImportError(f"{module} needs the package {package}, which cannot be imported: {error}", name=error.name)


def in_bytes(count: int) -> str:
    """Format a number of bytes."""
    return f"{count} byte" if count == 1 else f"{count} bytes"
