"""Memory shared between processes, over a Unix socket.

The receiving process sees the same bytes, on the host and on the device.
"""

from __future__ import annotations

import socket
import struct

from vkgdr._errors import VkgdrError
from vkgdr._handle import Vkgdr
from vkgdr._object import Memory, Region
from vkgdr._words import in_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vkgdr.typing import Kind

__all__ = ["recv", "send"]

# What goes with the descriptor: magic, size in bytes, kind.
_MESSAGE = struct.Struct("!8sQ8s")
_MAGIC = b"vkgdr\0\0\1"


def send(connection: socket.socket, memory: Memory) -> None:
    """Hand memory to the process at the other end of a Unix socket.

    Parameters
    ----------
    connection : socket.socket
        Of family ``AF_UNIX``. For ``multiprocessing``, make a pair with ``socket.socketpair()``.
    memory : Memory
        All of it, not a region. It may be freed here afterwards: the other process keeps the pages.

    Raises
    ------
    VkgdrError
        The drivers do not export it.
    OSError
        The socket is not of family ``AF_UNIX``, or is closed.
    """
    import os

    _check(connection)
    descriptor = _whole(memory).export_fd()
    try:
        message = _MESSAGE.pack(_MAGIC, len(memory), memory.kind.encode())
        socket.send_fds(connection, [message], [descriptor])
    finally:
        os.close(descriptor)


def _check(connection: object) -> None:
    if not isinstance(connection, socket.socket):
        raise TypeError(f"a socket.socket of family AF_UNIX is needed, not a {type(connection).__name__}")
    # Linux drops descriptors silently on every other family.
    if connection.family != socket.AF_UNIX:
        raise OSError(f"a socket of family {connection.family.name} cannot carry memory: AF_UNIX can")


def _whole(memory: object) -> Memory:
    if isinstance(memory, Memory):
        return memory
    if isinstance(memory, Region):
        raise TypeError(f"a region cannot be sent: send all of the memory, and the offset {memory.offset}")
    raise TypeError(f"a {type(memory).__name__} cannot be sent: send a vkgdr.Memory")


def _kind(word: bytes) -> Kind:
    kinds: tuple[Kind, ...] = ("mapped", "host", "device")
    for kind in kinds:
        if word.rstrip(b"\0") == kind.encode():
            return kind
    raise VkgdrError(f"the other process sent memory of an unknown kind: {word!r}")


def recv(connection: socket.socket, owner: Vkgdr) -> Memory:
    """Take memory that another process sends.

    Parameters
    ----------
    connection : socket.socket
        Of family ``AF_UNIX``, from a process that is trusted: a descriptor of something else is undefined behaviour of
        the drivers.
    owner : Vkgdr
        The same GPU as the sender's, opened with the same flags. The context rules are those of `Memory`.

    Raises
    ------
    VkgdrError
        What came is not memory, or the drivers refuse it.
    EOFError
        The other end was closed.
    OSError
        The socket is not of family ``AF_UNIX``, or is closed.
    """
    import os

    _check(connection)
    if not isinstance(owner, Vkgdr):
        raise TypeError(f"owner must be a vkgdr.Vkgdr, not {type(owner).__name__}")
    message, descriptors, _, _ = socket.recv_fds(connection, _MESSAGE.size, 1)
    try:
        if not message:
            raise EOFError("the other process has closed the connection")
        if len(message) != _MESSAGE.size or not descriptors or not message.startswith(_MAGIC):
            raise VkgdrError(
                f"the other process sent no memory, but {in_bytes(len(message))} and {len(descriptors)} descriptors"
            )
        _, size, kind = _MESSAGE.unpack(message)
        return Memory.import_fd(owner, descriptors[0], size, kind=_kind(kind))
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
