"""Memory shared between processes, over a Unix socket.

The receiving process sees the same bytes, on the host and on the device. Programs in Rust (``vkgdr::ipc``) and C
(``vkgdr_memory_send``, ``vkgdr_memory_receive``) have the same protocol.

Adaptors offer memory instead: `offer` gives 64 bytes, the size of a CUDA IPC handle. Threads of that process send the
memory to each process that takes it. An offer can be taken repeatedly, by any process of the same user and network
namespace, while the memory lives and its process runs.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from vkgdr import _vkgdr
from vkgdr._errors import InvalidArgumentError, VkgdrError
from vkgdr._memory import Memory, RawMemory
from vkgdr._vkgdr import MemoryView, Vkgdr

T = TypeVar("T")

__all__ = ["recv", "send"]
__dir__ = __all__.copy


def send(connection: socket.socket, memory: Memory) -> None:
    """Send memory to the process at the other end of a Unix socket.

    It orders nothing: flush, and wait for the device's work, before. The memory may be freed here afterwards: the
    receiver keeps the pages alive.

    Parameters
    ----------
    connection : socket.socket
        A connected socket of family ``AF_UNIX`` and type ``SOCK_STREAM`` or ``SOCK_SEQPACKET``; its timeout counts. For
        ``multiprocessing``, create a pair with ``socket.socketpair()``.
    memory : Memory
        Whole memory, neither a slice nor `Memory.from_capsule` of one.

    Raises
    ------
    VkgdrError
        The drivers cannot export the memory, or it is a part of an allocation (`InvalidArgumentError`).
    OSError
        The socket is of another family or type, or is closed; `TimeoutError` and `BlockingIOError` as from the socket's
        own methods.
    """
    _check(connection)
    if not isinstance(memory, Memory):
        raise TypeError(f"a {type(memory).__name__} cannot be sent: send a vkgdr.Memory")
    view = memory._view
    _when_ready(connection, select.POLLOUT, lambda: view.send(connection))


def recv(connection: socket.socket, owner: Vkgdr, *, any_user: bool = False) -> Memory:
    """Receive memory from another process.

    What does not fit is refused before a driver sees it. That is messages of another version, memory of another GPU,
    driver or memory type, impossible sizes, and memory from a process of another user.

    Parameters
    ----------
    connection : socket.socket
        As for `send`, and so are the socket's errors; `EOFError` if the other end closed it.
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
    """
    _check(connection)
    if not isinstance(owner, Vkgdr):
        raise TypeError(f"owner must be a vkgdr.Vkgdr, not {type(owner).__name__}")
    if not any_user:
        _vkgdr.check_user(connection)
    view = _when_ready(connection, select.POLLIN, lambda: MemoryView.receive(owner, connection))
    return Memory._over(view)


def _check(connection: object) -> None:
    if not isinstance(connection, socket.socket):
        raise TypeError(f"connection must be a socket.socket of family AF_UNIX, not {type(connection).__name__}")
    # On other families Linux drops descriptors silently.
    if connection.family != socket.AF_UNIX:
        raise OSError(f"connection must be of family AF_UNIX to send memory, not {connection.family.name}")
    if connection.type not in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        raise OSError(f"connection must be of type SOCK_STREAM or SOCK_SEQPACKET, not {connection.type.name}")
    if connection.fileno() < 0:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def _when_ready(connection: socket.socket, event: int, call: Callable[[], T]) -> T:
    """Return the result of `call`, which never waits, once the socket is ready for it, within the socket's timeout.

    The wait runs signal handlers.
    """
    timeout = connection.gettimeout()
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        try:
            return call()
        except BlockingIOError:
            if timeout == 0.0:
                raise
        if not _is_ready(connection, event, deadline):
            raise TimeoutError("timed out")


def _is_ready(connection: socket.socket, event: int, deadline: float | None) -> bool:
    """Wait until the socket is ready, and return whether it is; a deadline in the past does not wait."""
    # Another thread may have closed it since the check.
    _check(connection)
    poll = select.poll()
    poll.register(connection.fileno(), event)
    # `poll` takes 24 days at most.
    left = None if deadline is None else min(max(0, math.ceil((deadline - time.monotonic()) * 1000)), 0x7FFFFFFF)
    return bool(poll.poll(left))


# ---- offers ---------------------------------------------------------------------------------------------------------

_SIZE = 64
# A mark, the socket's name, and the allocation's id.
_LAYOUT = struct.Struct("<16s16sQ")
_MARK = b"vkgdr offer 1\0\0\0"
# Seconds that a process waits for the other one.
_TIMEOUT = 10.0
# Seconds until a failed accept is tried again.
_PAUSE = 0.5

_lock = threading.Lock()
# The name of the socket that listens, and the socket.
_listening: tuple[bytes, socket.socket] | None = None


def offer(handle: int) -> bytes:
    """Offer an allocation by its `Memory.handle`, and return the bytes for `take`."""
    # An error of the drivers is raised here, and not in the other process. A forked child gets no further.
    os.close(RawMemory.from_handle(handle).export_fd())
    return _LAYOUT.pack(_MARK, _name(), handle).ljust(_SIZE, b"\0")


def is_offer(data: bytes) -> bool:
    """Return whether these bytes are an offer."""
    return len(data) == _SIZE and data.startswith(_MARK)


def take(data: bytes, owner: Vkgdr) -> Memory:
    """Import the memory of an offer of another process, on the same GPU."""
    if not is_offer(data):
        raise InvalidArgumentError("these bytes are no offer of memory of vkgdr")
    _, name, handle = _LAYOUT.unpack_from(data)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_TIMEOUT)
        try:
            _connect(connection, _address(name))
            connection.sendall(struct.pack("<Q", handle))
            return recv(connection, owner)
        except ConnectionRefusedError as error:
            text = "the process that offered the memory has ended, or is in another network namespace"
            raise InvalidArgumentError(text) from error
        except (ConnectionError, EOFError) as error:
            text = "the offered memory was freed, or its process could not send it: see its log"
            raise InvalidArgumentError(text) from error
        except (TimeoutError, BlockingIOError) as error:
            raise InvalidArgumentError("the process that offered the memory does not answer") from error


def _connect(connection: socket.socket, address: str) -> None:
    """Connect to a listening socket, also where many others do."""
    deadline = time.monotonic() + _TIMEOUT
    while True:
        try:
            return connection.connect(address)
        except BlockingIOError:
            # The queue of connections is full, which a timeout does not wait for.
            if time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _address(name: bytes) -> str:
    # In the abstract namespace: no file is left behind.
    return f"\0vkgdr-offers-{name.hex()}"


def _name() -> bytes:
    """Return the name of this process's socket; start to listen, once."""
    global _listening
    with _lock:
        if _listening is None:
            name = os.urandom(16)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(_address(name))
            # Not the program's default timeout.
            listener.settimeout(None)
            # The most that Linux allows by default.
            listener.listen(4096)
            threading.Thread(target=_serve, args=(listener,), name="vkgdr offers", daemon=True).start()
            _listening = name, listener
        return _listening[0]


