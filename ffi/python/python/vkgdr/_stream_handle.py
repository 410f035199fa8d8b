"""The ``CUstream`` of a stream of any library."""

from __future__ import annotations

import operator

from vkgdr._errors import InvalidArgumentError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self

    from vkgdr.typing import StreamLike

# The legacy default stream has two handles: null, and CU_STREAM_LEGACY of cuda.h.
NULL_STREAM = 0
LEGACY_STREAM = 1
# CU_STREAM_PER_THREAD: the last handle that is not an address.
PER_THREAD_STREAM = 2


class StreamNumber(int):
    """The ``CUstream`` of a stream as a number that keeps the stream's object alive, and lets memory keep it."""

    _keeper: object

    def __new__(cls, handle: int, keeper: object) -> Self:
        """Create the number."""
        self = super().__new__(cls, handle)
        self._keeper = keeper
        return self

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)


def handle_of(stream: StreamLike) -> int:
    """Return the ``CUstream`` of a stream of any library as a number.

    Raises
    ------
    TypeError
        `stream` is not a stream.
    InvalidArgumentError
        The version of ``__cuda_stream__`` is unsupported, the stream was closed, or the number is not an address.
    """
    handle = _raw_handle(stream)
    if not 0 <= handle < 1 << 64:
        raise InvalidArgumentError(f"{handle} is not a CUDA stream")
    return handle


def _raw_handle(stream: Any) -> int:
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        # In early versions of the protocol an attribute, not a method.
        version, handle = protocol() if callable(protocol) else protocol
        if version != 0:
            raise InvalidArgumentError(f"unsupported version {version} of __cuda_stream__: expected 0")
        if handle is None:
            raise InvalidArgumentError(f"the stream {stream!r} was closed")
        return int(handle)
    for name in ("handle", "cuda_stream", "ptr"):
        value = getattr(stream, name, None)
        if value is not None and hasattr(value, "value"):
            # numba's handle is a ctypes pointer. The default stream is a null pointer, whose value is None.
            value = value.value or 0
        if isinstance(value, int):
            return value
    if hasattr(type(stream), "__index__") and not isinstance(stream, bool):
        # Last, after the protocols: an integer of NumPy, for example.
        return operator.index(stream)
    raise TypeError(f"{stream!r} is not a CUDA stream: neither an object with __cuda_stream__ nor a number")
