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

from vkgdr._copies import device_view_of
from vkgdr._device import Vkgdr, default_owner
from vkgdr._errors import AllocationError, InvalidArgumentError, OutOfRangeError, in_bytes
from vkgdr._memory import Memory, MemoryObject
from vkgdr._vkgdr import MemoryView, find_id, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pickle
    from collections.abc import Iterable
    from typing import Any, ClassVar, Self, SupportsIndex

    from typing_extensions import Buffer

    from vkgdr.typing import Kind, StreamLike

__all__ = ["AllocationError", "MemoryDevice", "MemoryHost", "MemoryShared", "as_memory"]


def __dir__() -> list[str]:
    return __all__


_ENUM = {"device": 1, "shared": 2, "host": 3}


class _Memory(MemoryObject):
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
        size = _number(nbytes_or_obj)
        if size is not None:
            if size <= 0:
                text = f"Number of bytes of request allocation must be positive. It was {size}"
                raise InvalidArgumentError(text)
            self._allocate(size, alignment, owner)
        else:
            view, ready = _bytes_of(nbytes_or_obj)
            found = Memory._over(view)
            if found.kind == self._kind:
                self._share(nbytes_or_obj, view, ready)
            elif copy:
                if owner is None:
                    owner = found.owner
                _wait(view, ready)
                self._allocate(len(found), alignment, owner)
                self.copy_from_device(found)
            else:
                raise InvalidArgumentError(
                    f"the memory of this {type(nbytes_or_obj).__name__} is of kind {found.kind!r}, not {self._kind!r}. "
                    "Zero-copy operation is not possible with copy=False: use copy=True, or as_memory"
                )
        if queue is not None:
            self.bind_to_stream(queue)

    def _allocate(self, size: SupportsIndex, alignment: int, owner: Vkgdr | None) -> None:
        if owner is None:
            owner = default_owner()
        self._view = MemoryView.allocate(owner, size, self._kind, max(alignment, 0), False, False)

    def _share(self, obj: Any, view: MemoryView, ready: tuple[int, ...]) -> None:
        if isinstance(obj, MemoryObject):
            self._view = view.part(0, None, False, False)
            return
        # Waits here: the other library's stream may belong to another context.
        _wait(view, ready)
        self._view = view
        self._reference = obj

    @classmethod
    def _shared(cls, obj: Any, view: MemoryView, ready: tuple[int, ...]) -> Self:
        self = cls.__new__(cls)
        self._share(obj, view, ready)
        return self

    @property
    def reference_obj(self) -> object:
        """The object of another library whose memory this one shares; None for memory of this package."""
        return self._reference

    @property
    def _pointer(self) -> int:
        return self.device_ptr

    def get_mem_type(self, owner: Vkgdr | None = None) -> str:
        """Return the kind under dpctl's name.

        Parameters
        ----------
        owner : Vkgdr, optional
            The GPU from which the memory is viewed; the memory's own by default.

        Returns
        -------
        str
            "shared", "host" or "device"; "unknown" if the memory is on another GPU.

        Raises
        ------
        TypeError
            `owner` is not a `Vkgdr`.
        """
        if owner is not None:
            if not isinstance(owner, Vkgdr):
                raise TypeError(f"owner must be a vkgdr.Vkgdr, not {type(owner).__name__}")
            if owner.device != self.device:
                return "unknown"
        return super().get_mem_type()

    get_usm_type = get_mem_type

    def get_usm_type_enum(self, owner: Vkgdr | None = None) -> int:
        """Return the kind as SYCL's number: 1 for "device", 2 for "shared", 3 for "host", 0 for "unknown".

        The parameter and the errors are those of `get_mem_type`.
        """
        return _ENUM.get(self.get_mem_type(owner), 0)

    def free(self, *, force: bool = False) -> None:
        """Free the memory, like `MemoryObject.free`. For shared memory, releases only this object's use of it."""
        super().free(force=force)
        self._reference = None

    def _rebuild(self, contents: bytes | pickle.PickleBuffer) -> tuple[Any, ...]:
        return _to_memory, (contents, self.get_mem_type())


