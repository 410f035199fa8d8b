"""Memory shared between processes, over a Unix socket.

The receiving process sees the same bytes, on the host and on the device. Programs in Rust (``vkgdr::ipc``) and C
(``vkgdr_memory_send``, ``vkgdr_memory_receive``) have the same protocol.
"""

from __future__ import annotations

import errno
import math
import os
import select
import socket
import time

from vkgdr._device import Vkgdr
from vkgdr._memory import Memory
from vkgdr._object import Region
from vkgdr._vkgdr import MemoryView

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

__all__ = ["recv", "send"]


def send(connection: socket.socket, memory: Memory) -> None:
    """Send memory to the process at the other end of a Unix socket.

    It orders nothing: flush, and wait for the device's work, before.

    Parameters
    ----------
    connection : socket.socket
        A connected socket of family ``AF_UNIX`` and type ``SOCK_STREAM`` or ``SOCK_SEQPACKET``; its timeout counts. For
        ``multiprocessing``, create a pair with ``socket.socketpair()``.
    memory : Memory
        Whole memory, neither a region nor `Memory.from_capsule` of one. It may be freed here afterwards: the receiver
        keeps the pages alive.

    Raises
    ------
    VkgdrError
        The drivers cannot export the memory.
    InvalidArgumentError
        The memory is a part of an allocation.
    OSError
        The socket is of another family or type, or is closed; `TimeoutError` and `BlockingIOError` as from the socket's
        own methods.
    """
    _check(connection)
    view = _whole(memory)._view
    _when_ready(connection, select.POLLOUT, lambda: view.send(connection))


def recv(connection: socket.socket, owner: Vkgdr, *, any_user: bool = False) -> Memory:
    """Receive memory from another process.

    What does not fit is refused before a driver sees it: messages of another version, memory of another GPU, driver or
    memory type, impossible sizes, and memory from a process of another user.

    Parameters
    ----------
    connection : socket.socket
        As for `send`.
    owner : Vkgdr
        The same GPU as the sender's, opened with the same flags. The context rules are those of `Memory`.
    any_user : bool, optional
        Whether to receive from a process of any user. **It must be trusted**: with a descriptor that its message
        describes wrongly, the drivers' behaviour is undefined.

    Raises
    ------
    VkgdrError
        The message does not fit, or the drivers cannot import the memory. Close the connection then: it may be in the
        midst of a message.
    EOFError
        The other end closed the connection.
    OSError
        As for `send`.
    """
    _check(connection)
    if not isinstance(owner, Vkgdr):
        raise TypeError(f"owner must be a vkgdr.Vkgdr, not {type(owner).__name__}")
    any_user = bool(any_user)
    return _when_ready(
        connection,
        select.POLLIN,
        lambda: Memory._over(MemoryView.receive(owner, connection, any_user)),
    )


def _check(connection: object) -> None:
    if not isinstance(connection, socket.socket):
        raise TypeError(f"connection must be a socket.socket of family AF_UNIX, not a {type(connection).__name__}")
    # On other families Linux drops descriptors silently.
    if connection.family != socket.AF_UNIX:
        raise OSError(f"connection must be of family AF_UNIX to send memory, not {connection.family.name}")
    if connection.type not in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        raise OSError(f"connection must be of type SOCK_STREAM or SOCK_SEQPACKET, not {connection.type.name}")
    _number_of(connection)


def _number_of(connection: socket.socket) -> int:
    number = connection.fileno()
    if number < 0:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    return number


def _whole(memory: object) -> Memory:
    if isinstance(memory, Memory):
        return memory
    if isinstance(memory, Region):
        raise TypeError(f"a region cannot be sent: send the whole memory, and the offset {memory.offset}")
    raise TypeError(f"a {type(memory).__name__} cannot be sent: send a vkgdr.Memory")


def _when_ready(connection: socket.socket, event: int, call: Callable[[], T]) -> T:
    """Return the result of `call` once the socket is ready for it, within the socket's timeout.

    The wait runs signal handlers, unlike one in `call`. A socket with a timeout does not block.
    """
    timeout = connection.gettimeout()
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        if timeout != 0.0:
            _wait(connection, event, deadline)
        try:
            return call()
        except BlockingIOError:
            # Another thread was faster.
            if timeout == 0.0:
                raise


def _wait(connection: socket.socket, event: int, deadline: float | None) -> None:
    poll = select.poll()
    # Another thread may have closed it since the check.
    poll.register(_number_of(connection), event)
    if deadline is None:
        poll.poll()
        return
    left = max(0, math.ceil((deadline - time.monotonic()) * 1000))
    if not poll.poll(left):
        raise TimeoutError("timed out")
