"""A memory object's streams, and its end."""

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
    """A memory object's streams, and its end."""

    def bind_to_stream(self, stream: StreamLike) -> None:
        """Bind the memory to a stream.

        `map` and the copies then wait for it, a free returns at once with the memory going after what the stream was
        given before, and the CUDA Array Interface and DLPack name it. A stream that the memory was bound to before is
        waited for by the new one. The stream object is kept alive; whoever passes a number keeps that stream alive.

        Raises
        ------
        InvalidArgumentError
            The stream belongs to another context, or is the per-thread default stream.
        """
        handle, bound = handle_of(stream), self._block.bound_stream
        if bound is not None and bound != handle:
            # The new stream comes after the old one's work.
            _vkgdr.stream_wait(self._block, handle, _vkgdr.record(self._block, bound, []))
        self._block.bind_stream(handle, stream)

    def unbind_stream(self) -> None:
        """Wait for the bound stream, and forget it."""
        self._block.unbind_stream()

    def record_stream(self, stream: StreamLike) -> None:
        """Note that another stream uses the memory, so that it is not freed before that has finished."""
        self._block.record_stream(handle_of(stream))

    def free(self, *, force: bool = False) -> None:
        """Free the memory. A second call does nothing.

        From then on every method and attribute raises `FreedError`. While arrays or other views live, the pages stay
        until the last of them goes (`pending_views`). Waits for the work of the memory's context, or, if the memory is
        bound to a stream, leaves the pages until that stream's work is done.

        Parameters
        ----------
        force : bool, optional
            Take the pages away from under the views, as vkgdr 0.1 does: using one is a crash.

        Raises
        ------
        VkgdrError
            The drivers' first error. Nothing leaks.
        """
        self._block.free(force)
        self._owner = None
        if self._parent is not None:
            self._parent = None

    def free_async(self, stream: StreamLike | None = None) -> Event:
        """Free the memory once a stream has done the work that it was given before this call.

        Parameters
        ----------
        stream : object, optional
            The bound stream by default.

        Returns
        -------
        vkgdr.stream.Event
            Complete when that work is done. The pages go at the next allocation, free or `Vkgdr.collect` after that.

        Raises
        ------
        InvalidArgumentError
            No stream was given, and none is bound.
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
