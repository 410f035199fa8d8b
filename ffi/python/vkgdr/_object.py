"""The memory objects ``Memory``, ``RawMemory`` and ``Region``, and their common base ``MemoryObject``."""

from __future__ import annotations

import operator

from vkgdr._errors import FreedError, InvalidArgumentError
from vkgdr._lifetime import Lifetime
from vkgdr._vkgdr import Block, dlpack_import, find_id
from vkgdr._words import in_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn, Self, SupportsIndex

    from vkgdr._handle import Vkgdr
    from vkgdr.typing import Kind, StreamLike

__all__ = ["Memory", "MemoryObject", "RawMemory", "Region"]


class MemoryObject(Lifetime):
    """Bytes that the CPU and a GPU share; the base class of all memory objects.

    Not created directly: see `Memory`, `RawMemory`, `Region`, `Buffer` and the classes of `vkgdr.memory` and
    `vkgdr.pycuda`.

    The host view needs no copy in NumPy and other users of the buffer protocol, nor does the device view in CuPy,
    PyTorch, numba and other users of the CUDA Array Interface or DLPack. Views keep the bytes alive: once memory is
    freed, its methods raise `FreedError`, and the pages are released with the last view.

    ``memory[start:stop]`` is a `Region`; ``with memory:`` frees at the end. Pickling and copying allocate memory of the
    same kind with the same bytes on the default GPU: that of the current context, or device 0.

    CPU and GPU may write at any time. On memory that is not coherent, `flush` after the CPU writes and `invalidate`
    before it reads, or use `map`. Copies and fills do both for the bytes that they touch. They start from the device's
    bytes, in whole atoms of `non_coherent_atom_size`: flush the CPU's earlier writes before, and do not write to the
    same atoms concurrently.

    All methods may be called from any thread, and enter the memory's context themselves. Sizes and offsets are in
    bytes.
    """

    @property
    def parent(self) -> MemoryObject | None:
        """The memory object of a region; None if this is not a region."""
        parent = self._parent
        assert parent is None or isinstance(parent, MemoryObject)
        return parent

    @property
    def reference_obj(self) -> object:
        """The object that this one shares its memory with; None if there is none."""
        return self._parent

    def _region(self, offset: int, size: int | None) -> Region:
        """Return a region, possibly empty."""
        return Region._of(self, self._block.part(offset, size, False, False))

    def get_sub_region(self, origin: int, size: int) -> Region:
        """Return a region with its own addresses. It keeps the memory alive.

        Parameters
        ----------
        origin, size : int
            The first byte and the number of bytes, at least 1. No alignment is needed.

        Raises
        ------
        OutOfRangeError
            The range exceeds the memory.
        InvalidArgumentError
            The range is empty.
        OverflowError
            A number is negative.
        """
        region = self._region(origin, operator.index(size))
        if len(region) == 0:
            raise InvalidArgumentError(f"the region of 0 bytes at {origin} is empty")
        return region

    def __getitem__(self, part: slice) -> Region:
        if not isinstance(part, slice):
            raise TypeError(
                f"memory is indexed with slices, not {type(part).__name__}; np.asarray(memory) has elements"
            )
        start, stop, step = part.indices(len(self))
        if step != 1:
            raise InvalidArgumentError(f"step must be 1, not {step}")
        if stop <= start:
            raise InvalidArgumentError(f"the region from {start} to {stop} is empty")
        return self.get_sub_region(start, stop - start)

    # Not iterable: iteration would call __getitem__.
    __iter__ = None

    def migrate(self, kind: Kind, *, discard: bool = False) -> Memory:
        """Move the bytes to new memory of another kind, and free this object.

        Parameters
        ----------
        kind : {"mapped", "host", "device"}
            The new kind.
        discard : bool, optional
            Do not copy the contents.

        Returns
        -------
        Memory
            In the handle's primary context, or in the current context if it has none.

        Raises
        ------
        VkgdrError
            As for `Memory`. Nothing has changed then.
        """
        new = Memory(self._require_owner(), len(self), kind=kind, name=self.name)
        if not discard:
            new.copy_from_device(self)
        self.free()
        return new

    def _require_owner(self) -> Vkgdr:
        if self._block.freed:
            raise FreedError("the memory was freed")
        if self._owner is None:
            raise InvalidArgumentError("the memory was allocated by another library: it has no handle to allocate from")
        return self._owner

    def __int__(self) -> int:
        """Return the device address, like pycuda's pointers."""
        return self.device_ptr

    def __float__(self) -> NoReturn:
        # Without this, Python would parse the bytes as text.
        raise TypeError(f"a {type(self).__name__} is not a number; its addresses are device_ptr and host_ptr")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MemoryObject):
            return NotImplemented
        key = self._block.key
        # Objects without memory have the id 0.
        return self is other or (key == other._block.key and key[0] != 0)

    def __hash__(self) -> int:
        return hash(self._block.key)

    def __sizeof__(self) -> int:
        return self._block.nbytes

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (self.tobytes(), self.kind)

    def __repr__(self) -> str:
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        named = f" {self.name!r}" if self.name is not None else ""
        if self._block.freed:
            return f"<{name}{named}: freed>"
        host = "no host view" if self.host_ptr is None else f"host_ptr={self.host_ptr:#x}"
        notes = [in_bytes(len(self)), self.kind, f"device_ptr={self.device_ptr:#x}", host]
        if not self.is_coherent:
            notes.append("not coherent")
        if self.readonly:
            notes.append("read-only")
        if self.stream is not None:
            notes.append(f"stream={self.stream:#x}")
        return f"<{name}{named}: {', '.join(notes)}>"


