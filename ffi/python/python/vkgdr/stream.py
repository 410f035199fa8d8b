"""Streams and events.

`stream` creates a `Stream`, and `event` an event that the caller records, with numba's interface.

Every ``stream`` parameter takes a stream of any library: an object with ``__cuda_stream__``, one of pycuda, numba, CuPy
or PyTorch, or a number, the ``CUstream``. 0 and 1 are the legacy default stream; 2 is the per-thread default stream, to
which memory cannot be bound. The stream must belong to the memory's context. Memory keeps the streams alive to which it
is bound, and those of copies that do not block. A caller that passes a number must keep that stream alive.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any, Self

from vkgdr import _vkgdr
from vkgdr._errors import VkgdrError
from vkgdr._interfaces import LEGACY_STREAM, NULL_STREAM, PER_THREAD_STREAM, handle_of
from vkgdr._memory import default_owner
from vkgdr._vkgdr import Event, Vkgdr
from vkgdr.typing import StreamLike

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio

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
__dir__ = __all__.copy


# ---- the driver's functions that the extension module lacks ---------------------------------------------------------

_NOT_INITIALIZED, _NOT_READY = 3, 600
_REMEDIES = {
    201: "no CUDA context is current",
    712: "the pages are page-locked already",
}


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def call(function: str, *arguments: object, allowed: int = 0) -> int:
    """Call a function of the driver; raise `VkgdrError` if its code is not `allowed`, and in a forked child."""
    # Loads the driver in the extension module too, which notices forks from then on; its error names the remedy.
    _vkgdr.driver_version()
    library = _library()
    code: int = getattr(library, function)(*arguments)
    if code not in (0, allowed):
        name = ctypes.c_char_p()
        library.cuGetErrorName(code, ctypes.byref(name))
        operation = function.removesuffix("_v2")
        remedy = f": {_REMEDIES[code]}" if code in _REMEDIES else ""
        error = VkgdrError(f"{operation} failed ({(name.value or b'unknown CUDA error').decode()}){remedy}")
        error.operation, error.cu_result = operation, code
        raise error
    return code


@contextlib.contextmanager
def current_context(owner: Vkgdr | None = None, stream: int = NULL_STREAM) -> Iterator[Vkgdr | None]:
    """Make the context of a stream current within the block. For a default stream, that is the current context.

    Without one it is the primary context of a handle, by default that of device 0. Gives this handle where it is used,
    which keeps the context alive for what is made in the block.
    """
    context, before = ctypes.c_void_p(), ctypes.c_void_p()
    if stream > PER_THREAD_STREAM:
        call("cuStreamGetCtx", ctypes.c_void_p(stream), ctypes.byref(context))
    call("cuCtxGetCurrent", ctypes.byref(before), allowed=_NOT_INITIALIZED)
    if before.value and context.value in (None, before.value):
        yield owner if context.value else None
        return
    if not context.value:
        owner = owner or default_owner()
        context.value = owner._own_context
    restore = _library().cuCtxSetCurrent
    try:
        # In here, since a signal handler may raise as soon as it has returned.
        call("cuCtxSetCurrent", context)
        yield owner
    finally:
        # One call of C, at once: a handler that raises before it would leave the context current.
        restore(before)


# ---- streams and events ---------------------------------------------------------------------------------------------


class Stream(_vkgdr.CudaHandle):
    """A stream of the current CUDA context, from `stream` and its siblings; every ``stream=`` of this package takes it.

    One that was created here is destroyed with its last reference: CUDA finishes its work first.
    """

    def __int__(self) -> int:
        return self._handle

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the protocol's version, 0, and the ``CUstream``."""
        return 0, self._handle

    def synchronize(self) -> None:
        """Wait for the stream's work."""
        with current_context(stream=self._handle):
            call("cuStreamSynchronize", ctypes.c_void_p(self._handle))

    @contextlib.contextmanager
    def auto_synchronize(self) -> Iterator[Self]:
        """Wait for the stream's work at the end of the ``with`` block, also when an exception leaves it."""
        try:
            yield self
        finally:
            self.synchronize()

    def add_callback(self, callback: Callable[[Stream, int, Any], object], arg: Any = None) -> None:
        """Call ``callback(stream, status, arg)`` on another thread once the stream's work so far is done.

        No context is current there. The callback does not block the stream. `status` is 0, or CUDA's error code. What
        it raises goes to ``threading.excepthook``.
        """
        if not callable(callback):
            raise TypeError(f"the callback must be callable, not {type(callback).__name__}")
        self._call_when_done(lambda error: callback(self, 0 if error is None else error.cu_result or -1, arg))

    def _call_when_done(self, then: Callable[[VkgdrError | None], object]) -> None:
        """Call a function with the error of the stream's work, if any, on another thread once that is done."""
        # Emptied before the callback, which may be what the context waits for before it is destroyed.
        done = [TimedEvent(timing=False, stream=self._handle)]
        done[0].record(self)

        def wait() -> None:
            failure = None
            try:
                done.pop().synchronize()
            except VkgdrError as error:
                # The traceback has this function's variables: a cycle.
                failure = error.with_traceback(None)
            then(failure)

        threading.Thread(target=wait, name="vkgdr stream callback", daemon=True).start()

    def async_done(self) -> asyncio.Future[Self]:
        """Return an awaitable of the running event loop, which is done once the stream's work so far is done.

        Its result is the stream, or the error of its work.
        """
        import asyncio
        from concurrent.futures import Future

        loop, done = asyncio.get_running_loop(), Future[Any]()
        # Cancelling the awaitable does not cancel the stream's work.
        done.set_running_or_notify_cancel()
        self._call_when_done(lambda error: done.set_exception(error) if error else done.set_result(self))
        return asyncio.wrap_future(done, loop=loop)

    def __reduce__(self) -> tuple[type[Stream], tuple[int]]:
        if self._handle > PER_THREAD_STREAM:
            raise TypeError("a stream cannot be copied or pickled")
        return type(self), (self._handle,)

    def __repr__(self) -> str:
        kinds = {NULL_STREAM: "default", LEGACY_STREAM: "legacy default", PER_THREAD_STREAM: "per-thread default"}
        kind = kinds.get(self._handle, "created" if self._owned else "external")
        return f"<vkgdr.stream.Stream: {kind}, {self._handle:#x}>"


