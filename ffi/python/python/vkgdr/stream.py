"""Streams and events.

`stream` creates a `Stream`, and `event` an event that the caller records, with numba's interface.

Every ``stream`` parameter takes a stream of any library: an object with ``__cuda_stream__``, a stream of pycuda, numba,
CuPy or PyTorch, or the ``CUstream`` as a number. 0 and 1 are the legacy default stream; 2 is the per-thread default
stream, to which memory cannot be bound. The stream must belong to the memory's context. Memory keeps the streams alive
to which it is bound, and those of copies that do not block. A caller that passes a number must keep that stream alive.
"""

from __future__ import annotations

from vkgdr._stream_handle import handle_of
from vkgdr._vkgdr import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vkgdr._streams import Stream as Stream
    from vkgdr._streams import TimedEvent as TimedEvent
    from vkgdr._streams import default_stream as default_stream
    from vkgdr._streams import event as event
    from vkgdr._streams import external_stream as external_stream
    from vkgdr._streams import legacy_default_stream as legacy_default_stream
    from vkgdr._streams import per_thread_default_stream as per_thread_default_stream
    from vkgdr._streams import stream as stream

__all__ = [
    "Event",
    "Stream",
    "TimedEvent",
    "default_stream",
    "event",
    "external_stream",
    "handle_of",
    "legacy_default_stream",
    "per_thread_default_stream",
    "stream",
]


def __getattr__(name: str) -> object:
    # Loaded on first use: most programs have streams of another library.
    from importlib import import_module

    if name in __all__:
        value: object = getattr(import_module("vkgdr._streams"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'vkgdr.stream' has no attribute {name!r}")
