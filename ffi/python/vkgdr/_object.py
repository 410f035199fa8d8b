"""The memory objects: ``Memory``, ``RawMemory``, ``Region``, and ``MemoryObject``, what all of them can do."""

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
    """Bytes that the CPU and a GPU share.

    Not made directly: see `Memory`, `RawMemory`, `Region`, `Buffer` and the classes of `vkgdr.memory` and
    `vkgdr.pycuda`.

    NumPy and everything else that knows the buffer protocol sees the host's bytes, without a copy; CuPy, PyTorch,
    numba and everything else that knows the CUDA Array Interface or DLPack sees the device's. Such a view keeps the
    bytes: when memory is freed, what is done with it raises `FreedError` from then on, and the pages go with the last
    view.

    ``memory[start:stop]`` is a `Region`; ``with memory:`` frees at the end. Pickling and copying make new memory of the
    same kind with the same bytes, of the default GPU: the one of the current context, or device 0.

    Both sides may write at any time. Where the memory is not coherent, `flush` after the CPU wrote and `invalidate`
    before it reads, or use `map`. Copies and fills do so themselves, with what they touch. They begin with what the
    device has, in whole atoms of `non_coherent_atom_size`: flush before what the CPU wrote, and let nobody write to the
    same atoms meanwhile.

    All methods may be called from any thread, and enter the memory's context themselves. Sizes and offsets are in
    bytes.
    """

    @property
    def parent(self) -> MemoryObject | None:
        """The memory that this is a region of; None for whole memory."""
        parent = self._parent
        assert parent is None or isinstance(parent, MemoryObject)
        return parent

    @property
    def reference_obj(self) -> object:
        """The object whose memory this shares; None for memory of its own."""
        return self._parent

    def _region(self, offset: int, size: int | None) -> Region:
        """Give a region, which may be empty."""
        return Region._of(self, self._block.part(offset, size, False, False))

    def get_sub_region(self, origin: int, size: int) -> Region:
        """Give a part, with pointers of its own. It keeps the memory.

        Parameters
        ----------
        origin, size : int
            The first byte and the number of bytes, which must not be 0. No alignment is needed.

        Raises
        ------
        OutOfRangeError
            The part does not lie within the memory.
        InvalidArgumentError
            The part is empty.
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
            raise InvalidArgumentError(f"the step must be 1, not {step}")
        if stop <= start:
            raise InvalidArgumentError(f"the part from {start} to {stop} is empty")
        return self.get_sub_region(start, stop - start)

    # No sequence: iterating would go through __getitem__.
    __iter__ = None

    def migrate(self, kind: Kind, *, discard: bool = False) -> Memory:
        """Move the bytes to new memory of another kind, and free this.

        Parameters
        ----------
        kind : {"mapped", "host", "device"}
            The new kind.
        discard : bool, optional
            Leave the contents behind.

        Returns
        -------
        Memory
            In the current context, or the handle's primary one.

        Raises
        ------
        VkgdrError
            As for `Memory`. Then nothing has changed.
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
            raise InvalidArgumentError(
                "this memory was allocated by another library: it has no handle to allocate from"
            )
        return self._owner

    def __int__(self) -> int:
        """Give the device address, as pycuda's pointers do."""
        return self.device_ptr

    def __float__(self) -> NoReturn:
        # Python would read the bytes as text.
        raise TypeError(f"a {type(self).__name__} is no number; device_ptr and host_ptr are its addresses")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MemoryObject):
            return NotImplemented
        key = self._block.key
        # Objects without memory have the number 0.
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
    """A part of memory, with pointers of its own.

    It keeps the memory, also when that is freed. `free` gives up the part only.
    """

    def __init__(self, *_arguments: object) -> None:
        raise TypeError("a region is a part of memory: use memory[start:stop] or get_sub_region")

    @classmethod
    def _of(cls, parent: MemoryObject, block: Block) -> Self:
        self = cls.__new__(cls)
        self._block = block
        self._parent = parent
        self._owner = parent._owner
        return self