class TimedEvent(_vkgdr.CudaHandle):
    """An event that the caller records, from `event`; with `timing`, two of them give the time between.

    It is destroyed with its last reference.
    """

    def __new__(cls, *, timing: bool = True, stream: StreamLike = NULL_STREAM) -> Self:
        """Create the event, in the context of a stream."""
        handle = ctypes.c_void_p()
        # CU_EVENT_BLOCKING_SYNC, without which a wait keeps a CPU busy, and CU_EVENT_DISABLE_TIMING.
        flags = 0 if timing else 3
        with current_context(stream=handle_of(stream)) as owner:
            call("cuEventCreate", ctypes.byref(handle), flags)
            return super().__new__(cls, handle.value or 0, True, owner, True)

    @property
    def handle(self) -> int:
        """The ``CUevent``."""
        return self._handle

    def record(self, stream: StreamLike = 0) -> None:
        """Record the event on a stream, after its work so far; by default on the default stream."""
        handle = handle_of(stream)
        with current_context(stream=handle):
            call("cuEventRecord", ctypes.c_void_p(self._handle), ctypes.c_void_p(handle))

    def query(self) -> bool:
        """Return whether the work before the event is done; True if it was never recorded."""
        return call("cuEventQuery", ctypes.c_void_p(self._handle), allowed=_NOT_READY) != _NOT_READY

    def synchronize(self) -> None:
        """Wait on this thread for the work before the event."""
        call("cuEventSynchronize", ctypes.c_void_p(self._handle))

    def wait(self, stream: StreamLike = 0) -> None:
        """Make a stream's later work wait for the event."""
        handle = handle_of(stream)
        with current_context(stream=handle):
            call("cuStreamWaitEvent", ctypes.c_void_p(handle), ctypes.c_void_p(self._handle), 0)

    def elapsed_time(self, end: TimedEvent) -> float:
        """Return the milliseconds from this event to a later one; both must be complete."""
        if not isinstance(end, TimedEvent):
            raise TypeError(f"end must be a vkgdr.stream.TimedEvent, not {type(end).__name__}")
        milliseconds, events = ctypes.c_float(), (ctypes.c_void_p(self._handle), ctypes.c_void_p(end._handle))
        call("cuEventElapsedTime", ctypes.byref(milliseconds), *events)
        return milliseconds.value

    def __repr__(self) -> str:
        return f"<vkgdr.stream.TimedEvent: {self.handle:#x}>"


def stream() -> Stream:
    """Create a stream in the current context, or in the primary context of device 0 if none is current.

    Like numba's, it waits for the legacy default stream's work, and that waits for its.
    """
    handle = ctypes.c_void_p()
    with current_context() as owner:
        call("cuStreamCreate", ctypes.byref(handle), 0)
        return Stream(handle.value or 0, True, owner)


def default_stream() -> Stream:
    """Return the default stream: the legacy default stream, with the handle 0."""
    return Stream(NULL_STREAM)


def legacy_default_stream() -> Stream:
    """Return the legacy default stream."""
    return Stream(LEGACY_STREAM)


def per_thread_default_stream() -> Stream:
    """Return the per-thread default stream, to which memory cannot be bound."""
    return Stream(PER_THREAD_STREAM)


def external_stream(ptr: int) -> Stream:
    """Return a stream of another library by its ``CUstream``; the caller keeps it alive."""
    if not isinstance(ptr, int) or isinstance(ptr, bool):
        raise TypeError("ptr for external stream must be an int")
    return Stream(handle_of(ptr))


def event(timing: bool = True) -> TimedEvent:
    """Create an event in the current context, as `stream`; without `timing` it is cheaper, and has no times."""
    return TimedEvent(timing=timing)