class MemoryShared(_Memory):
    """GPU memory that the CPU reads and writes through the PCIe BAR.

    Parameters
    ----------
    nbytes_or_obj : int or object
        The number of bytes to allocate, at least 1, with undefined contents. Or an object to share memory with, without
        a copy: a memory object of this package, or an object in C order with ``__vkgdr_memory__``,
        ``__cuda_array_interface__`` or DLPack on a CUDA device. The object is kept alive. Waits for the work of the
        stream in its interface.
    alignment : int, optional
        The alignment of both addresses of an allocation, a power of two. 0 or less for the drivers' alignment.
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
        The number of bytes is below 1; the object has no device memory or a malformed interface; or its memory is of
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


_CLASSES: dict[str, type[_Memory]] = {"mapped": MemoryShared, "host": MemoryHost, "device": MemoryDevice}


def as_memory(obj: Any) -> MemoryShared | MemoryHost | MemoryDevice:
    """Share the memory of an object of any kind.

    Parameters
    ----------
    obj : object
        As for `MemoryShared`.

    Returns
    -------
    MemoryShared, MemoryHost or MemoryDevice
        The class for the kind of the object's memory; `MemoryDevice` for memory of another library.

    Raises
    ------
    InvalidArgumentError
        The object has no device memory, or its interface is malformed.
    """
    view, ready = _bytes_of(obj)
    memory = _CLASSES[Memory._over(view).kind]._shared(obj, view, ready)
    assert isinstance(memory, MemoryShared | MemoryHost | MemoryDevice)
    return memory


def _number(value: Any) -> int | None:
    """Return a number of bytes; None for an object, such as a pycuda pointer, which has ``__index__`` too."""
    return int(value) if isinstance(value, numbers.Integral) else None


def _bytes_of(obj: Any) -> tuple[MemoryView, tuple[int, ...]]:
    """Return the device bytes of an object, and the streams whose work must finish before they are used."""
    if not isinstance(obj, MemoryObject):
        protocol = getattr(obj, "__vkgdr_memory__", None)
        if protocol is not None:
            return _from_protocol(protocol), ()
    try:
        return device_view_of(obj)
    except TypeError as error:
        raise InvalidArgumentError(f"malformed interface of {type(obj).__name__}: {error}") from error


def _wait(view: MemoryView, ready: Iterable[int]) -> None:
    """Wait for streams of any context."""
    for stream in ready:
        record(view, stream).synchronize()


def _from_protocol(protocol: Any) -> MemoryView:
    import operator

    try:
        handle, offset, size = map(operator.index, protocol)
    except (TypeError, ValueError):
        text = f"__vkgdr_memory__ must be a handle, an offset and a size, not {protocol!r}"
        raise InvalidArgumentError(text) from None
    whole = find_id(handle) if 0 <= handle < 1 << 64 else None
    if whole is None:
        raise InvalidArgumentError(f"no live memory has the handle {handle}")
    if offset < 0 or size < 0 or offset + size > whole.nbytes:
        text = f"the range of {in_bytes(size)} at {offset} exceeds the memory's {in_bytes(whole.nbytes)}"
        raise OutOfRangeError(text)
    return whole.part(offset, size, False, False)


def _to_memory(contents: Buffer, kind: str) -> _Memory:
    """Allocate memory of the default handle with these contents, for pickle."""
    cls = _CLASSES.get({"shared": "mapped"}.get(kind, kind))
    if cls is None:
        raise InvalidArgumentError(f"invalid kind {kind!r}: expected 'shared', 'host' or 'device'")
    memory = cls(memoryview(contents).nbytes)
    memory.copy_from_host(contents)
    return memory
