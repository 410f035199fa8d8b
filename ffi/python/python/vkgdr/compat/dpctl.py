"""Memory with the constructor, the methods and the errors of ``dpctl.memory``.

`MemoryShared` is memory of kind "mapped", `MemoryHost` of kind "host", `MemoryDevice` of kind "device". They differ
from dpctl's classes in these points:

* Unlike SYCL's shared memory, `MemoryShared` has two addresses: ``device_ptr``, with the alias ``_pointer``, and
  ``host_ptr``.
* A handle, `owner`, replaces SYCL's queue, context and device, also as the argument of `get_mem_type`; ``sycl_queue``,
  ``sycl_context`` and ``sycl_device`` are missing. `queue` is a CUDA stream to bind to.
* ``__vkgdr_memory__``, the CUDA Array Interface and DLPack replace ``__sycl_usm_array_interface__``.
* Only objects in C order are shared. dpctl shares the whole range of a strided view.
* Copies and `memset` have an `offset`, and take contiguous bytes of any type. They are done when the call returns.
* Memory can be freed by hand, and shared memory stays valid as long as one of its objects lives.
* Two objects over the same bytes are equal. A pickle is memory of the default GPU.
* Errors are those of this package; exhausted memory is `vkgdr.AllocationError`, which is a ``MemoryError``, too.
"""

from __future__ import annotations

import numbers
from typing import Any, ClassVar

from vkgdr import _interfaces
from vkgdr._errors import AllocationError, InvalidArgumentError
from vkgdr._memory import Memory, RawMemory, default_owner
from vkgdr._vkgdr import MemoryView, Vkgdr, record
from vkgdr.typing import Kind, StreamLike

__all__ = ["AllocationError", "MemoryDevice", "MemoryHost", "MemoryShared", "as_memory"]
__dir__ = __all__.copy

_ENUM = {"device": 1, "shared": 2, "host": 3}


class _Memory(Memory):
    _kind: ClassVar[Kind]
    _reference: object = None

    def __init__(
        self,
        nbytes_or_obj: Any,
        *,
        alignment: int = 0,
        queue: StreamLike | None = None,
        copy: bool = False,
        owner: Vkgdr | None = None,
    ) -> None:
        found: Memory | None = None
        # A pycuda pointer has `__index__`, too.
        if isinstance(nbytes_or_obj, numbers.Integral):
            size = int(nbytes_or_obj)
            if size <= 0:
                raise InvalidArgumentError(f"Number of bytes of request allocation must be positive. It was {size}")
        else:
            view, ready = _bytes_of(nbytes_or_obj)
            found, size = Memory._over(view), view.nbytes
            if not isinstance(nbytes_or_obj, Memory):
                # Here: the other library's stream may belong to another context.
                view.wait_for_stream()
                for side, stream in ready:
                    record(side, stream).synchronize()
        if found is not None and found.kind == self._kind:
            self._view = found._view.part(0, None, False)
            self._reference = None if isinstance(nbytes_or_obj, Memory) else nbytes_or_obj
        elif found is not None and not copy:
            raise InvalidArgumentError(
                f"the memory of this {type(nbytes_or_obj).__name__} is of kind {found.kind!r}, not {self._kind!r}. "
                "Zero-copy operation is not possible with copy=False: use copy=True, or as_memory"
            )
        else:
            if owner is None:
                owner = default_owner() if found is None or found.owner is None else found.owner
            self._view = MemoryView.allocate(owner, size, self._kind, (max(alignment, 0), False, False))
            if found is not None:
                self.copy_from_device(found)
        if queue is not None:
            self.bind_to_stream(queue)

    @property
    def reference_obj(self) -> object:
        """The object of another library whose memory this one shares; None for memory of this package."""
        return self._reference

    @property
    def _pointer(self) -> int:
        return self.device_ptr

    def get_mem_type(self, owner: Vkgdr | None = None) -> str:
        """Return the kind under dpctl's name: "shared", "host", "device", or "unknown" if `owner` is another GPU."""
        if owner is not None:
            if not isinstance(owner, Vkgdr):
                raise TypeError(f"owner must be a vkgdr.Vkgdr, not {type(owner).__name__}")
            if owner.device != self.device:
                return "unknown"
        return super().get_mem_type()

    get_usm_type = get_mem_type

    def get_usm_type_enum(self, owner: Vkgdr | None = None) -> int:
        """Return `get_mem_type` as SYCL's number: 1 for "device", 2 for "shared", 3 for "host", 0 for "unknown"."""
        return _ENUM.get(self.get_mem_type(owner), 0)

    def free(self, *, force: bool = False) -> None:
        """Free the memory, like `Memory.free`. Without `force`, shared memory loses this object's use only."""
        super().free(force=force)
        self._reference = None

    @classmethod
    def _restored(cls, contents: Any, kind: Kind) -> Memory:
        memory = super()._restored(contents, kind)
        return _CLASSES[memory.kind]._over(memory._view)