def _leave_to_parent() -> None:
    """Close the socket in a forked child, where no thread answers: connections to it would wait in vain."""
    if _listening is not None:
        _listening[1].close()


os.register_at_fork(after_in_child=_leave_to_parent)


def _serve(listener: socket.socket) -> None:
    while True:
        connection = None
        try:
            connection, _ = listener.accept()
            # On a thread of its own: a peer that asks for nothing must not keep the others waiting.
            threading.Thread(target=_attend, args=(connection,), name="vkgdr offer", daemon=True).start()
        except (OSError, RuntimeError) as error:
            # Too many descriptors or threads: a passing state. A connection that was not accepted stays in the queue.
            if connection is not None:
                connection.close()
            _report(error)
            time.sleep(_PAUSE)


def _attend(connection: socket.socket) -> None:
    with connection:
        try:
            connection.settimeout(_TIMEOUT)
            _vkgdr.check_user(connection)
            request = connection.recv(8, socket.MSG_WAITALL)
            view = _vkgdr.find_id(struct.unpack("<Q", request)[0]) if len(request) == 8 else None
            if view is not None:
                view.send(connection)
        except (OSError, VkgdrError) as error:
            _report(error)
        finally:
            # A child that was forked meanwhile has the connection open, too.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def _report(error: Exception) -> None:
    # A handler that raises must not end the thread: one that opens its file lacks the same descriptors.
    with contextlib.suppress(Exception):
        logging.getLogger("vkgdr").warning("offered memory was not sent: %s", error)
