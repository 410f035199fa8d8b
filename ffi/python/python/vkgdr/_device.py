"""``Vkgdr``, a handle of a GPU, with its flags, and the default handle for callers that pass none."""

from __future__ import annotations

import enum
import operator

from vkgdr._errors import VkgdrError
from vkgdr._vkgdr import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable
    from typing import NoReturn, Self, SupportsIndex, TypeVar

    from vkgdr.typing import Handles, Kind, MemoryInfo, MemoryType

    T = TypeVar("T")


class OpenFlags(enum.IntFlag):
    """Flags for opening a handle. The values are those of vkgdr 0.1; unknown bits are an error.

    Attributes
    ----------
    CURRENT_CONTEXT_BIT
        Ignore the device number and use the device of the CUDA context that is current on this thread.
    FORCE_NON_COHERENT_BIT
        Treat coherent memory as non-coherent, to test a program's calls of flush and invalidate.
    REQUIRE_COHERENT_BIT
        Use coherent memory types only; opening fails if there is none. With ``FORCE_NON_COHERENT_BIT``, choose a
        coherent type and treat it as non-coherent.
    """

    CURRENT_CONTEXT_BIT = 1
    FORCE_NON_COHERENT_BIT = 2
    REQUIRE_COHERENT_BIT = 4


def _number(device: SupportsIndex) -> int:
    try:
        return operator.index(device)
    except TypeError:
        raise TypeError(f"device must be an integer, CUDA's number of the GPU, such as 0, not {device!r}") from None


