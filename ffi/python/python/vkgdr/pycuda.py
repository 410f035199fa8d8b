"""Memory and arrays for pycuda."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NoReturn, Self, SupportsIndex

import numpy as np
import numpy.typing as npt

from vkgdr._errors import InvalidArgumentError, VkgdrError, missing
from vkgdr._interfaces import shaped
from vkgdr._memory import RawMemory, default_owner
from vkgdr._vkgdr import Vkgdr
from vkgdr.pool import Pool
from vkgdr.typing import Kind, Order, Shape, StreamLike

try:
    import pycuda.driver
    import pycuda.gpuarray
except ImportError as error:
    raise missing("vkgdr.pycuda", "pycuda", error) from error

__all__ = ["MappedArray", "Memory", "allocator"]
__dir__ = __all__.copy


def _current_context() -> Any:
    context = pycuda.driver.Context.get_current()
    if context is None:
        raise VkgdrError("no current CUDA context: make one current, for example with context.push()")
    return context


class Memory(pycuda.driver.PointerHolderBase, RawMemory):  # type: ignore[misc]
    """Memory in pycuda's current context that frees itself when its last user is dropped.

    pycuda accepts it wherever it takes a pointer: as ``gpudata`` of a ``GPUArray``, in copies and fills, as a kernel
    argument. It keeps the context alive, and may be used and dropped on any thread. Do not detach the context before.
    A slice of it is a `vkgdr.Memory`, which only pycuda's kernels accept: pass ``int(slice)`` elsewhere. The garbage
    collector does not see its attributes: a cycle through one of them is never freed.

    pycuda's `as_buffer` is a memoryview of the *device* address, for peer-to-peer libraries; the CPU cannot access it.
    The host view is ``memoryview(memory)``. The device address is ``int(memory)``, as in ``int(memory) + offset``:
    ``np.intp(memory)`` is an array of the bytes, since NumPy asks for an array first.

    The parameters and the errors are those of `vkgdr.RawMemory`, beside `stream`, the stream to bind to (see
    `vkgdr.Memory.bind_to_stream`). `owner` is the GPU of the current context; without one the error is a
    `VkgdrError`. A handle of `open_primary_context` needs that context to be current, as by ``pycuda.autoprimaryctx``.
    """

    _by_hand = False

    def __init__(
        self,
        owner: Vkgdr,
        size: SupportsIndex,
        flags: SupportsIndex = 0,
        *,
        kind: Kind = "mapped",
        alignment: SupportsIndex = 0,
        stream: StreamLike | None = None,
        name: str | None = None,
    ) -> None:
        context = _current_context()
        RawMemory.__init__(self, owner, size, flags, kind=kind, alignment=alignment, name=name)
        self._keep(context)
        if stream is not None:
            self.bind_to_stream(stream)

    @classmethod
    def _pooled(cls, pool: Pool, size: SupportsIndex) -> Self:
        """Allocate a chunk of a pool."""
        context = _current_context()
        self = cls.__new__(cls)
        self._view = pool._take(size)
        self._keep(context)
        return self

    def _keep(self, context: Any) -> None:
        pycuda.driver.PointerHolderBase.__init__(self)
        # A subclass may have a `context` of its own.
        if RawMemory.context.__get__(self) != context.handle:
            self._view.free(False)
            text = "the memory is not in the current context: make its own current, as with pycuda.autoprimaryctx"
            raise InvalidArgumentError(f"{text}, or open the GPU with open_current_context")
        self._view.keep(context)

    def get_pointer(self) -> int:
        """Return the device address, for pycuda."""
        return self.device_ptr

    @property
    def gpudata(self) -> Self:
        """The memory itself; pycuda reads this attribute of kernel arguments."""
        return self

    @classmethod
    def _restored(cls, contents: Any, kind: Kind) -> Memory:
        """Allocate memory in the current context with these contents, for pickle."""
        memory = Memory(default_owner(), memoryview(contents).nbytes, kind=kind)
        memory.copy_from_host(contents)
        return memory

    # Overrides that of pycuda's base class, which raises.
    __reduce__ = RawMemory.__reduce__

    def __del__(self) -> None:
        self.__dict__.pop("_view", None)


@dataclasses.dataclass(frozen=True, eq=False)
class MappedArray:
    """An array on both sides: `host`, of NumPy, and `device`, of pycuda, are views of the bytes of `memory`.

    Each view keeps the memory alive.
    """

    host: np.ndarray[Any, Any]
    device: Any
    memory: Memory

    def __post_init__(self) -> None:
        if not isinstance(self.host, np.ndarray):
            raise TypeError("MappedArray is made by MappedArray.empty(gpu, shape, dtype)")

    def __copy__(self) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        # The views of a copy would be of other bytes than its memory.
        raise TypeError("a MappedArray cannot be pickled or copied deeply: pickle `device`, or copy into another one")

    # Omits the elements: the CPU reads GPU memory slowly.
    def __repr__(self) -> str:
        return f"<vkgdr.pycuda.MappedArray: shape {self.host.shape}, {self.host.dtype}, in {self.memory!r}>"

    @classmethod
    def empty(
        cls, owner: Vkgdr, shape: Shape, dtype: npt.DTypeLike, order: Order = "C", *, kind: Kind = "mapped"
    ) -> Self:
        """Allocate an array in the current context, whose GPU is `owner`. The contents are undefined.

        `shape`, `dtype` and `order` are those of `vkgdr.arrays.mapped_array`; the kind is ``"mapped"`` or ``"host"``.
        """
        extents, element, size = shaped(shape, dtype)
        # An array may be empty, an allocation may not.
        memory = Memory(owner, size or 1, kind=kind)
        host = memory.get_host_array(extents, element, order)
        device = pycuda.gpuarray.GPUArray(extents, element, gpudata=memory, order=order)
        return cls(host, device, memory)


def allocator(source: Vkgdr | Pool, kind: Kind = "mapped") -> Callable[[int], Memory]:
    """Return an allocator for pycuda: ``gpuarray.to_gpu(array, allocator=allocator(gpu))``.

    It takes a number of bytes, and returns a `Memory` of `kind`, from a GPU of the context that is current at each
    allocation. Or the memory is from a pool of that context, which has a kind of its own.
    """
    if isinstance(source, Vkgdr):
        return functools.partial(Memory, source, kind=kind)
    return functools.partial(Memory._pooled, source)
