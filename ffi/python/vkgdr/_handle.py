"""``Vkgdr``: the handle of a GPU."""

from __future__ import annotations

from vkgdr._flags import OpenFlags
from vkgdr._vkgdr import Handle, MemoryInfo, MemoryType

TYPE_CHECKING = False
if TYPE_CHECKING:
    import uuid
    from types import TracebackType
    from typing import NoReturn, Self, SupportsIndex

    from vkgdr.typing import Kind

__all__ = ["Vkgdr"]


class Vkgdr:
    """A GPU whose memory can be allocated.

    Memory keeps its GPU open, so a handle may go at any time. All handles of a GPU in a process share one Vulkan
    device: every handle after the first is cheap. A handle may be used from any thread. Unless it was opened with
    `open_primary_context`, allocating needs a CUDA context of its device to be current on the calling thread.

    Parameters
    ----------
    device : int
        The CUDA device number, counted from 0. Ignored with ``OpenFlags.CURRENT_CONTEXT_BIT``.
    flags : int, optional
        Of `OpenFlags`. Unknown bits are refused.

    Raises
    ------
    VkgdrError
        A driver is missing or refuses, Vulkan does not know the GPU, or no memory type fits the flags. The text says
        what to do.
    """

    # Replaced by what is opened: an object whose `__init__` was not called is closed.
    _handle = Handle.never()

    def __init__(self, device: SupportsIndex, flags: SupportsIndex = 0) -> None:
        self._handle = Handle.open(device, flags)

    @classmethod
    def open_current_context(cls, flags: int = 0) -> Self:
        """Open the GPU of the CUDA context that is current on this thread.

        Parameters
        ----------
        flags : int, optional
            Of `OpenFlags`.

        Raises
        ------
        VkgdrError
            As for the class, and ``CUDA_ERROR_INVALID_CONTEXT`` when no context is current.
        """
        return cls(0, flags | OpenFlags.CURRENT_CONTEXT_BIT)

    @classmethod
    def open_primary_context(cls, device: SupportsIndex = 0, flags: SupportsIndex = 0) -> Self:
        """Open a GPU and retain its primary context, the one that CuPy, PyTorch, numba and the CUDA runtime use.

        Memory of this handle is allocated in that context, whichever is current, and none needs to be. ``__init__``
        is not called.

        Parameters
        ----------
        device : int, optional
            The CUDA device number.
        flags : int, optional
            Of `OpenFlags`.

        Raises
        ------
        VkgdrError
            As for the class.
        """
        self = cls.__new__(cls)
        self._handle = Handle.open_primary_context(device, flags)
        return self

    @property
    def device(self) -> int:
        """The CUDA device number."""
        return self._handle.device

    @property
    def name(self) -> str:
        """The GPU's name, as the CUDA driver gives it."""
        return self._handle.name

    @property
    def flags(self) -> OpenFlags:
        """The flags that the handle was opened with."""
        return OpenFlags(self._handle.flags)

    @property
    def uuid(self) -> uuid.UUID:
        """The UUID that CUDA and Vulkan agree on."""
        import uuid

        return uuid.UUID(bytes=self._handle.uuid)

    @property
    def pci_bus_id(self) -> str:
        """The GPU's place on the PCI bus, such as ``0000:65:00.0``."""
        return self._handle.pci_bus_id

    def supports(self, kind: Kind) -> bool:
        """Tell whether the GPU has a kind of memory."""
        return self._handle.supports(kind)

    def memory_info(self, kind: Kind = "mapped") -> MemoryInfo:
        """Tell how much memory of a kind there is.

        Parameters
        ----------
        kind : {"mapped", "host", "device"}, optional
            For ``"mapped"`` the total is what the PCIe BAR shows of the GPU's memory.

        Returns
        -------
        MemoryInfo
            ``free`` and ``total`` in bytes. ``source`` is ``"budget"`` where the driver says what is in use, and
            ``"heap size"`` where nothing is known of that.

        Raises
        ------
        VkgdrError
            The GPU has no such memory.
        InvalidArgumentError
            There is no such kind.
        """
        return self._handle.memory_info(kind)

    def memory_types(self) -> list[MemoryType]:
        """List the memory types that Vulkan has on this GPU."""
        return self._handle.memory_types()

    def memory_type_of(self, kind: Kind) -> MemoryType:
        """Tell which memory type a kind is."""
        return self._handle.memory_type_of(kind)

    def stats(self) -> dict[str, int]:
        """Count what this package has allocated on the GPU and has not freed.

        Returns
        -------
        dict
            ``live_allocations``; ``live_bytes``, also as ``mapped_bytes``, ``host_bytes`` and ``device_bytes``;
            ``pending_releases``, the allocations that were freed and wait for a stream; and of the whole process which
            way copies and fills of uncached memory took: ``cpu_reads``, ``cpu_read_bytes``, ``cpu_writes``,
            ``cpu_written_bytes``, and the same with ``dma`` for the GPU's copy engine.
        """
        return self._handle.stats()

    @property
    def copy_thresholds(self) -> tuple[int, int]:
        """From how many bytes on reads, and writes and fills, of coherent mapped memory are left to the copy engine.

        May be set, for all handles of the GPU: 0 leaves all to it. Memory that is not coherent the CPU copies.
        """
        return self._handle.copy_thresholds

    @copy_thresholds.setter
    def copy_thresholds(self, read_and_write: tuple[int, int]) -> None:
        self._handle.set_copy_thresholds(*read_and_write)

    def calibrate(self) -> tuple[int, int]:
        """Measure from which sizes on the GPU's copy engine is faster than the CPU, and copy accordingly from now on.

        Takes less than 200 ms. Measured once for each GPU and process. Needs a context, as an allocation does.

        Returns
        -------
        read, write : int
            `copy_thresholds`.
        """
        return self._handle.calibrate()

    def collect(self) -> int:
        """Release what was freed while a stream still used it and no longer does.

        Allocating and freeing do this too for some, so that only a program that does neither for long needs it.

        Returns
        -------
        int
            How many allocations that were.
        """
        return self._handle.collect()

    def close(self) -> None:
        """Give the handle up. Its memory stays. A second call does nothing."""
        self._handle.close()

    @property
    def closed(self) -> bool:
        """Whether the handle was closed."""
        return self._handle.closed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a GPU's handle cannot be copied or pickled: open the GPU again")

    def __repr__(self) -> str:
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        if self.closed:
            return f"<{name}: closed>"
        return f"<{name}: CUDA device {self.device}, {self.name}>"
