"""Memory shared between processes, over a Unix socket.

The receiving process sees the same bytes, on the host and on the device.
"""

from __future__ import annotations

import socket
import struct

from vkgdr._device import Vkgdr
from vkgdr._errors import VkgdrError, in_bytes
from vkgdr._memory import Memory
from vkgdr._object import Region

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vkgdr.typing import Kind

__all__ = ["recv", "send"]

# The message beside the descriptor: magic, size in bytes, kind.
_MESSAGE = struct.Struct("!8sQ8s")
_MAGIC = b"vkgdr\0\0\1"


def send(connection: socket.socket, memory: Memory) -> None:
    """Send memory to the process at the other end of a Unix socket.

    Parameters
    ----------
    connection : socket.socket
        A socket of family ``AF_UNIX``. For ``multiprocessing``, create a pair with ``socket.socketpair()``.
    memory : Memory
        Whole memory, not a region. It may be freed here afterwards: the receiver keeps the pages alive.

    Raises
    ------
    VkgdrError
        The drivers cannot export the memory.
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
        raise TypeError(f"connection must be a socket.socket of family AF_UNIX, not a {type(connection).__name__}")
    # On other families Linux drops descriptors silently.
    if connection.family != socket.AF_UNIX:
        raise OSError(f"connection must be of family AF_UNIX to send memory, not {connection.family.name}")


def _whole(memory: object) -> Memory:
    if isinstance(memory, Memory):
        return memory
    if isinstance(memory, Region):
        raise TypeError(f"a region cannot be sent: send the whole memory, and the offset {memory.offset}")
    raise TypeError(f"a {type(memory).__name__} cannot be sent: send a vkgdr.Memory")


def _kind(word: bytes) -> Kind:
    kinds: tuple[Kind, ...] = ("mapped", "host", "device")
    for kind in kinds:
        if word.rstrip(b"\0") == kind.encode():
            return kind
    raise VkgdrError(f"the other process sent memory of an unknown kind: {word!r}")


def recv(connection: socket.socket, owner: Vkgdr) -> Memory:
    """Receive memory from another process.

    Parameters
    ----------
    connection : socket.socket
        A socket of family ``AF_UNIX`` to a trusted process: with a descriptor of anything else the drivers' behaviour
        is undefined.
    owner : Vkgdr
        The same GPU as the sender's, opened with the same flags. The context rules are those of `Memory`.

    Raises
    ------
    VkgdrError
        The message is not one of `send`, or the drivers cannot import the memory.
    EOFError
        The other end closed the connection.
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
            raise EOFError("the other process closed the connection")
        if len(message) != _MESSAGE.size or not descriptors or not message.startswith(_MAGIC):
            raise VkgdrError(f"expected memory, received {in_bytes(len(message))} and {len(descriptors)} descriptors")
        _, size, kind = _MESSAGE.unpack(message)
        return Memory.import_fd(owner, descriptors[0], size, kind=_kind(kind))
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
