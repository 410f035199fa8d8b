"""A memory object's stream binding and its release."""

from __future__ import annotations

from vkgdr import _vkgdr
from vkgdr._errors import InvalidArgumentError
from vkgdr._host import HostViews
from vkgdr.stream import handle_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

    from vkgdr.stream import Event
    from vkgdr.typing import StreamLike


class Lifetime(HostViews):
    """A memory object's stream binding and its release."""

    def bind_to_stream(self, stream: StreamLike) -> None:
        """Bind the memory to a stream.

        `map` and copies then wait for this stream, `free` returns at once and the memory is released after the stream's
        earlier work, and the CUDA Array Interface and DLPack name it. The new stream waits for the one bound before.
        The memory keeps the stream object alive; for a number, the caller must keep the stream alive.

        Raises
        ------
        InvalidArgumentError
            The stream belongs to another context, or is the per-thread default stream.
        """
        handle, bound = handle_of(stream), self._block.bound_stream
        if bound is not None and bound != handle:
            # Order the new stream after the work of the old one.
            _vkgdr.stream_wait(self._block, handle, _vkgdr.record(self._block, bound, []))
        self._block.bind_stream(handle, stream)

    def unbind_stream(self) -> None:
        """Wait for the bound stream and remove the binding."""
        self._block.unbind_stream()

    def record_stream(self, stream: StreamLike) -> None:
        """Record that another stream uses the memory: its release waits for that use."""
        self._block.record_stream(handle_of(stream))

    def free(self, *, force: bool = False) -> None:
        """Free the memory. A second call does nothing.

        Every method and attribute then raises `FreedError`. While arrays or other views exist (`pending_views`), the
        pages stay until the last view is dropped. Waits for the work of the memory's context; if the memory is bound to
        a stream, does not wait, and the pages are released after that stream's work.

        Parameters
        ----------
        force : bool, optional
            Release the pages although views exist, as vkgdr 0.1 does: using a view then crashes.

        Raises
        ------
        VkgdrError
            The first error of the drivers. The remaining steps are still done.
        """
        self._block.free(force)
        self._owner = None
        if self._parent is not None:
            self._parent = None

    def free_async(self, stream: StreamLike | None = None) -> Event:
        """Free the memory in stream order: after the work submitted to a stream before this call.

        Parameters
        ----------
        stream : object, optional
            The bound stream by default.

        Returns
        -------
        vkgdr.stream.Event
            Complete when that work is done. The next allocation, free or `Vkgdr.collect` then releases the pages.

        Raises
        ------
        InvalidArgumentError
            No stream was passed, and none is bound.
        """
        if stream is not None:
            self.bind_to_stream(stream)
        bound = self._block.bound_stream
        if bound is None:
            raise InvalidArgumentError("no implicit stream available: bind the memory to one, or pass one")
        event = self._block.free_async(bound)
        self.free()
        return event

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.free()