class Vkgdr:
    """A handle of a GPU, to allocate memory from.

    Memory keeps its GPU open, so a handle may be closed or dropped at any time. All handles of a GPU in a process
    share one Vulkan device: every handle after the first is cheap. A handle may be used from any thread. Unless it was
    opened with `open_primary_context`, an allocation needs a current CUDA context of the device on the calling thread.
    Handles are equal if their GPU, their context (a retained one, or the current one) and their flags are, also once
    they are closed.

    Parameters
    ----------
    device : int
        The CUDA device number, counted from 0. Ignored with ``OpenFlags.CURRENT_CONTEXT_BIT``.
    flags : int, optional
        Bits of `OpenFlags`. Unknown bits are an error.

    Raises
    ------
    VkgdrError
        The CUDA driver is missing or fails, Vulkan runs out of memory, or no memory type fits
        ``REQUIRE_COHERENT_BIT``. The message names the remedy. Without Vulkan a handle opens; `supports` tells which
        kinds of memory it has.
    """

    # Class default: an object whose `__init__` did not run counts as closed.
    _handle = Handle.never()

    def __init__(self, device: SupportsIndex, flags: SupportsIndex = 0) -> None:
        self._handle = Handle.open(_number(device), flags, False)

    @classmethod
    def open_current_context(cls, flags: int = 0) -> Self:
        """Open the GPU of the CUDA context that is current on this thread, with the flags of the class.

        Without a context the error is ``CUDA_ERROR_INVALID_CONTEXT``.
        """
        return cls(0, flags | OpenFlags.CURRENT_CONTEXT_BIT)

    @classmethod
    def open_primary_context(cls, device: SupportsIndex = 0, flags: SupportsIndex = 0) -> Self:
        """Open a GPU and retain its primary context, the one that CuPy, PyTorch, numba and the CUDA runtime use.

        Memory of this handle is allocated in the primary context; no context needs to be current. The parameters and
        the errors are those of the class. ``__init__`` is not called.
        """
        return cls._of(Handle.open(_number(device), flags, True))

    @classmethod
    def _of(cls, handle: Handle) -> Self:
        """Wrap a native handle."""
        self = cls.__new__(cls)
        self._handle = handle
        return self

    @property
    def device(self) -> int:
        """The CUDA device number."""
        return self._handle.device

    @property
    def name(self) -> str:
        """The GPU's name, from the CUDA driver."""
        return self._handle.name

    @property
    def flags(self) -> OpenFlags:
        """The flags of the handle."""
        return OpenFlags(self._handle.flags)

    @property
    def uuid(self) -> uuid.UUID:
        """The UUID by which CUDA and Vulkan identify the GPU."""
        import uuid

        return uuid.UUID(bytes=self._handle.uuid)

    @property
    def pci_bus_id(self) -> str:
        """The GPU's PCI bus id, such as ``0000:65:00.0``."""
        return self._handle.pci_bus_id

    def supports(self, kind: Kind) -> bool:
        """Return whether memory of this kind can be allocated.

        The first question for a kind allocates one byte and frees it, since the drivers may refuse to share memory that
        they list: in the handle's primary context, in the current context, or else in the device's primary context. It
        may wait for a running kernel. Running out of memory does not count as a no.
        """
        return self._handle.supports(kind)

    def supports_existing(self) -> bool:
        """Return whether the CPU can map memory that others allocated on this GPU, as `host_view` does.

        The driver must support CUDA 13.3 (R610) and the GPU allow it. Needs no current context.
        """
        return self._handle.supports_existing

    def memory_info(self, kind: Kind = "mapped") -> MemoryInfo:
        """Return the free and the total memory of a kind.

        For ``"mapped"`` the total is the GPU memory that the CPU can map through the PCIe BAR. ``source`` is
        ``"budget"`` if Vulkan reports memory in use, and ``"heap size"`` if it does not. For memory that does not come
        from Vulkan it is ``"system"`` (host) or ``"cuMemGetInfo"`` (device, and mapped, whose total is then all of the
        GPU's memory). It is an error if the GPU has no memory of this kind.
        """
        from vkgdr.typing import MemoryInfo

        return MemoryInfo(*self._handle.memory_info(kind))

    def memory_types(self) -> list[MemoryType]:
        """List the GPU's Vulkan memory types; none without Vulkan."""
        from vkgdr.typing import MemoryType

        return [MemoryType(*fields) for fields in self._handle.memory_types()]

    def memory_type_of(self, kind: Kind) -> MemoryType:
        """Return the memory type of a kind. Its ``index`` and ``heap`` are None if it does not come from Vulkan."""
        from vkgdr.typing import MemoryType

        return MemoryType(*self._handle.memory_type_of(kind))

    def stats(self) -> dict[str, int]:
        """Count this package's live allocations on the GPU in this process.

        The keys are ``live_allocations``; ``live_bytes``, and by kind ``mapped_bytes``, ``host_bytes`` and
        ``device_bytes``; ``deferred_frees``, the freed allocations that wait for a stream.
        """
        live = self._handle.live
        stats = {f"{kind}_bytes": sum(n for own, n in live if own == kind) for kind in ("mapped", "host", "device")}
        total = {"live_allocations": len(live), "live_bytes": sum(stats.values())}
        return {**total, **stats, "deferred_frees": self._handle.deferred_frees}

    @property
    def copy_thresholds(self) -> tuple[int, int]:
        """The sizes in bytes from which the copy engine reads, and writes and fills, coherent mapped memory.

        Settable, for all handles of the GPU; 0 selects the engine for every size. The CPU copies non-coherent memory,
        writes from memory that is not page-locked, and copies where the context has no copy engine: see
        `prepare_copies`.
        """
        return self._handle.copy_thresholds

    @copy_thresholds.setter
    def copy_thresholds(self, read_and_write: tuple[int, int]) -> None:
        self._handle.set_copy_thresholds(*read_and_write)

    def prepare_copies(self) -> None:
        """Make the stream of the GPU's copy engine, so that copies use it by default.

        That may wait until running kernels have ended: call this before starting a kernel that waits for
        the CPU. Does nothing if it exists. Needs a context, as an allocation does, and applies to memory of that
        context.
        """
        self._handle.prepare_copies()

    @property
    def vulkan_handles(self) -> Handles:
        """The Vulkan device that allocates, as numbers, for other libraries; an error if Vulkan is missing."""
        from vkgdr.typing import Handles

        return Handles(*self._handle.vulkan_handles())

    def with_vulkan_queue(self, work: Callable[[int], T]) -> T:
        """Return ``work(queue)``, called with the ``VkQueue`` of `vulkan_handles` while no other thread has it.

        A call within `work` would never return. This package itself submits nothing to the queue.
        """
        return self._handle.with_vulkan_queue(work)

    def supports_semaphores(self) -> bool:
        """Return whether the drivers share timeline semaphores, see `vkgdr.vulkan.Semaphore`, as far as Vulkan says."""
        return self._handle.supports_semaphores

    def collect(self) -> int:
        """Release the pending allocations that their streams have finished with, and return their number.

        Freeing memory that is not of a pool releases some of them too, and so does an allocation where memory is short.
        The driver frees memory only after running kernels have ended. This call waits for the context of memory whose
        release could not wait for it, as during a stream capture.
        """
        return self._handle.collect()

    def set_shortage_timeout(self, seconds: float) -> None:
        """Set how long an allocation that runs short waits for freed memory that the device still uses.

        It is 1 second by default, and pools wait as long for memory of theirs. A program whose thread feeds a kernel
        that does not end by itself sets 0.
        """
        self._handle.set_shortage_timeout(seconds)

    def close(self) -> None:
        """Close the handle. Its memory stays valid. A second call does nothing."""
        self._handle.close()

    @property
    def closed(self) -> bool:
        """Whether the handle was closed."""
        return self._handle.closed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vkgdr):
            return NotImplemented
        key = self._handle.key
        return self is other or (key is not None and key == other._handle.key)

    def __hash__(self) -> int:
        return hash(self._handle.key or id(self))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a handle cannot be copied or pickled: open the GPU again")

    def __repr__(self) -> str:
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        if self.closed:
            return f"<{name}: closed>"
        return f"<{name}: CUDA device {self.device}, {self.name}>"


# Messages show the public name, not that of the private module.
OpenFlags.__module__ = Vkgdr.__module__ = "vkgdr"

_CUDA_ERROR_INVALID_CONTEXT = 201

# Kept: releasing the last handle of a primary context destroys the context.
_primary: dict[int, Vkgdr] = {}


def default_owner(device: int | None = None) -> Vkgdr:
    """Return a handle of the current context, if there is one of this device, else of the device's primary context.

    By default the current context may be of any device, and the primary context is that of device 0.
    """
    try:
        current = Vkgdr.open_current_context()
        if device in (None, current.device):
            return current
    except VkgdrError as error:
        if error.cu_result != _CUDA_ERROR_INVALID_CONTEXT:
            raise
    number = device or 0
    owner = _primary.get(number)
    # Memory hands its owner out, and a program may close that. A reset destroys the context, too.
    if owner is None or owner.closed or owner._handle.context_is_destroyed():
        owner = _primary[number] = Vkgdr.open_primary_context(number)
    return owner