class MemoryShared(_Memory):
    """GPU memory that the CPU reads and writes through the PCIe BAR.

    Parameters
    ----------
    nbytes_or_obj : int or object
        The number of bytes to allocate, at least 1, with undefined contents. Or an object to share memory with, without
        a copy. It is a memory object of this package, or an object in C order with ``__vkgdr_memory__``,
        ``__cuda_array_interface__`` or DLPack on a CUDA device. The object is kept alive. Waits for the work of the
        stream in its interface.
    alignment : int, optional
        As for `vkgdr.Memory`; 0 or less for the drivers' alignment.
    queue : object, optional
        The stream to bind to, see `bind_to_stream`. Memory of another library cannot be bound.
    copy : bool, optional
        Allocate and copy if the object's memory is of another kind.
    owner : Vkgdr, optional
        The GPU to allocate on: by default the object's, or that of the current context, or device 0 in its primary
        context.

    Raises
    ------
    InvalidArgumentError
        The number of bytes is below 1, or the object has no device memory or a malformed interface. Or its memory is of
        another kind and `copy` is false. Memory of another library is of kind "device".
    VkgdrError
        As for `vkgdr.Memory`.
    """

    _kind = "mapped"


class MemoryHost(_Memory):
    """System memory that both the CPU and the GPU read and write.

    The parameters and the errors are those of `MemoryShared`.
    """

    _kind = "host"


class MemoryDevice(_Memory):
    """GPU memory without a host view.

    The parameters and the errors are those of `MemoryShared`. Memory of another library is of this class; using it
    needs its context to be current.
    """

    _kind = "device"


_CLASSES: dict[str, type[MemoryShared | MemoryHost | MemoryDevice]]
_CLASSES = {"mapped": MemoryShared, "host": MemoryHost, "device": MemoryDevice}


def as_memory(obj: Any) -> MemoryShared | MemoryHost | MemoryDevice:
    """Share the memory of an object, as for `MemoryShared`, by the class for its kind.

    Memory of another library is `MemoryDevice`. `InvalidArgumentError` if the object has no device memory, or its
    interface is malformed.
    """
    view, _ = _bytes_of(obj)
    return _CLASSES[Memory._over(view).kind](obj)


def _bytes_of(obj: Any) -> tuple[MemoryView, _interfaces.Ready]:
    """Return the device bytes of an object, and the streams on which they are ready, beside the bound one."""
    protocol = None if isinstance(obj, Memory) else getattr(obj, "__vkgdr_memory__", None)
    if protocol is None:
        try:
            return _interfaces.device_view_of(obj)
        except TypeError as error:
            raise InvalidArgumentError(f"malformed interface of {type(obj).__name__}: {error}") from error
    try:
        handle, offset, size = protocol
        return RawMemory.from_handle(handle)._view.part(offset, size, False), ()
    except InvalidArgumentError:
        raise
    except (TypeError, ValueError, OverflowError):
        text = f"__vkgdr_memory__ must be a handle, an offset and a size, not {protocol!r}"
        raise InvalidArgumentError(text) from None
