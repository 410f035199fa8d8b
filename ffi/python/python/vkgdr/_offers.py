"""Memory offered to other processes of this user, identified by a 64-byte token, the size of a CUDA IPC handle.

Threads of the offering process answer on a Unix socket and send the memory by `vkgdr.ipc`'s protocol. An offer can
be taken any number of times, by any process of the same user and network namespace, while the memory lives and its
process runs.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import struct
import threading
import time

from vkgdr import _vkgdr
from vkgdr._errors import InvalidArgumentError, VkgdrError
from vkgdr.ipc import recv

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vkgdr._device import Vkgdr
    from vkgdr._memory import Memory

__all__ = ["SIZE", "is_offer", "offer", "take"]

SIZE = 64
# A mark, the socket's name, and the allocation's id.
_LAYOUT = struct.Struct("<16s16sQ")
_MARK = b"vkgdr offer 1\0\0\0"
# Seconds that a process waits for the other one.
_TIMEOUT = 10.0
# Seconds until a failed accept is tried again.
_PAUSE = 0.5

_lock = threading.Lock()
# The process that listens, the name of its socket, and the socket.
_listening: tuple[int, bytes, socket.socket] | None = None


def offer(handle: int) -> bytes:
    """Offer an allocation by its `MemoryObject.handle`, and return the bytes for `take`.

    Raises
    ------
    vkgdr.VkgdrError
        The memory cannot be exported, for example that of a pool.
    """
    view = _vkgdr.find_id(handle)
    if view is None:
        raise InvalidArgumentError(f"no live memory has the handle {handle}")
    # An error of the drivers is raised here, and not in the other process.
    os.close(view.export_fd())
    return _LAYOUT.pack(_MARK, _name(), handle).ljust(SIZE, b"\0")


def is_offer(data: bytes) -> bool:
    """Return whether these bytes are an offer."""
    return len(data) == SIZE and data.startswith(_MARK)


def take(data: bytes, owner: Vkgdr) -> Memory:
    """Import the memory of an offer of another process, on the same GPU.

    Raises
    ------
    vkgdr.InvalidArgumentError
        The bytes are not an offer, or the memory was freed, or its process has ended or does not answer.
    vkgdr.VkgdrError
        As for `vkgdr.ipc.recv`.
    """
    if not is_offer(data):
        raise InvalidArgumentError("these bytes are no offer of memory of vkgdr")
    _, name, handle = _LAYOUT.unpack_from(data)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_TIMEOUT)
        try:
            connection.connect(_address(name))
            connection.sendall(struct.pack("<Q", handle))
            return recv(connection, owner)
        except (ConnectionError, EOFError) as error:
            raise InvalidArgumentError("the offered memory was freed, or its process has ended") from error
        except (TimeoutError, BlockingIOError) as error:
            # A full queue of connections is a `BlockingIOError`.
            raise InvalidArgumentError("the process that offered the memory does not answer") from error


def _address(name: bytes) -> str:
    # In the abstract namespace: no file is left behind.
    return f"\0vkgdr-offers-{name.hex()}"


def _name() -> bytes:
    """Return the name of this process's socket; start to listen, once in each process."""
    global _listening
    with _lock:
        if _listening is None or _listening[0] != os.getpid():
            name = secrets.token_bytes(16)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(_address(name))
            listener.listen()
            threading.Thread(target=_serve, args=(listener,), name="vkgdr offers", daemon=True).start()
            _listening = os.getpid(), name, listener
        return _listening[1]


def _leave_to_parent() -> None:
    """Close the socket in a forked child, where no thread answers: connections to it would wait in vain."""
    global _listening, _lock
    # Another thread may have held it.
    _lock = threading.Lock()
    if _listening is not None:
        _listening[2].close()
        _listening = None


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
            _report(error)
            if connection is not None:
                connection.close()
            time.sleep(_PAUSE)


def _attend(connection: socket.socket) -> None:
    with connection:
        try:
            _answer(connection)
        except (OSError, VkgdrError) as error:
            _report(error)


def _report(error: Exception) -> None:
    logging.getLogger("vkgdr").warning("offered memory was not sent: %s", error)


def _answer(connection: socket.socket) -> None:
    connection.settimeout(_TIMEOUT)
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if user != os.getuid():
        raise PermissionError(f"user {user} asked for memory of user {os.getuid()}")
    request = connection.recv(8, socket.MSG_WAITALL)
    view = _vkgdr.find_id(struct.unpack("<Q", request)[0]) if len(request) == 8 else None
    if view is not None:
        view.send(connection)