class Memory(MemoryObject):
    """Memory that is freed when nothing uses it any more.

    It remembers the CUDA context that it was allocated in, so that it may be used and dropped on any thread. Before it
    goes it waits for that context's work, or, when it is bound to a stream, goes after that stream's work.

    Parameters
    ----------
    owner : Vkgdr
        The GPU. Unless it was opened with `Vkgdr.open_primary_context`, a CUDA context of it must be current.
    size : int
        The number of bytes, more than 0. The contents are undefined.
    kind : {"mapped", "host", "device"}, optional
        GPU memory that the CPU sees through the PCIe BAR; cached system memory that the GPU sees; GPU memory that the
        CPU does not see.
    alignment : int, optional
        A power of two that both addresses must be multiples of, or 0. The drivers align to at least 64 bytes; what they
        do not align as asked is refused.
    stream : object, optional
        Bound, see `bind_to_stream`.
    readonly : bool, optional
        Whether arrays over the memory, on both sides, are marked read-only. CUDA itself does not know of it.
    name : str, optional
        For ``repr``.

    Raises
    ------
    VkgdrError
        ``CUDA_ERROR_INVALID_CONTEXT`` when no context is current, `AllocationError` with
        ``VK_ERROR_OUT_OF_DEVICE_MEMORY`` when there is no room, and whatever else the drivers say.
    InvalidArgumentError
        The size is 0, or an argument cannot be meant.

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
        """Allocate rows that begin at addresses that CUDA likes, as ``mem_alloc_pitch`` does.

        Parameters
        ----------
        owner : Vkgdr
            As for the class.
        width, height, itemsize : int
            Elements of a row, rows, and bytes of an element.
        kind : {"mapped", "host", "device"}, optional
            As for the class.

        Returns
        -------
        memory, pitch
            The memory, and the bytes from one row to the next: a multiple of 512, the largest pitch alignment of CUDA
            textures (``CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT`` is at most that on every NVIDIA GPU so far).
        """
        if width <= 0 or height <= 0 or itemsize <= 0:
            raise InvalidArgumentError(f"{height} rows of {width} elements of {in_bytes(itemsize)} are nothing")
        alignment = 512
        pitch = -(-width * itemsize // alignment) * alignment
        return cls(owner, pitch * height, kind=kind), pitch

    def release_raw(self) -> RawMemory:
        """Give the memory up to a `RawMemory`, which leaks unless it is freed by hand."""
        raw = RawMemory._adopt(self._block.part(0, None, False, True), self._owner, self.name)
        self.free()
        # A forced free must not reach what is the raw memory's now.
        self._block = Block.never()
        return raw

    @classmethod
    def from_capsule(cls, capsule: object) -> Self:
        """Take device memory out of a DLPack capsule, without a copy.

        Parameters
        ----------
        capsule : capsule
            From ``__dlpack__``, on a CUDA device, in C order, not consumed before.

        Returns
        -------
        Memory
            The same bytes. Has a host view if they lie in memory of this package.

        Raises
        ------
        TypeError
            Not such a capsule.
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
        """Give a file descriptor of the memory, for `import_fd` in another process. The caller closes it."""
        return self._block.export_fd()

    @classmethod
    def import_fd(cls, owner: Vkgdr, fd: int, size: int, *, kind: Kind = "mapped") -> Self:
        """Make memory of another process usable in this one: the same bytes, on the host and on the device.

        Parameters
        ----------
        owner : Vkgdr
            The same GPU, opened with the same flags.
        fd : int
            From `export_fd` of memory of this size and kind, handed over with ``socket.send_fds``, for example. It is
            duplicated: the caller closes it. **A descriptor of anything else is undefined behaviour of the drivers.**
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
        if bits := operator.index(flags):
            raise InvalidArgumentError(f"unknown flag bits {bits:#x}: flags must be 0")
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
        return Region._over(block)

    @classmethod
    def _adopt(cls, block: Block, owner: Vkgdr | None, name: str | None) -> Self:
        self = cls.__new__(cls)
        self._block = block
        self._owner = owner
        self.name = name
        return self


def _unpickle(contents: bytes, kind: Kind) -> Memory:
    """Make memory of the default handle with these contents."""
    from vkgdr._default import default_owner

    memory = Memory(default_owner(), len(contents), kind=kind)
    memory.copy_from_host(contents)
    return memory
