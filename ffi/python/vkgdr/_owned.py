"""``Memory``: memory that frees itself."""

from __future__ import annotations

from vkgdr._errors import InvalidArgumentError
from vkgdr._object import MemoryObject
from vkgdr._raw import RawMemory
from vkgdr._vkgdr import Block, dlpack_import

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self, SupportsIndex

    from vkgdr._handle import Kind, Vkgdr
    from vkgdr.stream import StreamLike

__all__ = ["Memory"]


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
            raise InvalidArgumentError(f"{height} rows of {width} elements of {itemsize} bytes are nothing")
        alignment = 512
        pitch = -(-width * itemsize // alignment) * alignment
        return cls(owner, pitch * height, kind=kind), pitch

    def release_raw(self) -> RawMemory:
        """Give the memory up to a `RawMemory`, which leaks unless it is freed by hand."""
        raw = RawMemory._adopt(self._block.part(0, None, False, True), self._owner, self.name)
        self.free()
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
