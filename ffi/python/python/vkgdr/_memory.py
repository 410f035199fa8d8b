"""``Memory``, which frees itself, and ``RawMemory``, which is freed by hand."""

from __future__ import annotations

import operator

from vkgdr._errors import InvalidArgumentError, in_bytes
from vkgdr._object import MemoryObject, Region
from vkgdr._shapes import whole
from vkgdr._vkgdr import MemoryView, dlpack_import, find_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self, SupportsIndex

    from vkgdr._device import Vkgdr
    from vkgdr.typing import Kind, StreamLike

__all__ = ["Memory", "RawMemory"]


class Memory(MemoryObject):
    """Memory that frees itself when its last user is dropped.

    It remembers the CUDA context of its allocation, so it may be used and dropped on any thread. Its release waits for
    that context's work; memory bound to a stream is released after that stream's work instead, without blocking.

    A context that another library created (``cuCtxCreate``, pycuda's ``make_context``) must outlive it: what the CUDA
    driver does with a destroyed context is undefined. Before such a context is destroyed, wait for its work, and let
    `Vkgdr.collect` release what was bound to streams. Only at the interpreter's end, when ``pycuda.autoinit`` destroys
    its own, what is left there goes with the process. With `Vkgdr.open_primary_context` only a reset of the device ends
    the context; then Vulkan's side alone is freed.

    Parameters
    ----------
    owner : Vkgdr
        The GPU. Unless it was opened with `Vkgdr.open_primary_context`, a CUDA context of it must be current.
    size : int
        The number of bytes, more than 0. The contents are undefined.
    kind : {"mapped", "host", "device"} or sequence of these, optional
        GPU memory mapped for the CPU through the PCIe BAR; cached system memory mapped for the GPU; GPU memory without
        a host view. With a sequence, such as ``("mapped", "host")``, the next kind is taken where one is missing or
        exhausted; the attribute `kind` says which it is.
    alignment : int, optional
        The alignment of both addresses, a power of two or 0. The drivers align to at least 64 bytes; it is an error if
        they align to less than `alignment`.
    stream : object, optional
        The stream to bind to, see `bind_to_stream`.
    readonly : bool, optional
        Whether host and device views are marked read-only, also those that are found by an address or a `handle`. CUDA
        does not enforce it, and another process that the memory is sent to does not learn of it.
    name : str, optional
        A name that ``repr`` shows.
    dma_buf : bool, optional
        Whether network cards shall be able to register the memory, by `dma_buf`: for mapped and device memory. CUDA
        allocates it. Device memory needs a GPU that exports dma-bufs (device attribute 124, CUDA 11.7), mapped memory
        what `Vkgdr.supports_existing` tells.

    Raises
    ------
    VkgdrError
        ``CUDA_ERROR_INVALID_CONTEXT`` if no context is current, `AllocationError` if memory is exhausted, by Vulkan's
        or CUDA's code, and other errors of the drivers.
    InvalidArgumentError
        The size is 0, or another argument is invalid.

    Examples
    --------
    >>> import numpy as np
    >>> import vkgdr
    >>> gpu = vkgdr.Vkgdr.open_primary_context()
    >>> memory = vkgdr.Memory(gpu, 4096)
    >>> samples = np.asarray(memory).view(np.float32)
    >>> samples[:] = 0.25
    >>> memory.flush()
    """

    def __init__(
        self,
        owner: Vkgdr,
        size: SupportsIndex,
        *,
        kind: Kind | Sequence[Kind] = "mapped",
        alignment: SupportsIndex = 0,
        stream: StreamLike | None = None,
        readonly: bool = False,
        name: str | None = None,
        dma_buf: bool = False,
    ) -> None:
        self._view = MemoryView.allocate(owner, size, kind, alignment, readonly, False, dma_buf)
        self.name = name
        if stream is not None:
            self.bind_to_stream(stream)

    @classmethod
    def pitched(
        cls,
        owner: Vkgdr,
        width: SupportsIndex,
        height: SupportsIndex,
        itemsize: SupportsIndex,
        *,
        kind: Kind = "mapped",
    ) -> tuple[Self, int]:
        """Allocate rows with an aligned pitch, like ``mem_alloc_pitch``.

        Parameters
        ----------
        owner : Vkgdr
            As for the class.
        width, height, itemsize : int
            Elements per row, number of rows, and bytes per element.
        kind : {"mapped", "host", "device"}, optional
            As for the class.

        Returns
        -------
        memory, pitch
            The memory, and the distance between rows in bytes: a multiple of 512, the largest pitch alignment of CUDA
            textures (``CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT`` is at most that on every NVIDIA GPU so far).
        """
        width, height, itemsize = whole(width), whole(height), whole(itemsize)
        if width <= 0 or height <= 0 or itemsize <= 0:
            raise InvalidArgumentError(f"{height} rows of {width} elements of {in_bytes(itemsize)} are empty")
        alignment = 512
        pitch = -(-width * itemsize // alignment) * alignment
        return cls(owner, pitch * height, kind=kind), pitch

    def release_raw(self) -> RawMemory:
        """Transfer the memory to a `RawMemory`, which leaks unless it is freed by hand."""
        raw = RawMemory._over(self._view.part(0, None, False, True))
        raw.name = self.name
        self.free()
        # A later forced free of this object must not free the raw memory.
        self._view = MemoryView.never()
        return raw

    @classmethod
    def from_capsule(cls, capsule: object) -> Self:
        """Take the tensor of a DLPack capsule as device memory, without a copy.

        Parameters
        ----------
        capsule : capsule
            From ``__dlpack__``, not consumed yet; the tensor must be on a CUDA device and in C order.

        Returns
        -------
        Memory
            The same bytes, with a host view if they lie in memory of this package.

        Raises
        ------
        TypeError
            `capsule` is not a DLPack capsule, or was consumed.
        BufferError
            The tensor is on another device, or not in C order.
        """
        return cls._over(dlpack_import(capsule))

    def export_fd(self) -> int:
        """Export a file descriptor for `import_fd` in another process. The caller closes it.

        Raises
        ------
        VkgdrError
            The drivers cannot export the memory.
        InvalidArgumentError
            The memory is a part of an allocation, from `from_capsule`.
        """
        return self._view.export_fd()

    @classmethod
    def import_fd(cls, owner: Vkgdr, fd: int, size: int, *, kind: Kind = "mapped") -> Self:
        """Import memory that another process exported: the same bytes, on the host and on the device.

        Parameters
        ----------
        owner : Vkgdr
            The same GPU, opened with the same flags.
        fd : int
            From `export_fd` of memory of this size and kind, sent with ``socket.send_fds``, for example. It is
            duplicated; the caller closes it. **With any other descriptor the drivers' behaviour is undefined.**
        size : int
            The number of bytes.
        kind : {"mapped", "host", "device"}, optional
            As for the class.
        """
        return cls._over(MemoryView.import_fd(owner, fd, size, kind))


MemoryObject._new = Memory


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
        GPU memory mapped for the CPU through the PCIe BAR; cached system memory mapped for the GPU; GPU memory without
        a host view.
    alignment : int, optional
        The alignment of both addresses, a power of two or 0. The drivers align to at least 64 bytes; it is an error if
        they align to less than `alignment`.
    name : str, optional
        A name that ``repr`` shows.

    Raises
    ------
    VkgdrError
        ``CUDA_ERROR_INVALID_CONTEXT`` if no context is current, `AllocationError` if memory is exhausted, by Vulkan's
        or CUDA's code, and other errors of the drivers.
    InvalidArgumentError
        The size is 0, or another argument is invalid.
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
        if bits := operator.index(flags):
            raise InvalidArgumentError(f"unknown flag bits {bits:#x}: flags must be 0")
        self._view = MemoryView.allocate(owner, size, kind, alignment, False, self._by_hand)
        if name is not None:
            self.name = name

    @classmethod
    def from_handle(cls, handle: int) -> Region:
        """Return a view of an allocation of this process, by its `handle`.

        Like a region, it keeps the memory alive and does not own it: the owner frees the memory.

        Raises
        ------
        InvalidArgumentError
            There is no live allocation with this handle.
        """
        view = find_id(handle)
        if view is None:
            raise InvalidArgumentError(f"no live memory has the handle {handle}")
        return Region._over(view)
