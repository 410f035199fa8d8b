"""Streams and events of this package, with numba's interface; `vkgdr.stream` has them."""

from __future__ import annotations

import contextlib
import ctypes
import threading

from vkgdr import _driver, _vkgdr
from vkgdr._stream_handle import LEGACY_STREAM, NULL_STREAM, PER_THREAD_STREAM, handle_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator
    from typing import Any, NoReturn, Self

    from vkgdr.typing import StreamLike

__all__ = [
    "Stream",
    "TimedEvent",
    "default_stream",
    "event",
    "external_stream",
    "legacy_default_stream",
    "per_thread_default_stream",
    "stream",
]


class Stream(_vkgdr.CudaHandle):
    """A stream of the current CUDA context, from `stream` and its siblings; every ``stream=`` of this package takes it.

    One that was created here is destroyed with its last reference: CUDA finishes its work first.
    """

    @classmethod
    def _create(cls) -> Self:
        handle = ctypes.c_void_p()
        with _driver.current_context() as owner:
            _driver.call("cuStreamCreate", ctypes.byref(handle), 0)
            return cls(handle.value or 0, True, owner)

    def __int__(self) -> int:
        return self._handle

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the protocol's version, 0, and the ``CUstream``."""
        return 0, self._handle

    @property
    def _argument(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._handle)

    def synchronize(self) -> None:
        """Wait for the stream's work."""
        with _driver.stream_context(self._handle):
            _driver.call("cuStreamSynchronize", self._argument)

    @contextlib.contextmanager
    def auto_synchronize(self) -> Iterator[Self]:
        """Wait for the stream's work at the end of the ``with`` block, also when an exception leaves it."""
        try:
            yield self
        finally:
            self.synchronize()

    def add_callback(self, callback: Callable[[Stream, int, Any], object], arg: Any = None) -> None:
        """Call ``callback(stream, status, arg)`` on another thread once the stream's work so far is done.

        The callback may use CUDA, and does not block the stream. `status` is 0, or CUDA's error code. What it raises
        goes to ``threading.excepthook``.
        """
        if not callable(callback):
            raise TypeError(f"the callback must be callable, not {type(callback).__name__}")

        def then(error: _driver.VkgdrError | None) -> None:
            callback(self, 0 if error is None else error.cu_result or -1, arg)

        self._call_when_done(then)

    def _call_when_done(self, then: Callable[[_driver.VkgdrError | None], object]) -> None:
        """Call a function with the error of the stream's work, if any, on another thread once that is done."""
        # Emptied before the callback, which may be what the context waits for before it is destroyed.
        done = []
        is_default = self._handle <= PER_THREAD_STREAM
        # Without a current context, an event for a default stream keeps the one that it is made in alive.
        with contextlib.nullcontext() if is_default else _driver.stream_context(self._handle):
            done.append(event(timing=False))
        done[0].record(self)

        def wait() -> None:
            failure = None
            try:
                done.pop().synchronize()
            except _driver.VkgdrError as error:
                # The traceback has this function's variables: a cycle.
                failure = error.with_traceback(None)
            then(failure)

        threading.Thread(target=wait, name="vkgdr stream callback", daemon=True).start()

    def async_done(self) -> asyncio.Future[Self]:
        """Return an awaitable of the running event loop, which is done once the stream's work so far is done.

        Its result is the stream, or the error of its work.
        """
        import asyncio

        loop = asyncio.get_running_loop()
        future: asyncio.Future[Self] = loop.create_future()

        def resolve(error: _driver.VkgdrError | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(self)
            else:
                future.set_exception(error)

        def tell(error: _driver.VkgdrError | None) -> None:
            # The loop may have been closed meanwhile.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(resolve, error)

        self._call_when_done(tell)
        return future

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

    def __new__(cls, *, timing: bool = True) -> Self:
        """Create the event."""
        handle = ctypes.c_void_p()
        # CU_EVENT_DISABLE_TIMING
        flags = 0 if timing else 2
        with _driver.current_context() as owner:
            _driver.call("cuEventCreate", ctypes.byref(handle), flags)
            return super().__new__(cls, handle.value or 0, True, owner, True)

    @property
    def handle(self) -> int:
        """The ``CUevent``."""
        return self._handle

    @property
    def _argument(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.handle)

    def record(self, stream: StreamLike = 0) -> None:
        """Record the event on a stream, after its work so far; by default on the default stream."""
        handle = handle_of(stream)
        with _driver.stream_context(handle):
            _driver.call("cuEventRecord", self._argument, ctypes.c_void_p(handle))

    def query(self) -> bool:
        """Return whether the work before the event is done; True if it was never recorded."""
        return _driver.query("cuEventQuery", self.handle)

    def synchronize(self) -> None:
        """Wait on this thread for the work before the event."""
        _driver.call("cuEventSynchronize", self._argument)

    def wait(self, stream: StreamLike = 0) -> None:
        """Make a stream's later work wait for the event."""
        handle = handle_of(stream)
        with _driver.stream_context(handle):
            _driver.call("cuStreamWaitEvent", ctypes.c_void_p(handle), self._argument, 0)

    def elapsed_time(self, end: TimedEvent) -> float:
        """Return the milliseconds from this event to a later one; both must be complete."""
        if not isinstance(end, TimedEvent):
            raise TypeError(f"end must be a vkgdr.stream.TimedEvent, not {type(end).__name__}")
        milliseconds = ctypes.c_float()
        _driver.call("cuEventElapsedTime", ctypes.byref(milliseconds), self._argument, end._argument)
        return milliseconds.value

    def __reduce__(self) -> NoReturn:
        raise TypeError("an event cannot be copied or pickled")

    def __repr__(self) -> str:
        return f"<vkgdr.stream.TimedEvent: {self.handle:#x}>"


# Messages show the public name, not that of the private module.
Stream.__module__ = TimedEvent.__module__ = "vkgdr.stream"


def stream() -> Stream:
    """Create a stream in the current context, or in the primary context of device 0 if none is current.

    Like numba's, it waits for the legacy default stream's work, and that waits for its.
    """
    return Stream._create()


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


def event(timing: bool = True) -> TimedEvent:  # noqa: FBT001, FBT002 - numba's signature
    """Create an event in the current context, as `stream`; without `timing` it is cheaper, and has no times."""
    return TimedEvent(timing=timing)