class Region(MemoryObject):
    """A range of memory with its own addresses.

    It keeps the memory alive, even when the parent is freed. `free` releases the region only.
    """

    def __init__(self, *_arguments: object) -> None:
        raise TypeError("regions are not created directly: use memory[start:stop] or get_sub_region")

    @classmethod
    def _of(cls, parent: MemoryObject, block: Block) -> Self:
        self = cls.__new__(cls)
        self._block = block
        self._parent = parent
        self._owner = parent._owner
        return self


class Memory(MemoryObject):
    """Memory that frees itself when its last user is dropped.

    It remembers the CUDA context of its allocation, so it may be used and dropped on any thread. Its release waits for
    that context's work; memory bound to a stream is released after that stream's work instead, without blocking.

    Parameters
    ----------
    owner : Vkgdr
        The GPU. Unless it was opened with `Vkgdr.open_primary_context`, a CUDA context of it must be current.
    size : int
        The number of bytes, more than 0. The contents are undefined.
    kind : {"mapped", "host", "device"}, optional
        GPU memory mapped for the CPU through the PCIe BAR; cached system memory mapped for the GPU; GPU memory without
        a host view.
    alignment : int, optional
        The alignment of both addresses, a power of two or 0. The drivers align to at least 64 bytes; it is an error if
        they align to less than `alignment`.
    stream : object, optional
        The stream to bind to, see `bind_to_stream`.
    readonly : bool, optional
        Whether host and device views are marked read-only. CUDA does not enforce it.
    name : str, optional
        A name that ``repr`` shows.

    Raises
    ------
    VkgdrError
        ``CUDA_ERROR_INVALID_CONTEXT`` if no context is current, `AllocationError` with
        ``VK_ERROR_OUT_OF_DEVICE_MEMORY`` if memory is exhausted, and other errors of the drivers.
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
        kind: Kind = "mapped",
        alignment: SupportsIndex = 0,
        stream: StreamLike | None = None,
        readonly: bool = False,
        name: str | None = None,
    ) -> None:
        self._block = Block.allocate(owner, size, kind, alignment, readonly, False)
        self._owner = owner
        self.name = name
        if stream is not None:
            self.bind_to_stream(stream)

    @classmethod
    def pitched(
        cls, owner: Vkgdr, width: int, height: int, itemsize: int, *, kind: Kind = "mapped"
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
        if width <= 0 or height <= 0 or itemsize <= 0:
            raise InvalidArgumentError(f"{height} rows of {width} elements of {in_bytes(itemsize)} are empty")
        alignment = 512
        pitch = -(-width * itemsize // alignment) * alignment
        return cls(owner, pitch * height, kind=kind), pitch

    def release_raw(self) -> RawMemory:
        """Transfer the memory to a `RawMemory`, which leaks unless it is freed by hand."""
        raw = RawMemory._adopt(self._block.part(0, None, False, True), self._owner, self.name)
        self.free()
        # A later forced free of this object must not free the raw memory.
        self._block = Block.never()
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
        return cls._adopt(dlpack_import(capsule), None)

    @classmethod
    def _adopt(cls, block: Block, owner: Vkgdr | None) -> Self:
        self = cls.__new__(cls)
        self._block = block
        self._owner = owner
        return self

    def export_fd(self) -> int:
        """Export a file descriptor for `import_fd` in another process. The caller closes it."""
        return self._block.export_fd()

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
        return cls._adopt(Block.import_fd(owner, fd, size, kind), owner)


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
        ``CUDA_ERROR_INVALID_CONTEXT`` if no context is current, `AllocationError` with
        ``VK_ERROR_OUT_OF_DEVICE_MEMORY`` if memory is exhausted, and other errors of the drivers.
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
        self._block = Block.allocate(owner, size, kind, alignment, False, self._by_hand)
        self._owner = owner
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
        block = find_id(handle)
        if block is None:
            raise InvalidArgumentError(f"no live memory has the handle {handle}")
        return Region._over(block)

    @classmethod
    def _adopt(cls, block: Block, owner: Vkgdr | None, name: str | None) -> Self:
        self = cls.__new__(cls)
        self._block = block
        self._owner = owner
        self.name = name
        return self


def _unpickle(contents: bytes, kind: Kind) -> Memory:
    """Allocate memory of the default handle with these contents, for pickle."""
    from vkgdr._default import default_owner

    memory = Memory(default_owner(), len(contents), kind=kind)
    memory.copy_from_host(contents)
    return memory
